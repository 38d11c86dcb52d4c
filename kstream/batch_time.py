"""Batch times: `Time` (a point, ms since the epoch), `Duration` (a length, ms) and `Interval` (two points).

The classes are frozen, ordered by milliseconds and hashable. They have the arithmetic of Spark's own three classes (`Time.scala`,
`Duration.scala`, `Interval.scala`). A time or a length is never a bare `int`, so that units cannot be mixed up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, order=True, slots=True)
class Duration:
    """A length of time in whole milliseconds."""

    milliseconds: int

    def __add__(self, other: Duration) -> Duration:
        return Duration(self.milliseconds + other.milliseconds)

    def __sub__(self, other: Duration) -> Duration:
        return Duration(self.milliseconds - other.milliseconds)

    def __mul__(self, times: int) -> Duration:
        return Duration(self.milliseconds * times)

    def __truediv__(self, other: Duration) -> float:
        return self.milliseconds / other.milliseconds

    def isMultipleOf(self, other: Duration) -> bool:
        """Return whether this length is a whole number of times the other."""
        return self.milliseconds % other.milliseconds == 0

    def isZero(self) -> bool:
        """Return whether this length is zero."""
        return self.milliseconds == 0

    def min(self, other: Duration) -> Duration:
        """Return the shorter of the two lengths."""
        return min(self, other)

    def max(self, other: Duration) -> Duration:
        """Return the longer of the two lengths."""
        return max(self, other)

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.milliseconds / 1000

    def __str__(self) -> str:
        return f"{self.milliseconds} ms"


def Milliseconds(milliseconds: int) -> Duration:
    """Make a Duration from milliseconds."""
    return Duration(milliseconds)


def Seconds(seconds: float) -> Duration:
    """Make a Duration from seconds, rounded to whole milliseconds. TypeError if `seconds` is not a number, or is NaN or infinite."""
    try:
        return Duration(round(seconds * 1000))
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{seconds!r} is not a number of seconds: give a number, or a Duration") from None


def Minutes(minutes: float) -> Duration:
    """Make a Duration from minutes, rounded to whole milliseconds."""
    return Seconds(minutes * 60)


@dataclass(frozen=True, order=True, slots=True)
class Time:
    """A point in time: whole milliseconds since the Unix epoch (UTC)."""

    milliseconds: int

    def __add__(self, length: Duration) -> Time:
        return Time(self.milliseconds + length.milliseconds)

    def __sub__(self, length: Duration) -> Time:
        return Time(self.milliseconds - length.milliseconds)

    def since(self, earlier: Time) -> Duration:
        """Return the length from `earlier` to this time; negative if this time is before `earlier`."""
        return Duration(self.milliseconds - earlier.milliseconds)

    def floor(self, step: Duration, zero: Time | None = None) -> Time:
        """Return the latest time ≤ this one that is a whole number of `step`s from `zero` (default: the Unix epoch)."""
        start = zero.milliseconds if zero else 0
        return Time((self.milliseconds - start) // step.milliseconds * step.milliseconds + start)

    def isMultipleOf(self, step: Duration) -> bool:
        """Return whether this time is a whole number of `step`s after the Unix epoch."""
        return self.milliseconds % step.milliseconds == 0

    def until(self, end: Time, step: Duration) -> list[Time]:
        """Return the times from this one (included) to `end` (excluded), `step` apart."""
        return [Time(ms) for ms in range(self.milliseconds, end.milliseconds, step.milliseconds)]

    def to(self, end: Time, step: Duration) -> list[Time]:
        """Return the times from this one to `end`, both included, `step` apart."""
        return [Time(ms) for ms in range(self.milliseconds, end.milliseconds + 1, step.milliseconds)]

    def to_datetime(self) -> datetime:
        """Return this time as a naive datetime in local time. In this form pyspark passes batch times to user functions."""
        return datetime.fromtimestamp(self.milliseconds / 1000)

    def __str__(self) -> str:
        return f"{self.milliseconds} ms"


@dataclass(frozen=True, order=True, slots=True)
class Interval:
    """The span of time from `begin` to `end`."""

    begin: Time
    end: Time

    @property
    def duration(self) -> Duration:
        """The length from `begin` to `end`."""
        return self.end.since(self.begin)

    def __str__(self) -> str:
        return f"[{self.begin}, {self.end}]"


def format_batch_time(time: Time, interval: Duration) -> str:
    """Return a batch time as HH:MM:SS in local time, as Spark's UIUtils does. With milliseconds if the interval is below a second."""
    moment = time.to_datetime()
    text = moment.strftime("%H:%M:%S")
    return f"{text}.{moment.microsecond // 1000:03d}" if interval.milliseconds < 1000 else text


def listed(times: Sequence[Time], most: int = 20) -> str:
    """Return the times as text for the log: the first `most` of them, and the last if there are more."""
    text = ", ".join(str(t) for t in times[:most])
    return text if len(times) <= most else f"{text}, … {times[-1]}"
