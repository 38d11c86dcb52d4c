"""ReceiverLogs: the write-ahead logs of receivers, as tasks are told of them and open them in workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kstream.storage import FileStore
from kstream.wal import WriteAheadLog, WriteAheadLogRecordHandle, create_log_for_receiver
from kstream.worker.process import once

_ANY_STREAM = -1


class OpensStore(Protocol):
    """Where the checkpoint's store lies, as a worker is told it. Picklable, hashable, without secrets."""

    def open(self) -> FileStore: ...


@dataclass(frozen=True, slots=True)
class ReceiverLogs:
    """Pickled into tasks. `conf`: the settings under spark.streaming., by which the log is chosen and made; also one of the user's own."""

    conf: tuple[tuple[str, str], ...]
    place: OpensStore

    def open(self, stream_id: int) -> WriteAheadLog:
        """A new log to write to, of one run of a receiver. ConfigurationError, StorageError."""
        return create_log_for_receiver(dict(self.conf), self.place.open(), stream_id)

    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        """A record by its handle, of whichever receiver. Any thread of any worker; the log is opened once a process."""
        return once(self, lambda: self.open(_ANY_STREAM)).read(handle)


ReadRecord = Callable[[WriteAheadLogRecordHandle], bytes]
