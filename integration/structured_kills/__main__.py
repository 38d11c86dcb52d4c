"""On a cluster and a broker of its own: `python -m integration.structured_kills [--kills driver=14,jvm=6,executor=6] …`.

In one process: `python -m integration.structured_kills --cluster local --kills driver=20`. Prints each kill and each breach; ends with 1 if
there is a breach.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import uuid
from functools import partial
from pathlib import Path

from integration.kafka_broker import running_broker
from integration.masters import STANDALONE, add_cluster_option, running_master
from integration.structured_kills.campaign import DRIVER, EXECUTOR, JVM, PARTITIONS, StructuredCampaign

DEFAULT = f"{DRIVER}=14,{JVM}=6,{EXECUTOR}=6"


def kills_of(text: str) -> dict[str, int]:
    """`executor=3,driver=1` as a mapping; ValueError for another form."""
    found = {kind: int(count) for kind, _, count in (part.partition("=") for part in text.split(",") if part)}
    if unknown := found.keys() - {DRIVER, JVM, EXECUTOR}:
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=kills_of, default=DEFAULT, metavar="KIND=N,…", help=f"of each kind; default {DEFAULT}")
    add_cluster_option(parser, default=STANDALONE)
    parser.add_argument("--rate", type=int, default=400, help="records a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of the source, such as maxOffsetsPerTrigger")
    parser.add_argument("--keep", action="store_true", help="leave the directory with all records behind")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="structured-kills-"))
    with running_broker(directory / "broker") as broker, running_master(given.cluster, directory) as master:
        topic = f"structured-{uuid.uuid4().hex[:8]}"
        broker.create_topic(topic, PARTITIONS)
        options = dict(option.split("=", 1) for option in given.option)
        campaign = StructuredCampaign(
            broker, topic, master, directory / "run", seed=given.seed, rate=given.rate, options=options, say=partial(print, flush=True)
        )  # fmt: skip
        report = campaign.run(given.kills)
    breached = bool(report.verdict.breaches)
    print("\n".join(report.lines_of()), f"(records of it: {directory})" if given.keep or breached else "")
    if not given.keep and not breached:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if breached else 0


if __name__ == "__main__":
    sys.exit(main())
