"""On a cluster and a broker of its own: `python -m integration.structured_kills [--kills driver=14,jvm=6,executor=6] …`.

In one process: `python -m integration.structured_kills --cluster local --kills driver=20`. Prints each kill and each breach; ends with 1 if
there is a breach.

With --sink a query from Kafka to Kafka: `--sink kstream`, `--sink at-least-once`, and Spark's own by `--sink spark --cluster local --kills
driver=14,jvm=6`. kafka-console-consumer reads what is written, too.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from functools import partial
from pathlib import Path

from integration.campaign import Outcome, add_kills_option, add_options, campaign, settings_of
from integration.kafka_broker import running_broker
from integration.masters import STANDALONE, add_cluster_option, running_master
from integration.structured_kills.campaign import DRIVER, EXECUTOR, JVM, PARTITIONS, StructuredCampaign
from integration.structured_kills.sink_campaign import SINKS, SinkCampaign, check_kills, make_topics

DEFAULT = f"{DRIVER}=14,{JVM}=6,{EXECUTOR}=6"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_kills_option(parser, (DRIVER, JVM, EXECUTOR), DEFAULT)
    parser.add_argument("--sink", choices=SINKS, help="that of a query from Kafka to Kafka; without it a query writes files")
    add_cluster_option(parser, default=STANDALONE)
    parser.add_argument("--rate", type=int, default=400, help="records a second")
    add_options(parser, "--option", "of the source, such as maxOffsetsPerTrigger")
    given = parser.parse_args()
    return campaign("structured-kills", given.keep, partial(have, given))


def have(given: argparse.Namespace, directory: Path) -> Outcome:
    with running_broker(directory / "broker") as broker, running_master(given.cluster, directory) as master:
        topic = f"structured-{uuid.uuid4().hex[:8]}"
        options, say = settings_of(given.option), partial(print, flush=True)
        if given.sink is None:
            broker.create_topic(topic, PARTITIONS)
            query = StructuredCampaign(
                broker, topic, master, directory / "run", seed=given.seed, rate=given.rate, options=options, say=say
            )  # fmt: skip
        else:
            check_kills(given.sink, given.kills, master)
            make_topics(broker, topic, f"{topic}-copy")
            query = SinkCampaign(
                broker, topic, f"{topic}-copy", master, directory / "run", sink=given.sink, seed=given.seed, rate=given.rate,
                options=options, asks_console=True, say=say,
            )  # fmt: skip
        report = query.run(given.kills)
    return report.lines_of(), report.verdict.breaches


if __name__ == "__main__":
    sys.exit(main())
