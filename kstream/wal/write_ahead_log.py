"""WriteAheadLog: the contract of a log, with Spark's names. A setting can name a class of the user in place of kstream's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator


class WriteAheadLogRecordHandle:
    """The place of a record in a log. Small, picklable, and valid in any process and after any restart."""

    __slots__ = ()


class WriteAheadLog(ABC):
    """A log of records. Thread-safe. Every call may block on I/O. Times are in milliseconds; only `clean` uses them."""

    @abstractmethod
    def write(self, record: bytes, time_ms: int) -> WriteAheadLogRecordHandle:
        """Log a record durably. After an error the record may be in the log, or not.

        Args:
            record: the bytes of the record.
            time_ms: the record's time, for `clean`.

        Returns:
            The handle by which `read` finds the record.
        """

    @abstractmethod
    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        """Read the record of a handle. Another process may have written the record."""

    @abstractmethod
    def readAll(self) -> Iterator[bytes]:
        """Yield every record that is not cleaned yet, in the order of writing. A restart calls this before the first write."""

    @abstractmethod
    def clean(self, threshold_ms: int, wait: bool) -> None:
        """Delete records older than the threshold.

        Args:
            threshold_ms: the threshold, on the scale of the times given to `write`.
            wait: block until the records are deleted; otherwise they may be deleted later.
        """

    @abstractmethod
    def close(self) -> None:
        """End the writing, and release all open resources. Idempotent."""
