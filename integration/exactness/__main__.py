"""On a broker of its own: `python -m integration.exactness [--kills 30] [--checkpoint s3] [--refusals 2] [--cluster standalone] …`.

With `--sink sqlite|postgresql|kafka` it also writes each record exactly once. To Kafka also behind a reduceByKey (`--reduced`), with code
that is another one for each driver (`--partitions 8 --changes values`, `--reduced --changes values|keys`), or from a topic that gets more
partitions (`--partitions 4 --grow-to 8`). Then the drivers are killed at random moments and in the middle of commits.
Kafka's own console consumer must find the same as the verdict.
"""

from __future__ import annotations

import argparse
import collections
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from integration.campaign import Outcome, add_options, campaign, settings_of
from integration.exactness.campaign import IN_WRITE, PARTITIONS, RANDOM, Campaign, plan_kills
from integration.exactness.kafka_sink import CHANGES, KEYS, Code
from integration.exactness.sinks import SINKS, TOPICS, breaches_of_console, running_sink
from integration.kafka_broker import running_broker
from integration.masters import add_cluster_option, running_master
from kstream.scheduler.settings import RETRIES

LOOKS_OFTEN = {"metadata.max.age.ms": "1000"}
"""Of a stream that is to find new partitions soon."""


@contextmanager
def a_store(kind: str, directory: Path) -> Iterator[tuple[str | None, dict[str, str]]]:
    """The URL of a new checkpoint on a store of that kind, for the length of a with block, and the environment of its drivers."""
    if kind == "s3":
        from integration.s3_server import running_s3

        with running_s3() as s3:
            yield s3.url("exactness"), s3.environment()
    elif kind == "azure":
        from integration.azure_server import running_azure

        with running_azure(directory / "azure") as azure:
            yield azure.url("exactness"), azure.environment()
    elif kind == "hdfs":
        from integration.hdfs_cluster import running_hdfs

        with running_hdfs(directory / "hdfs") as hdfs:
            yield hdfs.url("exactness"), {}
    else:
        yield None, {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=36)
    add_options(parser, of="a setting of the driver, such as concurrentJobs")
    parser.add_argument("--refusals", type=int, default=0, help="how often the sink refuses every fifth batch; the driver goes on")
    parser.add_argument("--checkpoint", choices=["disk", "s3", "azure", "hdfs"], default="disk", help="what the checkpoint lies on")
    parser.add_argument("--sink", choices=SINKS, help="to which the driver writes every record exactly once")
    parser.add_argument("--reduced", action="store_true", help="a reduceByKey is in front of the output to Kafka")
    parser.add_argument("--changes", choices=CHANGES, default="", help="what each driver writes otherwise to Kafka than that before")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="of the topic that is read")
    parser.add_argument("--grow-to", type=int, metavar="PARTITIONS", help="that the topic gets after half of the kills")
    add_cluster_option(parser)
    options = parser.parse_args()
    has_code = options.reduced or bool(options.changes)
    if (has_code and options.sink != TOPICS) or (options.changes == KEYS and not options.reduced):
        parser.error("--reduced and --changes need --sink kafka, and --changes keys needs --reduced")
    return campaign("exactness", options.keep, partial(have, options))


def have(options: argparse.Namespace, directory: Path) -> Outcome:
    points = [IN_WRITE, RANDOM] if options.reduced or options.changes or options.grow_to else []
    kills = plan_kills(options.kills, options.seed, options.sink is not None, points)
    with (
        running_broker(directory / "broker") as broker,
        a_store(options.checkpoint, directory) as (checkpoint, environment),
        running_master(options.cluster, directory) as master,
        running_sink(options.sink, directory, broker) as sink,
    ):
        topic = f"exactness-{uuid.uuid4().hex[:8]}"
        broker.create_topic(topic, options.partitions)
        conf = {**master.settings_with(environment), **settings_of(options.conf)}
        if options.changes == KEYS:
            conf = {RETRIES.key: "5", **conf}  # a driver that has refused a batch lives when it is accepted
        environment = {**environment, **master.environment}
        job = Campaign(broker.bootstrap, topic, directory / "run", broker.produce, conf, checkpoint, environment)
        job.refusals, job.endure, job.sink = options.refusals, options.refusals > 0, sink
        job.code, job.partitions = Code(options.reduced, options.changes), options.partitions
        if options.grow_to:
            job.params, job.grow = LOOKS_OFTEN, lambda: broker.add_partitions(topic, options.grow_to)
        verdict = job.run(kills)
        if options.sink == TOPICS:
            verdict.breaches += breaches_of_console(sink)
    found = collections.Counter(kill.point for kill in kills)
    killed = f"kills: {len(kills)} ({', '.join(f'{n} {point}' for point, n in sorted(found.items()))})"
    return [killed, *verdict.lines()], verdict.breaches


if __name__ == "__main__":
    sys.exit(main())
