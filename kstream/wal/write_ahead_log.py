"""WriteAheadLog: the contract of a log, with Spark's names. A class of the user's own can take the place of ours by configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator


class WriteAheadLogRecordHandle:
    """What a log needs to find a record again. Small, picklable, and good in any process and after any restart."""

    __slots__ = ()


class WriteAheadLog(ABC):
    """Thread-safe. Every call may block on I/O. Times are in milliseconds and only tell what `clean` may remove."""

    @abstractmethod
    def write(self, record: bytes, time_ms: int) -> WriteAheadLogRecordHandle:
        """Logs a record; it is durable, and readable by the handle, when this returns. After an error it may be in the log or not."""

    @abstractmethod
    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        """The record that a `write` has returned this handle for, also one of another process."""

    @abstractmethod
    def readAll(self) -> Iterator[bytes]:
        """Every record that was written and not cleaned yet, in the order of writing. Called at a restart, before the first write."""

    @abstractmethod
    def clean(self, threshold_ms: int, wait: bool) -> None:
        """Records older than the threshold are not needed any more; they may stay for a while. With `wait` blocks until they are gone."""

    @abstractmethod
    def close(self) -> None:
        """No more writes; releases what is open. Idempotent."""
