"""ReceiverNight: a job with `KafkaUtils.createStream` and a receiver's write-ahead log; ZooKeeper and the broker go away."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from kazoo.client import KazooClient

from integration.kafka_broker import KafkaBroker
from integration.masters import IN_PROCESS, Master
from integration.night.campaign import TOPIC, Durations, Night, freeze
from integration.zookeeper_server import ZooKeeper

GROUP = "night"
AWAY = "does not answer; no record is read or acknowledged until it does"
"""What the receiver logs when ZooKeeper is away."""


class ReceiverNight(Night):
    """Every record arrives at least once, and the database keeps it once, by its id. In the morning ZooKeeper has the ends of the log."""

    job = "setup_receiver"

    def __init__(
        self, directory: Path, broker: KafkaBroker, zookeeper: ZooKeeper, durations: Durations, master: Master = IN_PROCESS
    ) -> None:
        super().__init__(directory, broker, str(directory / "checkpoint"), durations, master)
        self._zookeeper = zookeeper

    def came_again(self) -> int:
        """How many times a record was written again by another batch."""
        return sum(times - 1 for times in Counter(self._database.ids()).values())

    def _outages(self) -> dict[str, Callable[[], None]]:
        return {
            "ZooKeeper is frozen": lambda: freeze(self._zookeeper.pid, self._durations.zookeeper_frozen),
            "ZooKeeper is killed": self._zookeeper_killed,
            "the broker is frozen": self._broker_frozen,
        }

    def _zookeeper_killed(self) -> None:
        self._zookeeper.kill9()
        time.sleep(self._durations.zookeeper_dead)
        self._zookeeper.start()

    def _environment(self) -> Mapping[str, str]:
        return {"NIGHT_ZOOKEEPER": self._zookeeper.hosts, "NIGHT_GROUP": GROUP}

    def _counted(self) -> list[int]:
        return self._database.orders()

    def _others(self, produced: int) -> list[str]:
        cluster = self._master.cluster  # the receiver runs there
        said = self.log.read_text(errors="replace") if cluster is None else cluster.said_by_executors()
        acknowledged, noticed = self._acknowledged(), said.count(AWAY)
        found = {
            f"{acknowledged} records acknowledged in ZooKeeper, of {produced}": acknowledged != produced,
            f"the receiver noticed {noticed} of 2 outages of ZooKeeper": noticed < 2,
        }
        return [words for words, breached in found.items() if breached]

    def _acknowledged(self) -> int:
        client = KazooClient(self._zookeeper.hosts)
        client.start(self._patience)
        try:
            offsets = f"/consumers/{GROUP}/offsets/{TOPIC}"
            return sum(int(client.get(f"{offsets}/{partition}")[0]) for partition in client.get_children(offsets))
        finally:
            client.stop()
            client.close()
