"""Kept offsets: the offsets of a direct stream for topics and partitions that left its list. Pure: the functions read and return plans.

Kept offsets have the form of a plan that reads nothing: empty ranges at the next offsets, with leader epochs and topic ids. `newest` is
always the newest plan of the stream, and its offsets win over kept offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kstream_kafka.client.ports import Partition
from kstream_kafka.planning.offset_range import OffsetRange
from kstream_kafka.planning.plan import KafkaPlan

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


def has_nothing_of(newest: KafkaPlan, kept: KafkaPlan | None, reads: Reads) -> dict[Partition, int]:
    """Return all stored offsets if the stream reads none of their partitions; otherwise an empty dict.

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
