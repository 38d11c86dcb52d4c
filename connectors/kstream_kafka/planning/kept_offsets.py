"""What a direct stream keeps of its offsets when a topic or a partition leaves its list. Pure: stored plan data in, plan data out.

The form is that of a plan that reads nothing: empty ranges at the next offsets, with leader epochs and topic ids. `newest` is always the
newest plan of the stream. It wins over what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kstream_kafka.client.ports import Partition
from kstream_kafka.planning.offset_range import OffsetRange
from kstream_kafka.planning.plan import KafkaPlan

Reads = Callable[[Partition], bool]
"""Whether the stream reads this partition now."""


def still_kept(newest: KafkaPlan, kept: KafkaPlan | None) -> KafkaPlan:
    """Return the kept offsets that count. The newest plan wins, and a topic with another id in that plan is another topic."""
    if kept is None:
        return _nothing()
    anew = {t for t, number in kept.topic_ids.items() if newest.topic_ids.get(t, number) != number}
    planned = newest.ends
    return _standing(kept, [p for p in kept.ends if p not in planned and p[0] not in anew])


def left_behind(newest: KafkaPlan, kept: KafkaPlan | None, reads: Reads) -> KafkaPlan | None:
    """Return the offsets that the next plans will not have, or that no plan has yet.

    Args:
        newest: the newest stored plan.
        kept: what was kept before it.
        reads: whether the stream reads a partition now.

    Returns:
        The kept offsets that count, those of partitions that the stream reads again included: they stay until a plan has them. And the
        offsets of partitions of the newest plan that the stream no longer reads. None if there are none.
    """
    old, leaving = still_kept(newest, kept), _standing(newest, [p for p in newest.ends if not reads(p)])
    pieces = sorted([*old.pieces, *leaving.pieces], key=lambda piece: (piece.range.topic, piece.range.partition))
    if not pieces:
        return None
    epochs = [piece.leader_epoch for piece in pieces]
    return KafkaPlan([p.range for p in pieces], epochs, epochs, {**old.topic_ids, **leaving.topic_ids}, old.ahead | leaving.ahead)


def has_nothing_of(newest: KafkaPlan, kept: KafkaPlan | None, reads: Reads) -> dict[Partition, int]:
    """Return all stored offsets, of the plan and kept ones, if the stream reads none of their partitions; else an empty dict."""
    stored = {**newest.ends, **still_kept(newest, kept).ends}
    return {} if any(map(reads, stored)) else stored


def _nothing() -> KafkaPlan:
    return KafkaPlan((), (), ())


def _standing(plan: KafkaPlan, partitions: Collection[Partition]) -> KafkaPlan:
    """Empty ranges where these partitions of the plan end, under the epochs in which those offsets were reached."""
    chosen, topics = sorted(partitions), {topic for topic, _ in partitions}
    ends, reached = plan.ends, plan.end_epochs
    epochs = [reached[p] for p in chosen]
    ids = {topic: number for topic, number in plan.topic_ids.items() if topic in topics}
    ranges = [OffsetRange(*p, ends[p], ends[p]) for p in chosen]
    return KafkaPlan(ranges, epochs, epochs, ids, plan.ahead & set(chosen))
