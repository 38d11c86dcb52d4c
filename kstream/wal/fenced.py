"""FencedWriteAheadLog: nothing is acknowledged by a driver that another one has replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kstream.wal.write_ahead_log import WriteAheadLog, WriteAheadLogRecordHandle


class FencedWriteAheadLog(WriteAheadLog):
    """`log`, of which a write counts only if `probe`, called after it, raises nothing: no newer driver can have read the log before it.

    A driver that has been replaced and does not know it yet could otherwise acknowledge a block that its successor never hears of.
    """

    def __init__(self, log: WriteAheadLog, probe: Callable[[], None]) -> None:
        self._log = log
        self._probe = probe

    def write(self, record: bytes, time_ms: int) -> WriteAheadLogRecordHandle:
        handle = self._log.write(record, time_ms)
        self._probe()
        return handle

    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        return self._log.read(handle)

    def readAll(self) -> Iterator[bytes]:
        return self._log.readAll()

    def clean(self, threshold_ms: int, wait: bool) -> None:
        self._log.clean(threshold_ms, wait)

    def close(self) -> None:
        self._log.close()
