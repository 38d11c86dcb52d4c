"""KafkaReceiver: the plain Kafka receiver of Spark 1.x and 2.x."""

from __future__ import annotations

from typing import Any

from kstream.clock import Clock, SystemClock
from kstream.receiver import Receiver
from kstream_kafka.zookeeper.group_member import GroupMember
from kstream_kafka.zookeeper.group_reader import open_reader
from kstream_kafka.zookeeper.ports import Parts
from kstream_kafka.zookeeper.receiver_settings import ReceiverSettings
from kstream_kafka.zookeeper.stored_offsets import Acknowledgement, OnTimer
from kstream_kafka.zookeeper.zookeeper_offsets import join


def system_clock() -> Clock:
    return SystemClock()


PARTS = Parts(join, open_reader, system_clock)
"""ZooKeeper, Kafka and the machine's clock."""


class KafkaReceiver(Receiver):
    """Reads a share of the topics' partitions, as one consumer of a group that is in ZooKeeper. Records are (key, value) in bytes.

    Offsets are written every `auto.commit.interval.ms`, of what has been read by then, be it stored or not: records that are in no
    block yet are lost with the process. `ReliableKafkaReceiver` loses none. Made by `KafkaUtils.createStream`.
    """

    def __init__(self, settings: ReceiverSettings, storageLevel: Any = None, parts: Parts = PARTS) -> None:
        super().__init__(storageLevel)
        self.settings = settings
        self._parts = parts
        self._member: GroupMember | None = None

    def onStart(self) -> None:
        """Returns at once; ZooKeeper and Kafka are asked by a thread. What they refuse comes as a restart, with the error."""
        self._member = GroupMember(self.settings, self._parts, self, self._acknowledgement)
        self._member.start()

    def onStop(self) -> None:
        """Blocks until what was read is stored, the offsets are written and the claims given back. ZooKeeper that is away is waited for
        no more than a moment: what is not acknowledged then comes again."""
        if self._member is not None:
            self._member.stop()
            self._member = None

    def _acknowledgement(self, now_ms: int) -> Acknowledgement:
        return OnTimer(self.settings.commit_interval_ms if self.settings.commits_on_timer else None, now_ms)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_member": None}
