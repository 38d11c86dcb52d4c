"""BatchSpeed: how many records a batch may have to end in a given time, by the cost of the last batches. No threads, no clock.

A batch of n records takes `overhead + n × cost of a record`. Both are measured: by the straight line through the last batches, if their
numbers of records differ enough. A division of records by time would not do. It counts the overhead as cost of the records, takes ever
fewer of them, and saves no time by that.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

from kstream.batch_time import Time

RECENT = 10
"""The number of batches that are measured."""
SPREAD = 1.5
"""How many times as many records one of two batches has at least, for the line through both to tell overhead and records apart."""
MOST_OVERHEAD = 0.75
"""The share of an interval above which the overhead of a batch leaves no time for records."""
LEAST_SHARE = 0.1
"""The share of an interval that the records of a batch may take in any case. Fewer of them would save nothing worth it."""
NEWEST = 3
"""The number of batches that say how fast the machine is now. One of them may have met a pause."""
LEAST_WITHOUT_A_LINE = 1000
"""The fewest records for which `most_within` lets a batch be stopped, if the batches do not tell overhead and records apart."""
GROWTH = 2.0
"""How many times the records of the last batch the next one may have, beyond what the division of records by time allows."""


@dataclass(frozen=True, slots=True)
class BatchCost:
    """The records of a stream in a batch, and the time for which the batch ran. Both are above 0."""

    records: int
    processing_ms: int


class StreamShare(Protocol):
    """The share of one stream in a batch: a `StreamInputInfo`."""

    @property
    def num_records(self) -> int: ...
    @property
    def num_bytes(self) -> int | None: ...


class EndedBatch(Protocol):
    """What the limits ask of a batch that has ended: a `BatchInfo`, whose room is above this one."""

    @property
    def batch_time(self) -> Time: ...
    @property
    def inputs(self) -> Mapping[int, StreamShare]: ...
    @property
    def processing_delay_ms(self) -> int | None: ...
    @property
    def measures_speed(self) -> bool: ...


class BatchSpeed:
    """The speed of the last batches of one stream. Not thread-safe.

    Args:
        budget_ms: how long a batch may run.
        interval_ms: the batch interval.
    """

    def __init__(self, budget_ms: float, interval_ms: float) -> None:
        self._budget_ms = budget_ms
        self._interval_ms = interval_ms
        self._costs: deque[BatchCost] = deque(maxlen=RECENT)
        self._slope_ms: float | None = None
        """What a record costs, in milliseconds; None before two batches differed enough. 0 if the records cost nothing that can be seen."""

    @property
    def is_known(self) -> bool:
        return bool(self._costs)

    @property
    def target_ms(self) -> float:
        """How long the next batch may run: within its budget, or twice the overhead, if the overhead alone takes nearly the interval.

        With fewer records such a job would do little else than begin batches.
        """
        return self._target_ms(self._overhead_ms())

    def _target_ms(self, overhead_ms: float) -> float:
        """Return how long the next batch may run, if that is its overhead."""
        return self._budget_ms if overhead_ms < MOST_OVERHEAD * self._interval_ms else 2 * overhead_ms

    def add(self, cost: BatchCost) -> None:
        """Note the cost of a batch that has ended. The line is drawn again if two of the last batches differ enough."""
        pairs = [(one, other) for one, other in combinations([*self._costs, cost], 2) if _differ(one, other)]
        self._costs.append(cost)
        if pairs:  # else the last line holds: batches of equal size tell nothing new about it
            slopes = [(one.processing_ms - other.processing_ms) / (one.records - other.records) for one, other in pairs]
            self._slope_ms = max(0.0, statistics.median(slopes))

    def fitting(self) -> int:
        """Return how many records the next batch may have to end within `target_ms`; at least 1. Call this after `add`.

        The line through the last batches counts, up to GROWTH times the records of the last batch or what a division of these by its time
        gives. Without a line the division counts; after some batches of equal size SPREAD times as much, so that a line can be drawn.
        """
        last, overhead_ms = self._costs[-1], self._overhead_ms()
        target_ms = self._target_ms(overhead_ms)
        divided = last.records * target_ms / last.processing_ms
        if self._slope_ms is None:
            return max(1, int(divided * (SPREAD if len(self._costs) >= RECENT // 2 else 1)))
        most = max(divided, GROWTH * last.records)
        return max(1, int(min(self._by_line(overhead_ms, self._slope_ms, target_ms), most) if self._slope_ms else most))

    def most_within(self, time_ms: float) -> int:
        """Return how many records the first batch of another driver may have, if it may run for a time. Call this if `is_known`.

        The line through the batches counts. Batches of equal size have no line, and then all their time counts as cost of the records. So
        small batches make records look dear, and there is a least number. A sink that was away does the same, and so the batch may have as
        many records as five or more batches usually had. Of fewer batches one may have been huge.

        Args:
            time_ms: the time in milliseconds.
        """
        usual = statistics.median_low(cost.records for cost in self._costs) if len(self._costs) >= RECENT // 2 else 0
        if self._slope_ms:
            return max(1, usual, int((time_ms - self._overhead_ms()) / self._slope_ms))
        divided = statistics.median(cost.records / cost.processing_ms for cost in self._costs) * time_ms
        return max(LEAST_WITHOUT_A_LINE, usual, int(SPREAD * divided))

    def _by_line(self, overhead_ms: float, slope_ms: float, target_ms: float) -> float:
        """Return how many records end in `target_ms` by the line, if the machine is as fast as in the last three batches."""
        newest = list(self._costs)[-NEWEST:]
        slowness = statistics.median(cost.processing_ms / (overhead_ms + slope_ms * cost.records) for cost in newest)
        return max(target_ms / slowness - overhead_ms, LEAST_SHARE * self._interval_ms) / slope_ms

    def _overhead_ms(self) -> float:
        """Return what each batch costs, however few its records, by the line through the last ones; 0 before two differed enough.

        It is never more than the fastest batch took: a pause of the machine may have lengthened the others.
        """
        if self._slope_ms is None:
            return 0.0
        fastest = min(cost.processing_ms for cost in self._costs)
        measured = statistics.median(cost.processing_ms - self._slope_ms * cost.records for cost in self._costs)
        return min(max(0.0, measured), fastest)


def _differ(one: BatchCost, other: BatchCost) -> bool:
    """Return whether the line through two batches tells overhead and records apart. Pure."""
    fewer, more = sorted((one.records, other.records))
    return more >= SPREAD * fewer
