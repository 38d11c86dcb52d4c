"""Downtime: the by-timestamp policy for batches that were missed while the driver was down.

For a time, Kafka returns the first offset with that timestamp or a later one. A request has one time. So batch T holds the records of
[T − interval, T), and windows have the same results as if the driver had been up. With LogAppendTime that is exact. With CreateTime the
producer's clock decides, and a late record goes to a later batch.

A record with a timestamp in the future pins its partition: for every time up to now, the log seems to end before that record. The first
regular batch after the restart reads the rest of that log. No record is lost, and `pinned` names these partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kstream.batch_time import Duration, Time
from kstream.offsets.log_ends import Ends, OffsetsForTime, ends_at_times, times_with_records
from kstream.offsets.offset_range import Partition
from kstream_kafka.client.ports import DriverClient, LogEnd
from kstream_kafka.planning.missing_partitions import check_none_missing
from kstream_kafka.planning.partition_offsets import LogEndSnapshot

logger = logging.getLogger("kstream.kafka")

LATE_MS = 100
"""Milliseconds after its batch time from which on a batch is planned late."""
MOST_LATE_MS = 60_000
"""Milliseconds after the last missed batch. A batch that is late after that is late for another reason. It reads up to the ends of the
logs, because a pinned partition would wait otherwise."""


def pinned(in_future: OffsetsForTime, latest: Mapping[Partition, LogEnd]) -> dict[Partition, int]:
    """Find the partitions with a record from the future. Pure.

    Args:
        in_future: the brokers' answer for a time later than now.
        latest: the ends of the logs.

    Returns:
        partition → offset of its first record from the future.
    """
    return {p: at for p, at in in_future.items() if at is not None and p in latest and at < latest[p].offset}


@dataclass
class Downtime:
    """Missed batches, and the batches that are late because of them. Created by `query` when batches were missed. One thread at a time.

    Each of these batches reads the records of its own time. The first batch that is on time again reads up to the end of every log.

    Attributes:
        latest: the ends of the logs when `query` asked.
        caught_up_ms: the time at which the newest missed batch was planned, in ms.
        busy: the missed batch times with records.
        pinned: partition → offset of its first record from the future.
        ends: missed batch time in ms → where each log ended then.
    """

    latest: Mapping[Partition, LogEnd]
    caught_up_ms: int
    busy: Sequence[Time]
    pinned: Mapping[Partition, int]
    ends: dict[int, Ends] = field(default_factory=dict[int, Ends])

    @staticmethod
    def query(client: DriverClient, snapshot: LogEndSnapshot, times: Sequence[Time], now_ms: int, interval: Duration) -> Downtime:
        """Ask the brokers about the missed batch times. Blocks for all answers. Logs partitions with a record from the future.

        Args:
            client: the driver's client.
            snapshot: the next offsets and the log ends of now.
            times: the missed batch times, rising.
            now_ms: the wall clock, in ms.
            interval: the batch interval.

        Raises:
            TopicNotAvailableError: a partition is missing.
            KafkaError: an error of the client.
        """
        check_none_missing(snapshot.missing)
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
        log_ends = {p: end.offset for p, end in snapshot.latest.items()}
        ends = ends_at_times(lambda ms: client.at_times(ms, partitions), stamps, log_ends)
        busy = [Time(ms) for ms in times_with_records(stamps, ends, snapshot.current)]
        return Downtime(snapshot.latest, now_ms, busy, stray, ends)

    def covers(self, time: Time) -> bool:
        """Return whether the batch is one of the missed ones that `query` was asked about."""
        return time.milliseconds in self.ends

    def snapshot(self, time: Time, current: Mapping[Partition, int], ahead: frozenset[Partition], now_ms: int) -> LogEndSnapshot:
        """Return the snapshot that a driver would have taken at the time of a missed batch. Sends no request.

        It notes `now_ms`, from which on `still_late` counts.

        Args:
            time: the batch time, for which `covers` is true.
            current: the next offset of each partition.
            ahead: partitions whose given start is past the end of their log.
            now_ms: the wall clock, in ms.
        """
        self.caught_up_ms = now_ms
        return _snapshot_at(current, self.latest, self.ends[time.milliseconds], ahead)

    def still_late(self, client: DriverClient, now: LogEndSnapshot, time: Time, now_ms: int) -> LogEndSnapshot | None:
        """Return the snapshot for a batch after the missed ones that is still late. Blocks on the brokers if it is.

        Args:
            client: the driver's client.
            now: the snapshot of now.
            time: the batch time.
            now_ms: the wall clock, in ms.

        Returns:
            The snapshot of the batch's own time. None if the batch is on time, or late for another reason: see LATE_MS and MOST_LATE_MS.

        Raises:
            TopicNotAvailableError: a partition is missing.
            KafkaError: an error of the client.
        """
        if now_ms - time.milliseconds < LATE_MS or now_ms - self.caught_up_ms > MOST_LATE_MS:
            return None
        check_none_missing(now.missing)
        return _snapshot_at(now.current, now.latest, client.at_times([time.milliseconds], list(now.current))[0], now.ahead)


def _snapshot_at(
    current: Mapping[Partition, int], latest: Mapping[Partition, LogEnd], ends: OffsetsForTime, ahead: frozenset[Partition]
) -> LogEndSnapshot:
    """Return a snapshot in which each log ends at `ends`, but not before the next offset and not after its real end in `latest`.

    A log without an offset in `ends` ends at its real end: it has no record of that time or later. If the real end is before the next
    offset, it stays, and the planner raises an error about it.
    """
    then: dict[Partition, LogEnd] = {}
    for p, end in latest.items():
        at = ends.get(p)
        then[p] = end if at is None else LogEnd(min(end.offset, max(at, current[p])), end.leader_epoch)
    return LogEndSnapshot(current, then, frozenset(p for p in ahead if p in latest and latest[p].offset < current[p]))
