"""Histogram: counts values by their upper bounds, as Prometheus shows them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

BATCH_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
STORE_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""The upper bounds of the buckets in seconds, for delays of batches and for requests to a store."""

Buckets = list[tuple[str, float]]
"""The number of values up to each bound, the last one `+Inf`."""


class Histogram:
    """Counts values by upper bounds. Not thread-safe: its owner has a lock."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value. A value equal to a bound is in the bucket of that bound.

        A negative one counts as 0: a delay across a step back of the clock is negative, and Prometheus takes a sum that falls for a reset.
        """
        value = max(0.0, value)
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def sum(self) -> float:
        """The sum of the values."""
        return self._sum

    def buckets(self) -> Buckets:
        """Return the buckets, as Prometheus wants them."""
        counted, found = 0, Buckets()
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            counted += count
            found.append((bound, counted))
        return found
