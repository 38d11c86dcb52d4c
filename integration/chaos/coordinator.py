"""The broker that coordinates the transactions of the Kafka sink is killed while one is open, and does not come back.

On three nodes of its own: `python -m integration.chaos.coordinator`. Another node takes over the replica of `__transaction_state`, and the
driver tries its batch again. Then the driver is killed in a commit, and the next one takes over without that node. Each record must be in
the output once, and `kstream audit` must agree.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from integration.campaign import Outcome, campaign
from integration.driver_process import running
from integration.exactness.campaign import IN_WRITE, Campaign, Kill
from integration.exactness.hooks import ARMED, COMMIT, GO, HELD, HOLD, HOOKS
from integration.exactness.sinks import TOPICS, breaches_of_console, running_sink
from integration.exactness.verdict import Verdict
from integration.kafka_cluster import KafkaCluster, running_cluster
from kstream.scheduler.settings import RETRIES
from kstream.spark.java import ensure_java

STATE = "__transaction_state"
"""The topic whose leader is the coordinator. It has one partition here."""
PATIENCE_S = 300
"""Longer than a commit waits for an answer, and then an attempt that has lost its id for the receipt of another one."""
BATCHES = 3
"""So many batches are completed before the coordinator is killed, and after it."""


class CoordinatorCampaign(Campaign):
    """One job whose coordinator of transactions goes away for good. Call `run_without` once, from the main thread.

    Attributes:
        seconds: from the kill of the coordinator to the next completed batch.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, directory: Path, sink: str) -> None:
        environment = {HOOKS: str(directory)}
        super().__init__(cluster.bootstrap, topic, directory, cluster.produce, {RETRIES.key: "20"}, environment=environment, sink=sink)
        self.patience_s = PATIENCE_S
        self.seconds = 0.0
        self._cluster = cluster

    def run_without(self) -> Verdict:
        """Blocks until the job has gone on without its coordinator; the verdict on everything."""
        self.directory.mkdir(parents=True)
        with self._feeding() as fed:
            driver = self._start_driver(None)
            with running(driver):
                self._wait_completed(driver, BATCHES)
                (self.directory / f"{HOLD}-{COMMIT}").touch()
                self._wait(driver, (self.directory / f"{HELD}-{COMMIT}").exists, "come to a commit")
                coordinator, newest_ms = self._cluster.leader(STATE), self._newest_ms()
                self._cluster.kill9(coordinator)
                killed = time.monotonic()
                (self.directory / f"{GO}-{COMMIT}").touch()
                self.say(f"node {coordinator}, coordinator of an open transaction, killed for good")
                self._wait(driver, lambda: self._newest_ms() > newest_ms, "complete a batch without the coordinator")
                self.seconds = time.monotonic() - killed
                self.say(f"batches go on under node {self._cluster.wait_for_leader(STATE, lambda node: node not in (-1, coordinator))}")
                self._wait_completed(driver, BATCHES)
            (self.directory / ARMED).touch()
            self._kill_once(Kill(IN_WRITE, 2))
        self._drain(dict(fed))
        return self.judged(fed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the directory with all records behind")
    keep = parser.parse_args().keep
    ensure_java()
    return campaign("coordinator", keep, have)


def have(directory: Path) -> Outcome:
    with running_cluster(directory / "cluster") as cluster, running_sink(TOPICS, directory, cluster) as sink:
        cluster.create_topic("fed", 2)
        coordinator = CoordinatorCampaign(cluster, "fed", directory / "run", sink)
        verdict = coordinator.run_without()
        verdict.breaches += breaches_of_console(sink)
    took = f"from the kill of the coordinator to the next completed batch: {coordinator.seconds:.1f} s"
    return [took, *verdict.lines()], verdict.breaches


if __name__ == "__main__":
    sys.exit(main())
