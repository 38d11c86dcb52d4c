"""Downtime: the by-timestamp policy for batches that were missed while the driver was down.

Kafka answers, for one time a request, the first offset with that timestamp or a later one. So batch T holds the records of
[T − interval, T), and windows come out as if the driver had been up. With LogAppendTime that is exact. With CreateTime the record's own
clock decides. A late record goes to a later batch. A record from the future pins its partition: no time up to now is behind it. The first
batch on time after the restart takes the rest of that log. Nothing is lost, and `pinned` names these partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kstream.batch_time import Duration, Time
from kstream_kafka.client.ports import DriverClient, LogEnd, Partition
from kstream_kafka.source.partition_offsets import LogEndSnapshot

logger = logging.getLogger("kstream.kafka")

LATE_MS = 100
"""A batch planned so long after its time is late."""
MOST_LATE_MS = 60_000
"""So long after the last missed batch, a late batch has another cause. It takes the log ends, or a pinned partition would wait."""

OffsetsForTime: TypeAlias = Mapping[Partition, "int | None"]
"""For each partition the first offset with a timestamp or a later one; None if there is none."""
RequestOffsets: TypeAlias = Callable[[Sequence[int]], Sequence[OffsetsForTime]]
"""Times in ms → the answer for each time."""
Ends: TypeAlias = dict[Partition, int]


def ends_at_times(request: RequestOffsets, times_ms: Sequence[int], latest: Mapping[Partition, LogEnd]) -> dict[int, Ends]:
    """Find where each log ended at each of the times.

    Asks for the first and the last time, then for the middle of each interval with a difference. An idle night costs a few requests, a busy
    one a request for each time. That is correct because the offset never falls when the time rises.

    Args:
        request: asks the brokers.
        times_ms: the times, rising.
        latest: the ends of the logs now, which limit all answers.
    """
    found: dict[int, Ends] = {}

    def ask(indices: Sequence[int]) -> None:
        times = [times_ms[i] for i in indices]
        for ms, answer in zip(times, request(times), strict=True):
            found[ms] = {p: end.offset if (at := answer.get(p)) is None else min(at, end.offset) for p, end in latest.items()}

    if not times_ms:
        return found
    ask(sorted({0, len(times_ms) - 1}))
    open_gaps = [(0, len(times_ms) - 1)]
    while open_gaps:
        halves: list[tuple[int, int, int]] = []
        for low, high in open_gaps:
            if high - low < 2:
                continue
            if found[times_ms[low]] == found[times_ms[high]]:
                found.update({times_ms[i]: found[times_ms[low]] for i in range(low + 1, high)})
            else:
                halves.append((low, (low + high) // 2, high))
        ask([middle for _, middle, _ in halves])
        open_gaps = [gap for low, middle, high in halves for gap in ((low, middle), (middle, high))]
    return found


def times_with_records(times_ms: Sequence[int], ends: Mapping[int, Ends], current: Mapping[Partition, int]) -> list[int]:
    """Return the times at which a log ended further on than at the time before (than `current` at the first time)."""
    busy: list[int] = []
    position = dict(current)
    for ms in times_ms:
        moved = {p: at for p, at in ends[ms].items() if at > position.get(p, 0)}
        if moved:
            position.update(moved)
            busy.append(ms)
    return busy


def pinned(in_future: OffsetsForTime, latest: Mapping[Partition, LogEnd]) -> dict[Partition, int]:
    """Return the partitions with a record from the future, and its offset.

    Args:
        in_future: the answer for a time later than now.
        latest: the ends of the logs.
    """
    return {p: at for p, at in in_future.items() if at is not None and p in latest and at < latest[p].offset}


@dataclass
class Downtime:
    """The batches that were missed, and those that are late because of the missed ones. Created once, at a restart.

    They get the records of their time. The first batch that is on time again takes the end of every log, as always.

    Attributes:
        latest: the ends of the logs at the restart.
        caught_up_ms: when the last missed batch so far was planned.
        busy: the times with records.
        pinned: the offsets of records from the future.
        ends: for each time in ms, where each log ended then.
    """

    latest: Mapping[Partition, LogEnd]
    caught_up_ms: int
    busy: Sequence[Time]
    pinned: Mapping[Partition, int]
    ends: dict[int, Ends] = field(default_factory=dict[int, Ends])

    @staticmethod
    def query(client: DriverClient, snapshot: LogEndSnapshot, times: Sequence[Time], now_ms: int, interval: Duration) -> Downtime:
        """Ask the brokers about the missed times. Blocks for all answers. Logs partitions with a record from the future.

        Args:
            client: the driver's client.
            snapshot: the next offsets and the log ends of now.
            times: the missed batch times, rising.
            now_ms: the wall clock.
            interval: the batch interval.
        """
        partitions = list(snapshot.current)
        future_ms = max(now_ms, times[-1].milliseconds if times else 0) + interval.milliseconds
        stray = pinned(client.at_times([future_ms], partitions)[0], snapshot.latest)
        for (topic, number), at in sorted(stray.items()):
            logger.warning(
                "%s-%d: offset %d has a timestamp in the future; records after it cannot be assigned by time and go to the next regular "
                "batch. message.timestamp.type=LogAppendTime, or correct clocks of the producers, would prevent it",
                topic,
                number,
                at,
            )
        stamps = [time.milliseconds for time in times]
        ends = ends_at_times(lambda ms: client.at_times(ms, partitions), stamps, snapshot.latest)
        busy = [Time(ms) for ms in times_with_records(stamps, ends, snapshot.current)]
        return Downtime(snapshot.latest, now_ms, busy, stray, ends)

    def covers(self, time: Time) -> bool:
        """Return whether the batch was missed."""
        return time.milliseconds in self.ends

    def snapshot(self, time: Time, current: Mapping[Partition, int], ahead: frozenset[Partition], now_ms: int) -> LogEndSnapshot:
        """Return the snapshot that a driver would have taken at `time`. Sends no request."""
        self.caught_up_ms = now_ms
        return _snapshot_at(current, self.latest, self.ends[time.milliseconds], ahead)

    def still_late(self, client: DriverClient, now: LogEndSnapshot, time: Time, now_ms: int) -> LogEndSnapshot | None:
        """Return the snapshot of its time for a late batch after the missed ones; None for a batch on time. Blocks on the brokers."""
        if now_ms - time.milliseconds < LATE_MS or now_ms - self.caught_up_ms > MOST_LATE_MS:
            return None
        return _snapshot_at(now.current, now.latest, client.at_times([time.milliseconds], list(now.current))[0], now.ahead)


def _snapshot_at(
    current: Mapping[Partition, int], latest: Mapping[Partition, LogEnd], ends: OffsetsForTime, ahead: frozenset[Partition]
) -> LogEndSnapshot:
    """Return a snapshot with logs that end at `ends`, between the next offset and the real end.

    The real end stays if the log is shorter than the offset reached: that is an error for the planner.
    """
    then: dict[Partition, LogEnd] = {}
    for p, end in latest.items():
        at = ends.get(p)
        then[p] = end if at is None else LogEnd(min(end.offset, max(at, current[p])), end.leader_epoch)
    return LogEndSnapshot(current, then, frozenset(p for p in ahead if p in latest and latest[p].offset < current[p]))
