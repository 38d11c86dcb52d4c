"""Spool: what a task has encoded. It is written when all of it is there, so that the transaction does not wait for the user's code."""

from __future__ import annotations

import pickle
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

from kstream_kafka.sink.producer_record import Encoded
from kstream_kafka.sink.receipt import MASK, Digest

HELD_BYTES = 32_000_000
"""The bytes of records that are held in memory. Those before them wait in a temporary file."""
_OVERHEAD = 150
"""The bytes of a record in memory without its key and value."""
CHUNK = 1_000
SLOW = 1_000_000
"""Bytes a second that a slow connection to the brokers writes. The time-out of a transaction allows for it."""


class DigestSum:
    """The digests of records that come one by one. One thread."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._sums: dict[str, list[int]] = {}
        self._of_topic: list[int] = []

    def add(self, record: Encoded) -> int:
        """Add a record. Return the bytes of its key and value."""
        topic, key, value, _, _, _ = record
        if topic != self._topic:
            self._topic, self._of_topic = topic, self._sums.setdefault(topic, [0, 0, 0, 0])
        sums, size = self._of_topic, 0
        if key is not None:
            size = len(key)
            sums[2] += zlib.crc32(key) + 1
        if value is not None:
            size += len(value)
            sums[3] += zlib.crc32(value) + 1
        sums[0] += 1
        sums[1] += size
        return size

    def passing(self, records: Iterable[Encoded]) -> Iterator[Encoded]:
        """Give these records, and add each of them."""
        for record in records:
            self.add(record)
            yield record

    @property
    def digests(self) -> dict[str, Digest]:
        """topic → the digest of its records."""
        return {topic: Digest(records, size, keys & MASK, values & MASK) for topic, (records, size, keys, values) in self._sums.items()}


def digests_of(records: Iterable[Encoded]) -> dict[str, Digest]:
    """Return the digests of records, and keep none of them."""
    found = DigestSum()
    for record in records:
        found.add(record)
    return found.digests


def time_for(num_bytes: int, least_ms: int) -> int:
    """Return the time-out in ms of a transaction that is long enough for so many bytes. `least_ms`: what the user wants."""
    return max(least_ms, num_bytes * 1000 // SLOW)


class Spool:
    """The encoded records of one task, in order. One thread."""

    def __init__(self, held_bytes: int = HELD_BYTES) -> None:
        self._most = held_bytes
        self._held: list[Encoded] = []
        self._in_memory = 0
        self._file: IO[bytes] | None = None
        self._file_end = 0
        self._sum = DigestSum()

    def add(self, record: Encoded) -> None:
        """Add a record. OSError if the disk for temporary files is full."""
        self._in_memory += self._sum.add(record) + _OVERHEAD
        self._held.append(record)
        if self._in_memory > self._most:
            self._move_to_file()

    @property
    def digests(self) -> dict[str, Digest]:
        """topic → the digest of its records. Empty without a record."""
        return self._sum.digests

    @property
    def bytes_in_file(self) -> int:
        """The bytes of the temporary file."""
        return self._file_end

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
