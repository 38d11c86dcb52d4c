"""Each bug meets a job. Then the same happens to the same jobs without a bug: `python -m integration.sink_planted [--only WORDS]`."""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
import time
from pathlib import Path

from integration.sink_planted.scenarios import SCENARIOS, Scenario, running
from kstream.spark.java import ensure_java


def wrong_in(scenario: Scenario, is_planted: bool, keeps: bool) -> list[str]:
    """What is wrong after a run of a scenario, with or without its bug."""
    directory = Path(tempfile.mkdtemp(prefix="planted-"))
    with running(scenario, directory, is_planted) as run:
        found = scenario.tell(run)
    if keeps:
        print(f"       records: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run the scenarios whose lines have these words")
    side = parser.add_mutually_exclusive_group()
    side.add_argument("--planted", action="store_true", help="only the runs with a bug")
    side.add_argument("--controls", action="store_true", help="only the runs without a bug")
    parser.add_argument("--keep", action="store_true", help="leave the directories with all records behind")
    options = parser.parse_args()
    ensure_java()
    sides = [planted for planted, left_out in ((True, options.controls), (False, options.planted)) if not left_out]
    ran = missed = 0
    for is_planted, scenario in itertools.product(sides, SCENARIOS):
        if options.only not in scenario.words:
            continue
        began = time.monotonic()
        found = wrong_in(scenario, is_planted, options.keep)
        ok = bool(found) == is_planted
        ran, missed = ran + 1, missed + (not ok)
        how = "planted" if is_planted else "without the bug"
        print(f"{'ok  ' if ok else 'MISS'} {scenario.words}; {how}: {time.monotonic() - began:.0f} s", flush=True)
        for words in found or ["nothing is wrong"]:
            print(f"       {words}", flush=True)
    print(f"verdict: {ran} runs, {f'{missed} missed' if missed else 'each bug is found, and nothing else'}")
    return 1 if missed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
