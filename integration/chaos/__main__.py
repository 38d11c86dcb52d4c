"""The whole campaign on three nodes of its own: `python -m integration.chaos [--minutes 3] [--driver-kills 10] [--cluster standalone]`."""

from __future__ import annotations

import argparse
import sys
import uuid
from functools import partial
from pathlib import Path

from integration.campaign import Outcome, add_options, campaign, settings_of
from integration.chaos.campaign import DRIVER, EXECUTOR, WORKER, ChaosCampaign
from integration.exactness.sinks import TOPICS, running_sink
from integration.kafka_cluster import running_cluster
from integration.masters import add_cluster_option, running_master
from kstream.spark.java import ensure_java


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--driver-kills", type=int, default=10)
    parser.add_argument("--leader-kill-every", type=float, default=10, metavar="SECONDS", help="or when all nodes serve again")
    parser.add_argument("--rate", type=int, default=5000, help="records a second")
    parser.add_argument("--endure", action="store_true", help="the driver goes on after a failed batch instead of ending with its error")
    add_options(parser)
    parser.add_argument("--sink", choices=[TOPICS], help="where each record is also written, exactly once, on the same nodes")
    add_cluster_option(parser)
    parser.add_argument("--executor-kills", type=int, default=10, help="on a standalone cluster")
    parser.add_argument("--worker-kills", type=int, default=3, help="on a standalone cluster")
    given = parser.parse_args()
    ensure_java()
    return campaign("chaos", given.keep, partial(have, given))


def have(given: argparse.Namespace, directory: Path) -> Outcome:
    with (
        running_cluster(directory / "cluster") as cluster,
        running_master(given.cluster, directory) as master,
        running_sink(given.sink, directory, cluster) as sink,
    ):
        topic = f"chaos-{uuid.uuid4().hex[:8]}"
        settings = {"rate": given.rate, "conf": settings_of(given.conf), "endure": given.endure, "sink": sink}
        chaos = ChaosCampaign(cluster, topic, directory / "run", given.seed, master, **settings)
        kills = {DRIVER: given.driver_kills}
        if master.cluster is not None:
            kills |= {EXECUTOR: given.executor_kills, WORKER: given.worker_kills}
        report = chaos.unleash(given.minutes * 60, kills, given.leader_kill_every)
    return report.lines(), report.verdict.breaches


if __name__ == "__main__":
    sys.exit(main())
