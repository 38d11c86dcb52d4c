"""Log: an external system whose records have offsets, as a connector describes the system to kstream.

A Log is created by the user's program, pickled into the tasks of Spark, and created again by commands. So a module of Logs imports neither
pyspark nor the driver's side of kstream, and a Log has plain values as its attributes. A connection is opened where it is needed.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar, cast

from kstream.errors import KStreamError
from kstream.offsets.log_ends import OffsetsForTime
from kstream.offsets.offset_range import OffsetRange, Partition
from kstream.secret import looks_secret

logger = logging.getLogger("kstream.offsets")

ATTEMPTS = 5
"""The most calls of a method of a Log that raises retriable errors."""
FIRST_PAUSE_S = 0.1
"""Seconds between the first two calls. Each pause is twice as long as the one before."""
T = TypeVar("T")
_PLAIN = (str, int, float, bool, type(None))


class Log(ABC):
    """A system that keeps its records under offsets, in one or several partitions. A subclass is best a frozen dataclass.

    Offsets are whole numbers that rise. A partition is a pair of a topic (any name: a table, a shard) and a number. The driver calls the
    methods that ask, in one thread at a time. The tasks call `read`, perhaps more than once for a range.

    If a method raises a KStreamError that is `retriable`, such as TransientError, kstream calls the method again, ATTEMPTS times within
    some two seconds. After that, and after any other error, the plan or the task fails.

    Example:
        @dataclass(frozen=True)
        class EventsTable(Log):
            name = "sqlite"
            path: str

            def latest(self):
                with closing(sqlite3.connect(self.path)) as db:
                    return {("events", 0): db.execute("SELECT coalesce(max(id), 0) + 1 FROM events").fetchone()[0]}

            def read(self, offsets):
                with closing(sqlite3.connect(self.path)) as db:
                    rows = "SELECT id, item FROM events WHERE id >= ? AND id < ? ORDER BY id"
                    yield from db.execute(rows, (offsets.fromOffset, offsets.untilOffset))

        stream = LogInputDStream(ssc, EventsTable("/var/lib/orders/events.db"), startingOffsets="earliest")
    """

    name: ClassVar[str] = ""
    """The system, one word: `sqlite`. Plans and the stored parameters carry the name, so it must stay. Required."""
    offsets_have_gaps: ClassVar[bool] = False
    """Whether a range may have fewer records than offsets. If not, a range that yields fewer records is a data loss."""

    @abstractmethod
    def latest(self) -> Mapping[Partition, int]:
        """Return the end of every partition: the offset after its last record. Called once a batch; may block on the system."""

    def earliest(self) -> Mapping[Partition, int]:
        """Return the first offset of every partition; 0 by default. Called for starts at `earliest` and for new partitions. May block."""
        return dict.fromkeys(self.latest(), 0)

    def offsets_at(self, time_ms: int) -> OffsetsForTime | None:
        """Return the first offset of every partition whose record has this time or a later one. May block.

        Args:
            time_ms: milliseconds since the epoch.

        Returns:
            partition → offset, or None where no record is so young; every partition must be there. None, the default, if the system has
            no times: then starts by time are refused, and `downtime=by-timestamp` has no effect.
        """
        return None

    @abstractmethod
    def read(self, offsets: OffsetRange) -> Iterable[Any]:
        """Yield the records of [fromOffset, untilOffset) in the order of their offsets. Runs in a task; may block.

        Every call for the same range must yield the same records, because tasks run again.

        Args:
            offsets: the range, never empty.

        Raises:
            DataLossError: records of the range are gone for good.
            TransientError: the system cannot be read now.
        """

    def parameters(self) -> Mapping[str, Any] | None:
        """Return the arguments that create this Log again, as JSON values. The checkpoint stores them for `kstream lag` and `reset`.

        Returns:
            The fields of a dataclass. None if one of them may hold a secret, or is no text, number, bool or None; also None for any
            other class. Then a command must be given the arguments by `--param`.
        """
        if not dataclasses.is_dataclass(self):
            return None
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}
        if any(looks_secret(name, str(value)) for name, value in values.items()):
            return None
        return values if all(isinstance(value, _PLAIN) for value in values.values()) else None


def ends_of(log: Log) -> dict[Partition, int]:
    """Return `latest()` of a Log, checked. Blocks. TypeError if the result is no mapping of (topic, number) to whole numbers."""
    return _checked(log, "latest", log.latest())


def beginnings_of(log: Log) -> dict[Partition, int]:
    """Return `earliest()` of a Log, checked as by `ends_of`. Blocks."""
    return _checked(log, "earliest", log.earliest())


def _checked(log: Log, method: str, found: Any) -> dict[Partition, int]:
    """Return the offsets that a method of a Log gave. TypeError, with the Log and its method, if they have another form."""
    if isinstance(found, Mapping):
        rows = [(key, at) for key, at in cast("Mapping[Any, Any]", found).items()]
        if all(_is_partition(key) and type(at) is int for key, at in rows):
            return dict(rows)
    raise TypeError(f"{type(log).__name__}.{method} must return {{(topic, number): offset}} with whole numbers, and returned {found!r}")


def _is_partition(key: Any) -> bool:
    """Return whether this is a pair of a text and a whole number."""
    return isinstance(key, tuple) and [type(part) for part in cast("tuple[Any, ...]", key)] == [str, int]


def pause_or_raise(error: KStreamError, attempt: int, what: str, pause: Callable[[float], None] = time.sleep) -> None:
    """Wait before the next attempt. Blocks. If the error is not retriable, or this was the last attempt, raise the error.

    Args:
        error: the error of the attempt.
        attempt: the number of the attempt, from 1.
        what: the call, for the log.
        pause: waits for seconds.
    """
    if not error.retriable or attempt >= ATTEMPTS:
        raise error
    seconds = FIRST_PAUSE_S * 2 ** (attempt - 1)
    logger.info("%s failed and is tried again in %.1f s: %s", what, seconds, error)
    pause(seconds)


def with_retries(call: Callable[[], T], what: str, pause: Callable[[float], None] = time.sleep) -> T:
    """Return the result of a call, which is repeated after retriable errors. Blocks. Raises the last error of the call."""
    attempt = 0
    while True:
        attempt += 1
        try:
            return call()
        except KStreamError as e:
            pause_or_raise(e, attempt, what, pause)
