"""Batch times: `Time` (a point, ms since the epoch), `Duration` (a length, ms) and `Interval` (two points).

Frozen, ordered by milliseconds and hashable, like Spark's own three classes (`Time.scala`, `Duration.scala`,
`Interval.scala`), whose arithmetic they re-implement. Units never float about: an `int` is never a time.
"""

from __future__ import annotations

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
        return self.milliseconds % other.milliseconds == 0

    def isZero(self) -> bool:
        return self.milliseconds == 0

    def min(self, other: Duration) -> Duration:
        return min(self, other)

    def max(self, other: Duration) -> Duration:
        return max(self, other)

    @property
    def seconds(self) -> float:
        return self.milliseconds / 1000

    def __str__(self) -> str:
        return f"{self.milliseconds} ms"


def Milliseconds(milliseconds: int) -> Duration:
    """A Duration of so many milliseconds."""
    return Duration(milliseconds)


def Seconds(seconds: float) -> Duration:
    """A Duration of so many seconds; rounded to whole milliseconds. TypeError for what is no number."""
    try:
        return Duration(round(seconds * 1000))
    except TypeError:
        raise TypeError(f"{seconds!r} is not a number of seconds: give a number, or a Duration") from None


def Minutes(minutes: float) -> Duration:
    """A Duration of so many minutes."""
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
        """The length from `earlier` to this time; negative when this one comes first."""
        return Duration(self.milliseconds - earlier.milliseconds)

    def floor(self, step: Duration, zero: Time | None = None) -> Time:
        """The latest point ≤ this one that lies a whole number of `step`s after `zero` (default: the epoch)."""
        start = zero.milliseconds if zero else 0
        return Time((self.milliseconds - start) // step.milliseconds * step.milliseconds + start)

    def isMultipleOf(self, step: Duration) -> bool:
        return self.milliseconds % step.milliseconds == 0

    def until(self, end: Time, step: Duration) -> list[Time]:
        """Times from this one (included) up to `end` (excluded), `step` apart."""
        return [Time(ms) for ms in range(self.milliseconds, end.milliseconds, step.milliseconds)]

    def to(self, end: Time, step: Duration) -> list[Time]:
        """Times from this one up to and including `end`, `step` apart."""
        return [Time(ms) for ms in range(self.milliseconds, end.milliseconds + 1, step.milliseconds)]

    def to_datetime(self) -> datetime:
        """Local naive datetime, the form in which pyspark hands batch times to user functions."""
        return datetime.fromtimestamp(self.milliseconds / 1000)

    def __str__(self) -> str:
        return f"{self.milliseconds} ms"


@dataclass(frozen=True, order=True, slots=True)
class Interval:
    """A stretch of batch times from `begin` to `end`."""

    begin: Time
    end: Time

    @property
    def duration(self) -> Duration:
        return self.end.since(self.begin)

    def __str__(self) -> str:
        return f"[{self.begin}, {self.end}]"


def format_batch_time(time: Time, interval: Duration) -> str:
    """HH:MM:SS of a batch for people, with milliseconds only where the interval is below a second (Spark's UIUtils)."""
    moment = time.to_datetime()
    text = moment.strftime("%H:%M:%S")
    return f"{text}.{moment.microsecond // 1000:03d}" if interval.milliseconds < 1000 else text
