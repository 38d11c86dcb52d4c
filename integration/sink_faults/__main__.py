"""On a broker of its own, with a proxy before it: `python -m integration.sink_faults [--only WORDS]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

from kstream_kafka.client import transaction

from integration.kafka_broker import KafkaBroker
from integration.kafka_proxy import KafkaProxy, running_proxied_broker
from integration.sink_faults import left_open, suspended
from integration.sink_faults.batches import SuspendedAt
from integration.sink_faults.faults import SETTINGS, FaultyJob, Finding, all_faults, repeats_of_at_least_once

ABORT_S = 1.0
"""How long an attempt that is cut off tries to abort."""


def scenarios(broker: KafkaBroker, proxy: KafkaProxy) -> Iterator[tuple[str, Callable[[], Finding]]]:
    """Each scenario: what happens in it, and what runs it."""
    job = FaultyJob(broker, proxy)
    for fault in all_faults():
        yield str(fault), partial(job.meet, fault)
    places = [where for where in SuspendedAt if where is not SuspendedAt.NOWHERE]
    for where in places:
        yield f"zombie, suspended {where.value}", _timed(partial(suspended.zombie, broker, where))
    yield "zombie, suspended with its commit under way", _timed(partial(suspended.zombie_with_its_commit_under_way, broker, proxy))
    for where in places:
        yield f"speculation, the first attempt suspended {where.value}", _timed(partial(suspended.speculation, broker, where))
    yield "speculation, none suspended", _timed(partial(suspended.copies_at_once, broker))
    yield "readers, a new driver comes", partial(_held_up, broker, left_open.until_a_new_driver_comes, left_open.TAKEN_OVER_BAR_S)
    yield "readers, nobody comes", partial(_held_up, broker, left_open.until_the_time_out, left_open.ALONE_BAR_S)
    yield "the next attempt of Spark", partial(_held_up, broker, left_open.until_the_next_attempt_has_written, left_open.NEXT_ATTEMPT_BAR_S)
    yield "at least once, client killed without its answer", _timed(partial(_shows_repeats, broker, proxy))


def _timed(breaches: Callable[[], list[str]]) -> Callable[[], Finding]:
    def run() -> Finding:
        began = time.monotonic()
        return Finding(breaches(), seconds=time.monotonic() - began)

    return run


def _held_up(broker: KafkaBroker, measure: Callable[[KafkaBroker], left_open.HeldUp], bar_s: float) -> Finding:
    found = measure(broker)
    late = [f"they were held up for {found.seconds:.1f} s (bar: <= {bar_s:.0f} s)"] if found.seconds > bar_s else []
    return Finding(found.breaches + late, seconds=found.seconds)


def _shows_repeats(broker: KafkaBroker, proxy: KafkaProxy) -> list[str]:
    return [] if repeats_of_at_least_once(broker, proxy) else ["nothing is there twice: the scenarios cannot tell a sink that writes twice"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run the scenarios whose lines have these words")
    options = parser.parse_args()
    ran = missed = 0
    with (
        tempfile.TemporaryDirectory() as work,
        running_proxied_broker(Path(work), SETTINGS) as (broker, proxy),
        mock.patch.object(transaction, "ABORT_S", ABORT_S),
    ):
        for name, run in scenarios(broker, proxy):
            if options.only not in name:
                continue
            finding = run()
            ran, missed = ran + 1, missed + bool(finding.breaches)
            print(f"{'MISS' if finding.breaches else 'ok  '} {name}: {finding.seconds:.1f} s", flush=True)
            for words in (*finding.errors, *finding.breaches):
                print(f"       {words}", flush=True)
    print(f"verdict: {ran} scenarios, {'exact' if not missed else f'{missed} missed'}")
    return 1 if missed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
