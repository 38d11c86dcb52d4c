"""Downtime: what the by-timestamp policy knows about the batches missed while the driver was down, and those just after.

Made once at a restart. Batches that were missed, and those that come late because so many had to be made up for, get the records of
their time; the first batch that is on time again takes the end of every log, as always.

As of a batch time: where each log ended then. The `by-timestamp` policy for batches missed while the driver was down.

Kafka tells, for one time a request, the first offset of that timestamp or a later one. Batch T then holds what was written in
[T − interval, T), and windows come out as if the driver had been up. With LogAppendTime that is exact. With CreateTime a record's
own clock decides: one that is late goes to a later batch, and one from the future pins its partition – no time up to now lies
behind it – until the first batch after the restart takes the rest of the log. Nothing is lost, and `pinned` says which.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kstream.batch_time import Duration, Time
from kstream_kafka.client.ports import DriverClient, LogEnd, Partition
from kstream_kafka.source.partition_offsets import Survey

logger = logging.getLogger("kstream.kafka")

LATE_MS = 100
"""A batch planned so long after its time is no longer on time."""
MOST_LATE_MS = 60_000
"""So long after the last missed batch the planner is slow for another reason: back to the ends of the logs, or a pinned one would wait."""


Answer: TypeAlias = Mapping[Partition, "int | None"]
Ask: TypeAlias = Callable[[Sequence[int]], Sequence[Answer]]
"""Times in ms → for each, per partition the first offset of that time or later (None: there is none)."""
Ends: TypeAlias = dict[Partition, int]


def ends_at_times(ask: Ask, times_ms: Sequence[int], latest: Mapping[Partition, LogEnd]) -> dict[int, Ends]:
    """Where each log ended at each of the times (rising), never past `latest`.

    Asks for the first and the last time, then in the middle of what differs: an idle night costs a few questions, a busy one a
    question for each time. That is sound because answers only rise with the time asked for.
    """
    found: dict[int, Ends] = {}

    def look(indices: Sequence[int]) -> None:
        times = [times_ms[i] for i in indices]
        for ms, answer in zip(times, ask(times), strict=True):
            found[ms] = {p: end.offset if (at := answer.get(p)) is None else min(at, end.offset) for p, end in latest.items()}

    if not times_ms:
        return found
    look(sorted({0, len(times_ms) - 1}))
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
        look([middle for _, middle, _ in halves])
        open_gaps = [gap for low, middle, high in halves for gap in ((low, middle), (middle, high))]
    return found


def times_with_records(times_ms: Sequence[int], ends: Mapping[int, Ends], current: Mapping[Partition, int]) -> list[int]:
    """The times at which some log ended further on than at the time before (`current` before the first)."""
    busy: list[int] = []
    position = dict(current)
    for ms in times_ms:
        moved = {p: at for p, at in ends[ms].items() if at > position.get(p, 0)}
        if moved:
            position.update(moved)
            busy.append(ms)
    return busy


def pinned(in_future: Answer, latest: Mapping[Partition, LogEnd]) -> dict[Partition, int]:
    """Partitions with a record from the future, and its offset, by the answer to a time later than now."""
    return {p: at for p, at in in_future.items() if at is not None and p in latest and at < latest[p].offset}


@dataclass
class Downtime:
    """`ends[ms]`: where each log ended at that time. `caught_up_ms`: when the last missed batch so far was planned.
    `busy`: the times with something to read. `pinned`: offsets of stray records."""

    latest: Mapping[Partition, LogEnd]
    caught_up_ms: int
    busy: Sequence[Time]
    pinned: Mapping[Partition, int]
    ends: dict[int, Ends] = field(default_factory=dict[int, Ends])

    @staticmethod
    def look(client: DriverClient, survey: Survey, times: Sequence[Time], now_ms: int, interval: Duration) -> Downtime:
        """Asks the brokers; blocks for all answers. Partitions with a record from the future are logged."""
        partitions = list(survey.current)
        future_ms = max(now_ms, times[-1].milliseconds if times else 0) + interval.milliseconds
        stray = pinned(client.at_times([future_ms], partitions)[0], survey.latest)
        for (topic, number), at in sorted(stray.items()):
            logger.warning(
                "%s-%d: the record at offset %d has a timestamp in the future, so that no time up to now lies behind it: what was written "
                "after it goes to the first batch on time. message.timestamp.type=LogAppendTime or the producers' clocks would cure it",
                topic, number, at,
            )  # fmt: skip
        stamps = [time.milliseconds for time in times]
        ends = ends_at_times(lambda ms: client.at_times(ms, partitions), stamps, survey.latest)
        busy = [Time(ms) for ms in times_with_records(stamps, ends, survey.current)]
        return Downtime(survey.latest, now_ms, busy, stray, ends)

    def covers(self, time: Time) -> bool:
        return time.milliseconds in self.ends

    def survey(self, time: Time, current: Mapping[Partition, int], ahead: frozenset[Partition], now_ms: int) -> Survey:
        """What a driver would have found at `time`, by what was asked at the restart."""
        self.caught_up_ms = now_ms
        return _as_of(current, self.latest, self.ends[time.milliseconds], ahead)

    def still_late(self, client: DriverClient, now: Survey, time: Time, now_ms: int) -> Survey | None:
        """For a batch after the missed ones: what there was at its time, or None if it is on time."""
        if now_ms - time.milliseconds < LATE_MS or now_ms - self.caught_up_ms > MOST_LATE_MS:
            return None
        return _as_of(now.current, now.latest, client.at_times([time.milliseconds], list(now.current))[0], now.ahead)


def _as_of(
    current: Mapping[Partition, int], latest: Mapping[Partition, LogEnd], ends: Mapping[Partition, int | None], ahead: frozenset[Partition]
) -> Survey:
    """A survey with logs that end at `ends`: never before the next offset, never past the real end, which stays what it is if the
    log is shorter than what was read – that is an error to be found by the planner."""
    then: dict[Partition, LogEnd] = {}
    for p, end in latest.items():
        at = ends.get(p)
        then[p] = end if at is None else LogEnd(min(end.offset, max(at, current[p])), end.leader_epoch)
    return Survey(current, then, frozenset(p for p in ahead if p in latest and latest[p].offset < current[p]))
