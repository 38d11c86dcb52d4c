"""MissingPartitions: the partitions of a pattern that the brokers do not show, until it is known whether their topics were deleted.

An answer about all topics may lack one that exists: the broker is behind the others, or an ACL is away. So a topic leaves the stream only
when the brokers, asked for its name some seconds later, say that they do not know it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kstream.offsets.offset_range import OffsetRange, Partition, describe_offsets
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.errors import TopicNotAvailableError
from kstream_kafka.planning.plan import KafkaPlan

logger = logging.getLogger("kstream.kafka")

SECOND_LOOK_MS = 5_000
"""Milliseconds from the first answer without a partition to the question by name, and between two such questions."""


@dataclass(frozen=True, slots=True)
class _Left:
    """Where a partition was when it left the stream: its next offset, the leader epoch under which that was reached, its topic's id."""

    offset: int
    epoch: int | None
    topic_id: str


class MissingPartitions:
    """The missing partitions of a stream, and those that have left it. Used only on the driver. Not thread-safe: one thread at a time.

    A partition that leaves keeps its offset with the id of its topic. If it comes back under this id, it was not deleted, and the stream
    goes on at that offset. It is kept for the life of the driver.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._missing: dict[Partition, int] = {}
        """partition → when an answer first lacked it, or when its topic was last asked for by name; in ms of the clock."""
        self._left: dict[Partition, _Left] = {}

    @property
    def partitions(self) -> frozenset[Partition]:
        return frozenset(self._missing)

    def lacking(self, positions: Mapping[Partition, int]) -> None:
        """Take these partitions for missing from now on, because an answer of the brokers lacks them. Logs those that were not missing yet.

        Args:
            positions: partition → next offset.
        """
        new = {p: at for p, at in positions.items() if p not in self._missing}
        if not new:
            return
        self._missing.update(dict.fromkeys(new, self._monotonic_ms()))
        logger.warning(
            "the brokers' answer lacks %s: the partitions keep these offsets and get no records, and the stream asks for their topics by "
            "name in %.0f s",
            describe_offsets(new),
            SECOND_LOOK_MS / 1000,
        )

    def shown(self, known: Collection[Partition]) -> bool:
        """Take these partitions for missing no longer, because an answer of the brokers has them. Others stay missing.

        Args:
            known: the partitions that the brokers show.

        Returns:
            Whether any of them was missing, which is logged.
        """
        back = self._missing.keys() & set(known)
        for p in back:
            del self._missing[p]
        if back:
            names = ", ".join(f"{topic}-{number}" for topic, number in sorted(back)[:5])
            logger.info("the brokers show %s again: the stream goes on at the same offsets", names)
        return bool(back)

    def ask(self, client: DriverClient, topic_ids: Mapping[str, str]) -> tuple[set[Partition], bool]:
        """Ask for the topics of the missing partitions by name, if it is time. Blocks if it asks: one request.

        A partition is deleted if the brokers do not know its topic. If they know the topic, no partition of it can be deleted, unless the
        topic was recreated, and its id tells that. Brokers without ids are believed that a topic has fewer partitions.

        Args:
            client: the driver's client.
            topic_ids: topic → its known id.

        Returns:
            The deleted partitions, which are missing no longer; and whether a missing one is there again. Neither if it is not yet time.

        Raises:
            NotAuthorizedError: the brokers do not show a topic to this client.
        """
        due = {p for p, since_ms in self._missing.items() if self._monotonic_ms() - since_ms >= SECOND_LOOK_MS}
        if not due:
            return set(), False
        found = client.describe_topics({topic for topic, _ in due})
        self._missing.update(dict.fromkeys(due, self._monotonic_ms()))
        gone = {
            (topic, number)
            for topic, number in due
            if topic in found and number not in found[topic] and not (found[topic] and topic in topic_ids)
        }
        for p in gone:
            del self._missing[p]
        return gone, self.shown([(topic, number) for topic, numbers in found.items() for number in numbers])

    def forget(self, topic: str) -> None:
        """Forget all partitions of a topic that was recreated: their offsets mean nothing in the new topic."""
        self._missing = {p: since_ms for p, since_ms in self._missing.items() if p[0] != topic}
        self._left = {p: left for p, left in self._left.items() if p[0] != topic}

    def leave(self, partition: Partition, offset: int, epoch: int | None, topic_id: str | None) -> None:
        """Keep where a deleted partition was. Without a topic id nothing is kept, because nobody could tell a recreated topic.

        Args:
            partition: the partition.
            offset: its next offset.
            epoch: the leader epoch under which the offset was reached; None if it is unknown.
            topic_id: the id of its topic; None if the brokers have no ids.
        """
        if topic_id is not None:
            self._left[partition] = _Left(offset, epoch, topic_id)

    def take_back(self, known: Collection[Partition]) -> KafkaPlan | None:
        """Give out the partitions that have left and are among these, as kept offsets. The caller compares the topic ids.

        Args:
            known: the partitions that the brokers show.

        Returns:
            A plan of empty ranges at their offsets; None if there are none.
        """
        back = {p: self._left.pop(p) for p in sorted(known) if p in self._left}
        if not back:
            return None
        epochs = [left.epoch for left in back.values()]
        ids = {topic: left.topic_id for (topic, _), left in back.items()}
        return KafkaPlan([OffsetRange(*p, left.offset, left.offset) for p, left in back.items()], epochs, epochs, ids)


def check_none_missing(missing: Collection[Partition]) -> None:
    """Check that the brokers can be asked about all partitions. Pure.

    Raises:
        TopicNotAvailableError: a partition is missing. The batch is planned when it is there again, or known to be deleted.
    """
    if missing:
        raise TopicNotAvailableError(sorted({topic for topic, _ in missing}), "the brokers' last answer lacks partitions of it")
