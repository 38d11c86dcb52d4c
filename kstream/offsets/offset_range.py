"""Partitions, and ranges of a log's records: OffsetRange, PlannedRange, UnreadableRange, LostRange.

OffsetRange and TopicAndPartition have the names of Spark 2.4's Kafka API. PlannedRange and UnreadableRange are for tools of commands.

All ranges are half-open: `fromOffset` is included, `untilOffset` is excluded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

Partition: TypeAlias = tuple[str, int]
"""(topic, partition number): the key of every map of offsets."""


@dataclass(frozen=True, order=True, slots=True)
class TopicAndPartition:
    """One partition of one topic. Equal by value and hashable.

    Attributes:
        topic: the topic.
        partition: the partition's number.
    """

    topic: str
    partition: int


TopicPartition = TopicAndPartition
"""The name of TopicAndPartition in the 0-10 API and in Kafka's clients."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records [fromOffset, untilOffset) of one partition. Equal by value and hashable.

    Attributes:
        topic: the topic.
        partition: the partition's number.
        fromOffset: the first offset.
        untilOffset: the offset after the last one.

    Example:
        OffsetRange("orders", 0, 100, 200).count()  # 100
    """

    topic: str
    partition: int
    fromOffset: int
    untilOffset: int

    def count(self) -> int:
        """Return the number of offsets. It is also the number of records, unless compaction or transactions left gaps."""
        return self.untilOffset - self.fromOffset

    @property
    def topicAndPartition(self) -> TopicAndPartition:
        """The partition of the range."""
        return TopicAndPartition(self.topic, self.partition)

    def topicPartition(self) -> TopicAndPartition:
        """Return the partition of the range, by its name in the 0-10 API."""
        return TopicAndPartition(self.topic, self.partition)

    @staticmethod
    def create(topic: str, partition: int, fromOffset: int, untilOffset: int) -> OffsetRange:
        """Create a range, like Spark's factory of the same name.

        Args:
            topic: the topic.
            partition: the partition's number.
            fromOffset: the first offset.
            untilOffset: the offset after the last one.

        Returns:
            The range.
        """
        return OffsetRange(topic, partition, fromOffset, untilOffset)

    def without(self, offsets: Collection[int]) -> list[OffsetRange]:
        """Return the parts of the range between these offsets, in order; the range itself if it has none of them. Pure.

        A range of which nothing is left has no parts.
        """
        cuts = sorted({offset for offset in offsets if self.fromOffset <= offset < self.untilOffset})
        if not cuts:
            return [self]
        begins, ends = [self.fromOffset, *(cut + 1 for cut in cuts)], [*cuts, self.untilOffset]
        return [OffsetRange(self.topic, self.partition, a, b) for a, b in zip(begins, ends, strict=True) if a < b]

    def to_json(self) -> list[str | int]:
        """Return the stored form, `[topic, partition, from, until]`."""
        return [self.topic, self.partition, self.fromOffset, self.untilOffset]

    @staticmethod
    def from_json(values: Sequence[Any]) -> OffsetRange:
        """Return the range of a stored form.

        Args:
            values: `[topic, partition, from, until]`.

        Raises:
            ValueError: there are not exactly four values, or a number is none.
        """
        topic, partition, from_offset, until_offset = values
        return OffsetRange(str(topic), int(partition), int(from_offset), int(until_offset))

    def __str__(self) -> str:
        return f"OffsetRange(topic: {self.topic}, partition: {self.partition}, range: [{self.fromOffset} -> {self.untilOffset}])"


class PlannedRange(NamedTuple):
    """The offset range of one partition that a batch reads: from `begin` (included) to `until` (excluded)."""

    topic: str
    partition: int
    begin: int
    until: int


def stored_ranges(rows: object) -> list[PlannedRange] | None:
    """Return the ranges of a list of [topic, partition, begin, end], as plan data has them; None for any other value. Pure."""
    if not isinstance(rows, list):
        return None
    ranges: list[PlannedRange] = []
    for row in cast("list[object]", rows):
        match row:
            case [str(topic), int(partition), int(begin), int(until)]:
                ranges.append(PlannedRange(topic, partition, begin, until))
            case _:
                return None
    return ranges


@dataclass(frozen=True, slots=True)
class UnreadableRange:
    """Offsets from `begin` (included) to `until` (excluded) whose records cannot be read. `reason`: a clause."""

    topic: str
    partition: int
    begin: int
    until: int
    reason: str


@dataclass(frozen=True, slots=True)
class LostRange:
    """Lost records of a partition: no batch has read or will read the offsets [lost_from, lost_until). Immutable.

    Attributes:
        topic: the topic.
        partition: the partition's number.
        lost_from: the first lost offset.
        lost_until: the offset after the last lost one; None for all later offsets.
        cause: "retention", "truncation", "recreation", "deletion", "removed" (a Log has fewer records than planned) or "reset".
        detail: the event, as a text for people.
    """

    topic: str
    partition: int
    lost_from: int
    lost_until: int | None
    cause: str
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the stored form, one entry of the ledger."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from": self.lost_from,
            "until": self.lost_until,
            "cause": self.cause,
            "detail": self.detail,
        }

    @staticmethod
    def from_json(entry: Mapping[str, Any]) -> LostRange:
        return LostRange(entry["topic"], entry["partition"], entry["from"], entry["until"], entry["cause"], entry["detail"])


@runtime_checkable
class HasOffsetRanges(Protocol):
    """An object that has the offset ranges of a batch: a KafkaRDD or a LogRDD.

    Example:
        stream.foreachRDD(lambda rdd: print(rdd.offsetRanges()) if isinstance(rdd, HasOffsetRanges) else None)
    """

    def offsetRanges(self) -> list[OffsetRange]:
        """Return the offset ranges that were planned."""
        ...


def skipped_between(until_offsets: Mapping[Partition, int], ranges: Iterable[OffsetRange], lost: Iterable[LostRange]) -> list[str]:
    """Return the offsets that lie between the ends of one plan and the ranges of the next plan. Pure.

    Not reported are partitions that only one of the plans has, partitions with a loss, and offsets that are read again.

    Args:
        until_offsets: partition → end in the first plan.
        ranges: the ranges of the next plan.
        lost: the losses of the next plan.

    Returns:
        The skipped offsets as texts, for example `orders-0 [100, 200)`.
    """
    explained = {(entry.topic, entry.partition) for entry in lost}
    begins = {(r.topic, r.partition): r.fromOffset for r in ranges}
    skipped = [(p, until_offsets[p], at) for p, at in begins.items() if p not in explained and until_offsets.get(p, at) < at]
    return [f"{topic}-{number} [{until}, {at})" for (topic, number), until, at in skipped]


def describe_offsets(offsets: Mapping[Partition, int], most: int = 5) -> str:
    """Return the offsets in words, as `orders-0 at 10, orders-1 at 12`.

    Args:
        offsets: partition → offset.
        most: the most partitions to name. If there are more, the text ends with the number of all.
    """
    shown = [f"{topic}-{number} at {at}" for (topic, number), at in sorted(offsets.items())]
    return ", ".join(shown[:most]) + (f" … ({len(shown)} in all)" if len(shown) > most else "")


@dataclass(frozen=True, slots=True, order=True)
class SkippedRecord:
    """A record that a batch leaves out. The ranges of its plan do not change. Immutable.

    Attributes:
        stream: the number of its stream in the stored plan of the batch.
        topic, partition, offset: its place.
        read_by: the outputs of the batch that had succeeded with the record before it was left out. They do not run again.
        outputs: the same outputs, in words; empty in records of an older kstream.
    """

    stream: int
    topic: str
    partition: int
    offset: int
    read_by: tuple[int, ...] = ()
    outputs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"

    @property
    def place(self) -> tuple[int, str, int, int]:
        """The record without what became of it: stream, topic, partition, offset."""
        return self.stream, self.topic, self.partition, self.offset

    def to_json(self) -> dict[str, Any]:
        """Return the stored form: a JSON object, with `read_by` and `outputs` only if an output had read the record."""
        fields: dict[str, Any] = {"stream": self.stream, "topic": self.topic, "partition": self.partition, "offset": self.offset}
        more = {"read_by": list(self.read_by), "outputs": list(self.outputs)}
        return {**fields, **{name: value for name, value in more.items() if value}}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> SkippedRecord:
        place = fields["stream"], fields["topic"], fields["partition"], fields["offset"]
        return SkippedRecord(*place, tuple(fields.get("read_by", ())), tuple(fields.get("outputs", ())))
