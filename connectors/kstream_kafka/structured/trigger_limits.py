"""TriggerLimits: how many of the records in the logs a micro-batch may have, by the options of its query."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from kstream.batch_time import Duration, Time
from kstream.clock import Clock
from kstream.offsets.admission_control import AdmissionControl, AdmissionSettings
from kstream.offsets.offset_range import Partition
from kstream_kafka.structured.limits import shared_by_lag
from kstream_kafka.structured.options import SourceOptions

MeanBytes: TypeAlias = Callable[[Mapping[Partition, int], Mapping[Partition, int]], float]
"""(next offset, end of the log) of each partition → mean bytes of the next records. May block."""


class TriggerLimits(AdmissionControl):
    """The limits of a query. A trigger has no interval, so no rate counts. Not thread-safe: the planner's thread calls it.

    Attributes:
        is_once: whether the query has one batch only, which knows no limit.
        held: partitions of which the batch reads nothing.
        target: where the query ends, under AvailableNow; None if it has no end.
    """

    def __init__(self, options: SourceOptions, clock: Clock, mean_bytes: MeanBytes) -> None:
        """
        Args:
            options: the options.
            clock: the clock of `maxTriggerDelay`.
            mean_bytes: tells how long the next records are, for `maxBytesPerTrigger`.
        """
        super().__init__(AdmissionSettings(), Duration(1))
        self._options = options
        self._clock = clock
        self._mean_bytes = mean_bytes
        self._last_batch_ms: int | None = None
        self.is_once = False
        self.held: Collection[Partition] = ()
        self.target: Mapping[Partition, int] | None = None

    def admit(
        self, time: Time, current: Mapping[Partition, int], ends: Mapping[Partition, int], open_batches: Collection[Time]
    ) -> dict[Partition, int]:
        """Return where a batch ends: at the ends of the logs, or earlier by the options of the query.

        It ends where it begins while it waits for `minOffsetsPerTrigger`. Blocks if there is a limit of bytes.

        Args:
            time: the batch; not used.
            current: the next offset of each partition.
            ends: the end of each partition's log.
            open_batches: not used: a query has one batch at a time.
        """
        until = {p: current[p] if p in self.held else end for p, end in ends.items()}
        if self.is_once:
            return until
        if self.target is not None:  # a query that waited for more records here would end without those that are there
            target = self.target
            until = {p: max(current[p], min(end, target.get(p, current[p]))) for p, end in until.items()}
        elif self._waits(sum(until[p] - at for p, at in current.items())):
            return dict(current)
        most = self._most(current, until)
        return until if most is None else shared_by_lag(current, until, most)

    def _most(self, current: Mapping[Partition, int], until: Mapping[Partition, int]) -> int | None:
        """Return the most offsets of a batch; None for no limit. Blocks if there is a limit of bytes and anything to read."""
        most, max_bytes = self._options.max_offsets, self._options.max_bytes
        if max_bytes is None or all(until[p] <= at for p, at in current.items()):
            return most
        by_bytes = max(1, int(max_bytes / self._mean_bytes(current, until)))
        return by_bytes if most is None else min(most, by_bytes)

    def _waits(self, new: int) -> bool:
        """Return whether the batch waits for more records than these. If not, the time of the wait of the next batch begins.

        Args:
            new: how many offsets the batch would have now.
        """
        least, now = self._options.min_offsets, self._clock.monotonic_ms()
        if least is None:
            return False
        if new < least and self._last_batch_ms is not None and now - self._last_batch_ms < self._options.max_delay_ms:
            return True
        self._last_batch_ms = now
        return False
