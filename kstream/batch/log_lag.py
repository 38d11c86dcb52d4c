"""LogLag: the records of an input after the last batch that has succeeded without a gap, up to the ends of its logs; in seconds, too. Pure.

No request is sent for it. Each plan knows the ends of the logs, and so at which moment a log had which end. The record at an offset came in
between two such moments.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kstream.batch.input_progress import InputProgress, Offsets, lag_between

_NEW = -1
"""Below each end of a log: that of a partition which was not there yet."""
MOST_POINTS = 32
"""How many moments are kept. The newest sixteen are consecutive; older ones are the further apart, the older they are."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a partition. `seconds`: for how long the oldest of its records has been in the log; 0.0 without one."""

    topic: str
    partition: str
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TopicLag:
    """The lag of a topic. `partitions`: how many have a known end; `records`: the sum of their lags; `seconds`: the largest of them."""

    topic: str
    partitions: int
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LogLag:
    """The progress of one input: its newest plan, and the ends of its logs at this plan and at some before it. Immutable.

    Attributes:
        plan: the progress of the newest plan that knows the ends of the logs.
        points: (milliseconds since the Unix epoch, ends of the logs at that moment), oldest first.
        completed: where the first batch begins that has not succeeded; the end of the plan if there is none.
    """

    plan: InputProgress
    points: tuple[tuple[int, Offsets], ...]
    completed: Offsets

    @property
    def at_ms(self) -> int:
        """When the logs had their newest ends, in milliseconds since the Unix epoch."""
        return self.points[-1][0]

    @property
    def latest(self) -> Offsets:
        """The newest ends of the logs."""
        return self.points[-1][1]

    @property
    def records(self) -> int:
        """The records after the last batch that has succeeded without a gap."""
        return self.unplanned if self.completed is self.plan.end_offsets else lag_between(self.completed, self.latest)

    @property
    def unplanned(self) -> int:
        """The records after the newest plan: no batch has them yet."""
        return self.plan.lag or 0

    def by_partition(self, now_ms: int) -> Iterator[PartitionLag]:
        """Compute the lag of each partition whose end is known.

        Args:
            now_ms: the moment, by the clock of the points.
        """
        for topic, offsets, ends, past in self._topics():
            for partition, completed in offsets.items():
                end = ends.get(partition)
                if end is None:
                    continue
                since = None if end <= completed else _reached_ms(past, partition, completed)
                yield PartitionLag(topic, partition, max(0, end - completed), 0.0 if since is None else max(0, now_ms - since) / 1000)

    def by_topic(self, now_ms: int) -> Iterator[TopicLag]:
        """Compute the lag of each topic with a known end, for less than `by_partition` costs: it makes nothing for a partition.

        Args:
            now_ms: the moment, by the clock of the points.
        """
        for topic, offsets, ends, past in self._topics():
            partitions = records = 0
            since: int | None = None
            passed: Mapping[str, int] = {}  # the ends at the first point from `since` on: a log that passes later has waited less
            for partition, completed in offsets.items():
                end = ends.get(partition)
                if end is None:
                    continue
                partitions += 1
                if end <= completed:
                    continue
                records += end - completed
                if since is not None and passed.get(partition, _NEW) <= completed:
                    continue
                reached = _reached_ms(past, partition, completed)
                if reached is not None and (since is None or reached < since):
                    since, passed = reached, past[bisect_left(past, reached, key=lambda point: point[0])][1]
            if partitions:
                yield TopicLag(topic, partitions, records, 0.0 if since is None else max(0, now_ms - since) / 1000)

    def _topics(self) -> Iterator[tuple[str, Mapping[str, int], Mapping[str, int], list[tuple[int, Mapping[str, int]]]]]:
        """Yield each topic with its completed offsets, the ends of its logs now, and those at each point."""
        for topic, offsets in self.completed.items():
            past = [(at_ms, found) for at_ms, all_ends in self.points if (found := all_ends.get(topic)) is not None]
            yield topic, offsets, self.latest.get(topic, {}), past


def lag_after(known: LogLag | None, progress: InputProgress, at_ms: int, before_ms: int | None = None) -> LogLag | None:
    """Return the lag after a plan, as if all its batches had succeeded; the known one if the plan does not know the ends of the logs.

    Pure; costs the same for any past.

    Args:
        known: the lag before; None before the first plan.
        progress: the progress of the input in the batch.
        at_ms: when the batch was planned, in milliseconds since the Unix epoch.
        before_ms: the newest batch of an earlier driver. The logs are taken to have ended then where the first plan begins: so the lag
            after a downtime counts the downtime.
    """
    latest = progress.latest_offsets
    if latest is None:
        return known
    if known is None:
        earlier: tuple[tuple[int, Offsets], ...] = () if before_ms is None else ((before_ms, progress.start_offsets),)
    else:
        earlier = known.points
    points = (*earlier, (at_ms, latest))
    return LogLag(progress, _thinned(points) if len(points) > MOST_POINTS else points, progress.end_offsets)


def completed_offsets(planned: Offsets, unfinished: Iterable[InputProgress]) -> Offsets:
    """Return where the first batch of each partition begins that has not succeeded; where the next plan begins, if there is none. Pure.

    It looks at no further batch once it has found all partitions, which is after the first one mostly.

    Args:
        planned: where the next plan begins.
        unfinished: the progress of each batch that has not succeeded, oldest first.
    """
    found: dict[str, dict[str, int]] = {}
    left = {(topic, partition) for topic, offsets in planned.items() for partition in offsets}
    for progress in unfinished:
        for topic, offsets in progress.start_offsets.items():
            known = found.setdefault(topic, {})
            for partition, offset in offsets.items():
                known.setdefault(partition, offset)
                left.discard((topic, partition))
        if not left:
            break
    return {topic: {**planned.get(topic, {}), **found.get(topic, {})} for topic in {**planned, **found}} if found else planned


def _thinned(points: Sequence[tuple[int, Offsets]]) -> tuple[tuple[int, Offsets], ...]:
    """Return the points without every second one of the older half."""
    half = len(points) // 2
    return (*points[:half:2], *points[half:])


def _reached_ms(past: Sequence[tuple[int, Mapping[str, int]]], partition: str, offset: int) -> int | None:
    """Return when the log of a partition grew beyond an offset, estimated between two points; None if it did not, or is not known.

    If it was beyond the offset at the first point, this is the moment of that point: the record came in then at the latest. The ends are
    taken to rise; where a log was cut off, the estimate is of one of its rises.
    """
    index = bisect_right(past, offset, key=lambda point: point[1].get(partition, _NEW))
    if index == len(past):
        return None
    after_ms, after = past[index][0], past[index][1][partition]
    before = past[index - 1][1].get(partition) if index else None
    if before is None:
        return after_ms
    before_ms = past[index - 1][0]
    return before_ms + (after_ms - before_ms) * (offset - before) // (after - before)
