"""KafkaPlan: a direct stream's part of a batch, its stored form, and the comparisons of plans at a restart. Pure.

    {"kind": "kafka",
     "ranges": [[topic, partition, from, until], …],    all partitions of the stream, empty ranges included, sorted by topic and number
     "leader_epochs": [epoch or null, …],               for range i: the epoch in the leader's answer about the end of the log
     "from_epochs": [epoch or null, …],                 for range i: the epoch under which its beginning was reached, from the plan before
     "topic_ids": {topic: topic id} or null}            null if the brokers have no topic ids

Four entries are stored only if they are needed: `"ahead": [[topic, partition], …]` while a given start offset is past the log's end,
`"until": [[topic, partition, offset], …]` in a bounded run as soon as its stopping offsets are known, `"lost": [{…}, …]` for losses
found while planning, and `"packing": [tasks, records a task]` if an output needs each try to divide the records in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kstream.batch import Json, SkippedRecord
from kstream.batch.plan import RangePlan
from kstream.offsets import offset_range
from kstream.offsets.offset_range import LostRange, OffsetRange, Partition
from kstream_kafka.planning.packing import Packing, RangeSplit

KAFKA = "kafka"
"""The kind of these plans."""


@dataclass(frozen=True)
class KafkaPlan(RangePlan):
    """The part of a direct stream in one batch. Immutable: any thread. The next plan begins where the ranges of this one end.

    Attributes:
        ranges: one range for each partition of the stream, empty ranges included, sorted by topic and number.
        leader_epochs: for each range, the leader epoch in the answer about the log's end; None if it is unknown.
        from_epochs: for each range, the leader epoch under which its first offset was reached; None if it is unknown.
        topic_ids: topic → topic id; empty if the brokers have no ids.
        ahead: partitions whose given start is past the log's end. They wait with an empty range.
        stopping_offsets: where a bounded run ends; None while that is unknown, and in a run without stopping offsets.
        lost: losses that were found while planning.
        skipped: the records that are left out of the ranges. They are not part of the stored form.
        packing: how the ranges are distributed over tasks; None for the settings of the driver that runs the batch.
    """

    ranges: Sequence[OffsetRange]
    leader_epochs: Sequence[int | None]
    from_epochs: Sequence[int | None]
    topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    ahead: frozenset[Partition] = frozenset()
    stopping_offsets: Mapping[Partition, int] | None = None
    lost: Sequence[LostRange] = ()
    skipped: Collection[SkippedRecord] = ()
    packing: Packing | None = None

    @staticmethod
    def without_epochs(ranges: Sequence[OffsetRange], topic_ids: Mapping[str, str] | None = None) -> KafkaPlan:
        """Return a plan of ranges whose leader epochs are unknown. Without topic ids, those are unknown, too."""
        unknown = [None] * len(ranges)
        return KafkaPlan(ranges, unknown, unknown, topic_ids or {})

    @property
    def splits(self) -> list[RangeSplit]:
        """The ranges with their epochs, before they are packed into tasks."""
        return [RangeSplit(*row) for row in zip(self.ranges, self.leader_epochs, self.from_epochs, strict=True)]

    @property
    def until_epochs(self) -> dict[Partition, int | None]:
        """The leader epoch under which each partition's `untilOffset` was reached; None if it is unknown.

        For an empty range that is the epoch of its beginning, if known, because the range reads nothing. The epoch in the leader's answer
        may be that of a log that was cut below the offset and has grown again.
        """
        rows = zip(self.ranges, self.from_epochs, self.leader_epochs, strict=True)
        return {(r.topic, r.partition): begun if begun is not None and not r.count() else now for r, begun, now in rows}

    def encode(self) -> dict[str, Json]:
        """Return the stored form, as described at the top of this module."""
        data: dict[str, Json] = {
            "kind": KAFKA,
            "ranges": [r.to_json() for r in self.ranges],
            "leader_epochs": list(self.leader_epochs),
            "from_epochs": list(self.from_epochs),
            "topic_ids": dict(self.topic_ids) or None,
        }
        if self.ahead:
            data["ahead"] = [list(p) for p in sorted(self.ahead)]
        if self.stopping_offsets is not None:
            data["until"] = [[*p, offset] for p, offset in sorted(self.stopping_offsets.items())]
        if self.lost:
            data["lost"] = [lost.to_json() for lost in self.lost]
        if self.packing is not None:
            data["packing"] = [self.packing.max_tasks, self.packing.max_records_per_task]
        return data

    @staticmethod
    def decode(data: Mapping[str, Json]) -> KafkaPlan:
        """Return the plan of a stored form. It may lack `kind` and `from_epochs`, as the plans of older versions do.

        Args:
            data: the result of `encode`.
        """
        until = data.get("until")
        ranges = [OffsetRange.from_json(r) for r in data["ranges"]]
        unknown = [None] * len(ranges)
        return KafkaPlan(
            ranges,
            data.get("leader_epochs") or unknown,
            data.get("from_epochs") or unknown,
            data.get("topic_ids") or {},
            frozenset((str(topic), int(number)) for topic, number in data.get("ahead", ())),
            None if until is None else {(str(t), int(n)): int(offset) for t, n, offset in until},
            [LostRange.from_json(entry) for entry in data.get("lost", ())],
            packing=Packing(*map(int, data["packing"])) if "packing" in data else None,
        )


def skipped_between(before: KafkaPlan, after: KafkaPlan) -> list[str]:
    """Return the offsets that lie between two consecutive plans of a stream and are in neither. Pure.

    Not reported are partitions that only one of the plans has, recreated topics, partitions with a loss in `after`, and offsets that are
    read again. A partition that only one plan has is new, was deleted, left the subscription or came back to it.

    Args:
        before: a plan.
        after: the next plan of the stream.

    Returns:
        The skipped offsets as texts, for example `orders-0 [100, 200)`.
    """
    recreated = {topic for topic, topic_id in after.topic_ids.items() if before.topic_ids.get(topic, topic_id) != topic_id}
    kept = [r for r in after.ranges if r.topic not in recreated]
    return offset_range.skipped_between(before.until_offsets, kept, after.lost)


# -- kept offsets: the offsets of topics and partitions that left the list of the stream
#
# They have the form of a plan that reads nothing: empty ranges at the next offsets, with leader epochs and topic ids. `newest` is always
# the newest plan of the stream, and its offsets win over kept offsets.

Reads = Callable[[Partition], bool]
"""A function that returns whether the stream reads a partition now."""


def still_kept(newest: KafkaPlan, kept: KafkaPlan | None) -> KafkaPlan:
    """Return the kept offsets that are still valid, as an empty plan.

    Kept offsets of a partition are dropped if the newest plan has the partition, or if it has another id for the topic. Another id means
    that the topic was recreated.

    Args:
        newest: the newest stored plan.
        kept: the offsets kept before it, if there are any.
    """
    if kept is None:
        return _nothing()
    recreated = {topic for topic, topic_id in kept.topic_ids.items() if newest.topic_ids.get(topic, topic_id) != topic_id}
    planned = newest.until_offsets
    return _empty_plan_at(kept, [(topic, n) for topic, n in kept.until_offsets if (topic, n) not in planned and topic not in recreated])


def left_behind(newest: KafkaPlan, kept: KafkaPlan | None, reads: Reads) -> KafkaPlan | None:
    """Return the offsets that must be kept, because the newest plan lacks them or the next plans will lack them.

    Args:
        newest: the newest stored plan.
        kept: the offsets kept before it, if there are any.
        reads: returns whether the stream reads a partition now.

    Returns:
        The offsets of `still_kept`, and the offsets of those partitions of the newest plan that the stream no longer reads. Kept offsets of
        partitions that the stream reads again are included: they stay until a plan has them. None if there are no such offsets.
    """
    old, leaving = still_kept(newest, kept), _empty_plan_at(newest, [p for p in newest.until_offsets if not reads(p)])
    splits = sorted([*old.splits, *leaving.splits], key=lambda split: (split.range.topic, split.range.partition))
    if not splits:
        return None
    epochs = [split.leader_epoch for split in splits]
    return KafkaPlan([p.range for p in splits], epochs, epochs, {**old.topic_ids, **leaving.topic_ids}, old.ahead | leaving.ahead)


def offsets_of_another_stream(newest: KafkaPlan, kept: KafkaPlan | None, reads: Reads) -> dict[Partition, int]:
    """Return all stored offsets if the stream reads none of their partitions, as if they were another stream's; otherwise an empty dict.

    Args:
        newest: the newest stored plan.
        kept: the offsets kept before it, if there are any.
        reads: returns whether the stream reads a partition now.

    Returns:
        partition → next offset, from the plan and from `still_kept`.
    """
    stored = {**newest.until_offsets, **still_kept(newest, kept).until_offsets}
    return {} if any(map(reads, stored)) else stored


def _nothing() -> KafkaPlan:
    """Return a plan without partitions."""
    return KafkaPlan((), (), ())


def _empty_plan_at(plan: KafkaPlan, partitions: Collection[Partition]) -> KafkaPlan:
    """Return a plan of empty ranges at the ends that `plan` has for these partitions, with the epochs under which they were reached."""
    chosen, topics = sorted(partitions), {topic for topic, _ in partitions}
    until_offsets, reached = plan.until_offsets, plan.until_epochs
    epochs = [reached[p] for p in chosen]
    ids = {topic: topic_id for topic, topic_id in plan.topic_ids.items() if topic in topics}
    ranges = [OffsetRange(*p, until_offsets[p], until_offsets[p]) for p in chosen]
    return KafkaPlan(ranges, epochs, epochs, ids, plan.ahead & set(chosen))
