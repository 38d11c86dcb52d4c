"""RestartPolicy: how long the supervisor waits before it starts the driver again. Pure: the caller has the clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NextStart:
    """What follows the end of a driver. Attributes: delay_s (seconds to wait), quick_ends (drivers in a row that did not live long)."""

    delay_s: float
    quick_ends: int


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The back-off doubles from `first_s` to `longest_s`. After a driver that has lived for `healthy_s` it begins anew. All in seconds."""

    first_s: float = 1.0
    longest_s: float = 60.0
    healthy_s: float = 600.0

    def after(self, quick_ends: int, lived_s: float) -> NextStart:
        """Return what follows the end of a driver.

        Args:
            quick_ends: that of the NextStart before; 0 for the first driver.
            lived_s: how long the driver has lived, in seconds.
        """
        before = 0 if lived_s >= self.healthy_s else quick_ends
        delay = self.first_s
        for _ in range(before):
            if delay >= self.longest_s:
                break
            delay *= 2
        return NextStart(min(delay, self.longest_s), before + 1)
