"""WriteAheadLog: the contract of a log, with Spark's names. A class of the user's own can take the place of ours by configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator


class WriteAheadLogRecordHandle:
    """The place of a record in a log. Small, picklable, and valid in any process and after any restart."""

    __slots__ = ()


class WriteAheadLog(ABC):
    """A log of records. Thread-safe. Every call may block on I/O. Times are in milliseconds and only tell what `clean` may delete."""

    @abstractmethod
    def write(self, record: bytes, time_ms: int) -> WriteAheadLogRecordHandle:
        """Log a record durably and return its handle. After an error the record may be in the log, or not."""

    @abstractmethod
    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        """Read the record of a handle, also of one that another process has written."""

    @abstractmethod
    def readAll(self) -> Iterator[bytes]:
        """Yield every record that is not cleaned yet, in the order of writing. Called at a restart, before the first write."""

    @abstractmethod
    def clean(self, threshold_ms: int, wait: bool) -> None:
        """Delete records older than the threshold, now or later; with `wait`, block until they are deleted."""

    @abstractmethod
    def close(self) -> None:
        """End the writing and release what is open. Idempotent."""
