"""LogLag: how far an input is behind the ends of its logs, in records and in seconds.

No request is sent for it. Each plan knows the ends of the logs, and so at which moment a log had which end. The record at an offset came
in between two such moments.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kstream.batch import InputProgress, Offsets, lag_between

_NEW = -1
"""Below each end of a log: that of a partition which was not there yet."""
MOST_POINTS = 32
"""How many moments are kept. The newest sixteen are consecutive; older ones are the further apart, the older they are."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a partition. `seconds`: for how long the oldest record has been there that no batch has; 0.0 without such a record."""

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
    """The progress of one input: the end of its newest plan, and the ends of its logs at this plan and at some before it. Immutable.

    Attributes:
        planned: where the next plan begins.
        points: (milliseconds since the Unix epoch, ends of the logs at that moment), oldest first.
    """

    planned: Offsets
    points: tuple[tuple[int, Offsets], ...]

    @property
    def records(self) -> int:
        """The records in the logs that no batch has."""
        return lag_between(self.planned, self.points[-1][1])

    def by_partition(self, now_ms: int) -> Iterator[PartitionLag]:
        """Compute the lag of each partition whose end is known.

        Args:
            now_ms: the moment, by the clock of the points.
        """
        for topic, offsets, ends, past in self._topics():
            for partition, planned in offsets.items():
                end = ends.get(partition)
                if end is None:
                    continue
                since = None if end <= planned else _reached_ms(past, partition, planned)
                yield PartitionLag(topic, partition, max(0, end - planned), 0.0 if since is None else max(0, now_ms - since) / 1000)

    def by_topic(self, now_ms: int) -> Iterator[TopicLag]:
        """Compute the lag of each topic with a known end, for less than `by_partition` costs: it makes nothing for a partition.

        Args:
            now_ms: the moment, by the clock of the points.
        """
        for topic, offsets, ends, past in self._topics():
            partitions = records = 0
            since: int | None = None
            passed: Mapping[str, int] = {}  # the ends at the first point from `since` on: a log that passes its plan later has waited less
            for partition, planned in offsets.items():
                end = ends.get(partition)
                if end is None:
                    continue
                partitions += 1
                if end <= planned:
                    continue
                records += end - planned
                if since is not None and passed.get(partition, _NEW) <= planned:
                    continue
                reached = _reached_ms(past, partition, planned)
                if reached is not None and (since is None or reached < since):
                    since, passed = reached, past[bisect_left(past, reached, key=lambda point: point[0])][1]
            if partitions:
                yield TopicLag(topic, partitions, records, 0.0 if since is None else max(0, now_ms - since) / 1000)

    def _topics(self) -> Iterator[tuple[str, Mapping[str, int], Mapping[str, int], list[tuple[int, Mapping[str, int]]]]]:
        """Yield each topic with the ends of its plan, the ends of its logs now, and those at each point."""
        latest = self.points[-1][1]
        for topic, offsets in self.planned.items():
            past = [(at_ms, found) for at_ms, all_ends in self.points if (found := all_ends.get(topic)) is not None]
            yield topic, offsets, latest.get(topic, {}), past


def lag_after(known: LogLag | None, progress: InputProgress, at_ms: int, before_ms: int | None = None) -> LogLag | None:
    """Return the lag after a plan; the known one if the plan does not know the ends of the logs. Pure; costs the same for any past.

    Args:
        known: the lag before; None before the first plan.
        progress: the progress of the input in the batch.
        at_ms: when the batch was submitted, in milliseconds since the Unix epoch.
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
    return LogLag(progress.end_offsets, _thinned(points) if len(points) > MOST_POINTS else points)


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
