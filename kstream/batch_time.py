"""Batch times: `Time` (a point, ms since the epoch), `Duration` (a length, ms) and `Interval` (two points); `BatchTime`, for users.

The first three are frozen, ordered by milliseconds and hashable. They have the arithmetic of Spark's own three classes (`Time.scala`,
`Duration.scala`, `Interval.scala`). A time or a length is never a bare `int`, so that units cannot be mixed up. `BatchTime` is the datetime
that pyspark passes to functions, with the exact milliseconds.
"""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any, SupportsIndex


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

    @staticmethod
    def of(moment: datetime) -> Time:
        """Return the time of a datetime, rounded to milliseconds. The inverse of `to_datetime`.

        A BatchTime knows its milliseconds. Another datetime without a zone is local time, and its `fold` tells a repeated hour.
        """
        return Time(moment.milliseconds if isinstance(moment, BatchTime) else round(moment.timestamp() * 1000))

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

    def to_datetime(self) -> BatchTime:
        """Return this time as the datetime that functions of users get."""
        return BatchTime.of(self.milliseconds)

    def __str__(self) -> str:
        return f"{self.milliseconds} ms"


class BatchTime(datetime):
    """The batch time that `foreachRDD`, `transform` and `mapWithState` pass to functions: a datetime in local time without a zone.

    It prints, compares and hashes as the datetime that pyspark passes. So where clocks are set back, two batches an hour apart are equal,
    and a zone that changes moves the local time. `milliseconds`, `utc` and `timestamp()` are exact: use `milliseconds` as the key of
    idempotent writes. What is computed from it (`+`, `-`, `replace`) is a plain datetime, which names no batch.

    Copies and pickles keep the local time of the driver and the milliseconds, also in a worker of another zone. SQLite and Spark SQL take
    it as a datetime.
    """

    __slots__ = ("_milliseconds",)
    _milliseconds: int

    def __new__(cls, *fields: Any, **named: Any) -> datetime:
        """Return a plain datetime: datetime calls this for its arithmetic and constructors. `Time.to_datetime` makes a BatchTime."""
        return datetime(*fields, **named)

    @staticmethod
    def of(milliseconds: int) -> BatchTime:
        """Return the batch time in the zone of this process.

        Args:
            milliseconds: since the Unix epoch.
        """
        local = datetime.fromtimestamp(milliseconds // 1000)  # sets `fold` in the second of two equal hours
        return _batch_time(milliseconds, local.isoformat(), local.fold)

    @property
    def milliseconds(self) -> int:
        """The batch time in milliseconds since the Unix epoch: the name of the batch in the checkpoint, and `batch_id` in foreachBatch."""
        return self._milliseconds

    @property
    def utc(self) -> datetime:
        """The same moment as a datetime with the zone UTC."""
        return datetime.fromtimestamp(self._milliseconds // 1000, timezone.utc).replace(microsecond=self.microsecond)

    def timestamp(self) -> float:
        """Return the seconds since the Unix epoch, whatever the zone of this process is."""
        return self._milliseconds / 1000

    def astimezone(self, tz: tzinfo | None = None) -> datetime:
        """Return the same moment in another zone; None is the zone of this process."""
        return self.utc.astimezone(tz)

    def timetuple(self) -> clock.struct_time:
        """Return the fields of the local time. They say whether it is summer time, so `time.mktime`, which Spark SQL calls, is exact."""
        fields, here = super().timetuple(), clock.localtime(self._milliseconds // 1000)
        return here if here[:6] == fields[:6] else fields  # the driver may be in another zone

    def replace(self, *fields: Any, **named: Any) -> datetime:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a plain datetime with other fields."""
        at = self.year, self.month, self.day, self.hour, self.minute, self.second, self.microsecond
        return datetime(*at, fold=self.fold).replace(*fields, **named)

    if TYPE_CHECKING:  # `__new__` makes these results plain

        def __add__(self, value: timedelta, /) -> datetime: ...  # pyright: ignore[reportIncompatibleMethodOverride]

        def __radd__(self, value: timedelta, /) -> datetime: ...  # pyright: ignore[reportIncompatibleMethodOverride]

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _batch_time, (self._milliseconds, self.isoformat(timespec="seconds"), self.fold)

    def __conform__(self, protocol: object) -> str:
        """Return the text by which sqlite3 stores a datetime; it looks up the exact class for its own adapter."""
        return self.isoformat(" ")


def _batch_time(milliseconds: int, local: str, fold: int) -> BatchTime:
    """Make a BatchTime, and let Spark SQL of this process take it. A pickled one is made again by this function, also in workers.

    Args:
        milliseconds: since the Unix epoch.
        local: the same moment in the local time of the driver, in ISO form to the second, without a zone.
        fold: 1 in the second of two equal hours.
    """
    _tell_spark_sql()
    at = datetime.fromisoformat(local)
    fields = at.year, at.month, at.day, at.hour, at.minute, at.second, milliseconds % 1000 * 1000
    made: Any = datetime.__new__(BatchTime, *fields, fold=fold)
    made._milliseconds = milliseconds
    return made


def _tell_spark_sql() -> None:
    """Make `createDataFrame` take a BatchTime as a timestamp, if this process has loaded pyspark. Spark SQL looks up the exact class."""
    types = sys.modules.get("pyspark.sql.types")
    if types is None or BatchTime in types._type_mappings:
        return
    for kind, accepted in types._acceptable_types.items():
        if datetime in accepted:
            types._acceptable_types[kind] = (*accepted, BatchTime)
    types._type_mappings[BatchTime] = types._type_mappings[datetime]


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


def listed(times: Sequence[Time], most: int = 3) -> str:
    """Return the times as text for the log: all of them, or only the first and the last if there are more than `most`."""
    return ", ".join(map(str, times)) if len(times) <= most else f"{times[0]}, …, {times[-1]}"
