"""On a cluster and a broker of its own: `python -m integration.structured_kills [--kills driver=14,jvm=6,executor=6] …`.

In one process: `python -m integration.structured_kills --cluster local --kills driver=20`. Prints each kill and each breach; ends with 1 if
there is a breach.

With --sink a query from Kafka to Kafka: `--sink kstream`, `--sink at-least-once`, and Spark's own by `--sink spark --cluster local --kills
driver=14,jvm=6`. kafka-console-consumer reads what is written, too.
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
from integration.structured_kills.sink_campaign import SINKS, SinkCampaign, check_kills, make_topics

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
    parser.add_argument("--sink", choices=SINKS, help="that of a query from Kafka to Kafka; without it a query writes files")
    add_cluster_option(parser, default=STANDALONE)
    parser.add_argument("--rate", type=int, default=400, help="records a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of the source, such as maxOffsetsPerTrigger")
    parser.add_argument("--keep", action="store_true", help="leave the directory with all records behind")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="structured-kills-"))
    with running_broker(directory / "broker") as broker, running_master(given.cluster, directory) as master:
        topic = f"structured-{uuid.uuid4().hex[:8]}"
        options, say = dict(option.split("=", 1) for option in given.option), partial(print, flush=True)
        if given.sink is None:
            broker.create_topic(topic, PARTITIONS)
            campaign = StructuredCampaign(
                broker, topic, master, directory / "run", seed=given.seed, rate=given.rate, options=options, say=say
            )  # fmt: skip
        else:
            check_kills(given.sink, given.kills, master)
            make_topics(broker, topic, f"{topic}-copy")
            campaign = SinkCampaign(
                broker, topic, f"{topic}-copy", master, directory / "run", sink=given.sink, seed=given.seed, rate=given.rate,
                options=options, asks_console=True, say=say,
            )  # fmt: skip
        report = campaign.run(given.kills)
    breached = bool(report.verdict.breaches)
    print("\n".join(report.lines_of()), f"(records of it: {directory})" if given.keep or breached else "")
    if not given.keep and not breached:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if breached else 0


if __name__ == "__main__":
    sys.exit(main())
