"""TaskReport: what a task tells its driver of the epochs that it has ended. Pure.

The latency of an epoch is the time from its newest record, by the timestamp of that, until the epoch was stored. It is counted in a few
fixed ranges, so reports of all tasks can be added up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from kstream.offsets.offset_range import Partition

LATENCIES_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000)
"""The upper ends of the ranges, included. The last range has no end."""
_NONE = (0,) * (len(LATENCIES_MS) + 1)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The epochs since the last report.

    Attributes:
        positions: the position behind the last epoch, of each partition that has moved.
        epochs: how many epochs were stored.
        records: their records.
        num_bytes: the bytes of their records.
        newest_ms: the newest timestamp of a record, in ms since the Unix epoch; None without one.
        latencies: how many epochs have a latency in each range.
    """

    positions: Mapping[Partition, int] = field(default_factory=dict[Partition, int])
    epochs: int = 0
    records: int = 0
    num_bytes: int = 0
    newest_ms: int | None = None
    latencies: tuple[int, ...] = _NONE

    def plus(self, later: TaskReport) -> TaskReport:
        """Return this report and a later one in one."""
        newest = [ms for ms in (self.newest_ms, later.newest_ms) if ms is not None]
        return TaskReport(
            {**self.positions, **later.positions},
            self.epochs + later.epochs,
            self.records + later.records,
            self.num_bytes + later.num_bytes,
            max(newest, default=None),
            tuple(a + b for a, b in zip(self.latencies, later.latencies, strict=True)),
        )

    def percentile_ms(self, share: float) -> int | None:
        """Return a latency that this share of the epochs does not exceed, as the end of its range; None without epochs."""
        return percentile_ms(self.latencies, share)

    def to_json(self) -> dict[str, Any]:
        return {
            "positions": positions_to_json(self.positions),
            "epochs": self.epochs,
            "records": self.records,
            "bytes": self.num_bytes,
            "newest": self.newest_ms,
            "latencies": list(self.latencies),
        }

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> TaskReport:
        return TaskReport(
            positions_of_json(fields["positions"]),
            fields["epochs"],
            fields["records"],
            fields["bytes"],
            fields["newest"],
            tuple(fields["latencies"]),
        )


def latencies_of(latency_ms: int) -> tuple[int, ...]:
    """Return the counts of one epoch with this latency. One that is negative, since two clocks differ, counts as 0."""
    place = bisect_left(LATENCIES_MS, latency_ms)
    return (*_NONE[:place], 1, *_NONE[place + 1 :])


def percentile_ms(latencies: tuple[int, ...], share: float) -> int | None:
    """Return the end of the range in which this share of the counted latencies is reached; None if nothing is counted.

    A latency in the last range counts as the largest end.
    """
    counted = sum(latencies)
    if not counted:
        return None
    place = next(place for place, until in enumerate(accumulate(latencies)) if until >= share * counted)
    return LATENCIES_MS[min(place, len(LATENCIES_MS) - 1)]


def positions_to_json(positions: Mapping[Partition, int]) -> list[list[str | int]]:
    """Return positions as JSON: [topic, partition, position], sorted."""
    return [[topic, number, position] for (topic, number), position in sorted(positions.items())]


def positions_of_json(rows: list[tuple[str, int, int]]) -> dict[Partition, int]:
    """Return the positions of `positions_to_json`."""
    return {(topic, number): position for topic, number, position in rows}
