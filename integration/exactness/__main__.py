"""On a broker of its own: `python -m integration.exactness [--kills 30] [--checkpoint s3] [--refusals 2] [--cluster standalone] …`.

With `--sink sqlite|postgresql|kafka` it also writes each record exactly once.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.exactness.campaign import PARTITIONS, Campaign, plan_kills
from integration.exactness.sinks import SINKS, running_sink
from integration.kafka_broker import running_broker
from integration.masters import add_cluster_option, running_master


@contextmanager
def a_store(kind: str, directory: Path) -> Iterator[tuple[str | None, dict[str, str]]]:
    """The URL of a new checkpoint on a store of that kind, for the length of a with block, and the environment of its drivers."""
    if kind == "s3":
        from integration.s3_server import running_s3

        with running_s3() as s3:
            yield s3.url("exactness"), s3.environment()
    elif kind == "hdfs":
        from integration.hdfs_cluster import running_hdfs

        with running_hdfs(directory / "hdfs") as hdfs:
            yield hdfs.url("exactness"), {}
    else:
        yield None, {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=36)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of the driver, such as concurrentJobs")
    parser.add_argument("--refusals", type=int, default=0, help="how often the sink refuses every fifth batch; the driver goes on")
    parser.add_argument("--checkpoint", choices=["disk", "s3", "hdfs"], default="disk", help="what the checkpoint lies on")
    parser.add_argument("--sink", choices=SINKS, help="to which the driver writes every record exactly once")
    add_cluster_option(parser)
    parser.add_argument("--keep", action="store_true", help="leave the directory with all records behind")
    options = parser.parse_args()
    kills = plan_kills(options.kills, options.seed, options.sink is not None)
    directory = Path(tempfile.mkdtemp(prefix="exactness-"))
    with (
        running_broker(directory / "broker") as broker,
        a_store(options.checkpoint, directory) as (checkpoint, environment),
        running_master(options.cluster, directory) as master,
        running_sink(options.sink, directory, broker) as sink,
    ):
        topic = f"exactness-{uuid.uuid4().hex[:8]}"
        broker.create_topic(topic, PARTITIONS)
        conf = {**master.settings_with(environment), **dict(setting.split("=", 1) for setting in options.conf)}
        environment = {**environment, **master.environment}
        campaign = Campaign(broker.bootstrap, topic, directory / "run", broker.produce, conf, checkpoint, environment)
        campaign.refusals, campaign.endure, campaign.sink = options.refusals, options.refusals > 0, sink
        verdict = campaign.run(kills)
    points = collections.Counter(kill.point for kill in kills)
    print(f"kills: {len(kills)} ({', '.join(f'{n} {point}' for point, n in sorted(points.items()))})")
    print(f"batches: {verdict.batches}, attempts: {verdict.attempts}, run again: {verdict.runs_again}, records: {verdict.records}")
    for breach in verdict.breaches:
        print("BREACH:", breach)
    print(
        "verdict:",
        "exact" if not verdict.breaches else f"{len(verdict.breaches)} breaches",
        f"(records of it: {directory})" if options.keep or verdict.breaches else "",
    )
    if not options.keep and not verdict.breaches:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)
    return 1 if verdict.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
