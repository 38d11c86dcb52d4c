"""Spool: what a task has encoded. It is written when all of it is there, so that the transaction does not wait for the user's code."""

from __future__ import annotations

import pickle
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO

from kstream_kafka.sink.producer_record import Encoded
from kstream_kafka.sink.receipt import Digest

HELD_BYTES = 32_000_000
"""The bytes of records that are held in memory. Those before them wait in a temporary file."""
_OVERHEAD = 150
"""The bytes of a record in memory without its key and value."""
CHUNK = 1_000
_MASK = (1 << 64) - 1


class Spool:
    """The encoded records of one task, in order. One thread."""

    def __init__(self, held_bytes: int = HELD_BYTES) -> None:
        self._most = held_bytes
        self._held: list[Encoded] = []
        self._in_memory = 0
        self._file: IO[bytes] | None = None
        self._file_end = 0
        self._records = self._bytes = self._keys = self._values = 0

    def add(self, record: Encoded) -> None:
        """Add a record. OSError if the disk for temporary files is full."""
        _, key, value, *_ = record
        size = 0
        if key is not None:
            size = len(key)
            self._keys += zlib.crc32(key) + 1
        if value is not None:
            size += len(value)
            self._values += zlib.crc32(value) + 1
        self._records += 1
        self._bytes += size
        self._in_memory += size + _OVERHEAD
        self._held.append(record)
        if self._in_memory > self._most:
            self._move_to_file()

    @property
    def digest(self) -> Digest:
        """The digest of all records."""
        return Digest(self._records, self._bytes, self._keys & _MASK, self._values & _MASK)

    def records(self) -> Iterator[Encoded]:
        """Return all records in order. After the first call nothing can be added."""
        if self._file is not None:
            self._file.seek(0)
            while self._file.tell() < self._file_end:
                yield from pickle.load(self._file)
        yield from self._held

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _move_to_file(self) -> None:
        """Move the records in memory to the end of the temporary file. The first call creates the file."""
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 – `close` closes it
        for begin in range(0, len(self._held), CHUNK):
            pickle.dump(self._held[begin : begin + CHUNK], self._file, pickle.HIGHEST_PROTOCOL)
        self._file_end = self._file.tell()
        self._held, self._in_memory = [], 0
