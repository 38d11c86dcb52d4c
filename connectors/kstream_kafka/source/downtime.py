"""Downtime: what the by-timestamp policy knows about the batches missed while the driver was down, and those just after.

Made once at a restart. Batches that were missed, and those that come late because so many had to be made up for, get the records of
their time; the first batch that is on time again takes the end of every log, as always.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kstream.batch_time import Duration, Time
from kstream_kafka.client.ports import DriverClient, LogEnd, Partition
from kstream_kafka.source.offsets_for_times import Ends, ends_at_times, pinned, times_with_records
from kstream_kafka.source.partition_offsets import Survey

logger = logging.getLogger("kstream.kafka")

LATE_MS = 100
"""A batch planned so long after its time is no longer on time."""
MOST_LATE_MS = 60_000
"""So long after the last missed batch the planner is slow for another reason: back to the ends of the logs, or a pinned one would wait."""


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
