"""SkewedRange: a partition of a log that gives a batch far more records than the others of its topic. Pure.

One task reads a range (or few tasks, with a limit of records for each): the batch lasts as long as the longest. A hot key shows itself in
this way, for its producer sends all of its records to one partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

FACTOR = 4
"""A range is skewed if it has more than so many times the median of its topic. Partitions of keys that are spread well differ by less."""
LEAST_RECORDS = 1000
"""But not with fewer records: they take a task less time than its start."""
LEAST_RANGES = 3
"""Of two ranges none is the usual one."""
MOST = 5
"""How many skewed ranges of an input are named, the longest first."""


@dataclass(frozen=True, slots=True)
class SkewedRange:
    """A range with far more records than the median of its topic.

    Attributes:
        topic, partition: where.
        records: its records.
        median: the median of the ranges of the topic, empty ones included.
    """

    topic: str
    partition: int
    records: int
    median: float

    @property
    def factor(self) -> float | None:
        """How many times the median it has; None if most ranges are empty."""
        return round(self.records / self.median, 1) if self.median else None


def skewed_ranges(ranges: Iterable[tuple[str, int, int | None]]) -> list[SkewedRange]:
    """Return the skewed ranges of an input in a batch, the longest first, at most MOST.

    Topics are compared each by itself: one that has little to say is no skew of another.

    Args:
        ranges: (topic, partition, records) of each range. A range whose records are not known (None) is left out.
    """
    by_topic: dict[str, list[tuple[int, int]]] = {}
    for topic, partition, records in ranges:
        if records is not None:
            by_topic.setdefault(topic, []).append((partition, records))
    found: list[SkewedRange] = []
    for topic, known in by_topic.items():
        if len(known) >= LEAST_RANGES:
            usual = float(median(records for _, records in known))
            most = max(FACTOR * usual, LEAST_RECORDS - 1)
            found += [SkewedRange(topic, partition, records, usual) for partition, records in known if records > most]
    return sorted(found, key=lambda one: (-one.records, one.topic, one.partition))[:MOST]
