"""Records that were stored together, pickled at once: they wait for their block as bytes, not as objects.

Pickled while they are fresh they cost a third of what they cost later, and what comes in no longer competes with what goes out.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from kstream.worker.pickled_chunks import CHUNK_BYTES, pickled_chunks

Dumps = Callable[[Any], bytes]
"""Pickles a list of records, or what unpickles to one."""


def dumps_plain(records: Any) -> bytes:
    return pickle.dumps(records, pickle.HIGHEST_PROTOCOL)


@dataclass(frozen=True, slots=True)
class PackedRecords:
    """`pickled` is a list of `count` records."""

    count: int
    pickled: bytes


class TextLines:
    """Lines that came together, as the text they came as: they are split where they are read. Unpickles to their list."""

    def __init__(self, text: str) -> None:
        """The lines, with LF between them and not behind the last."""
        self.text = text

    def __len__(self) -> int:
        return self.text.count("\n") + 1

    def __iter__(self) -> Iterator[str]:
        return iter(self.text.split("\n"))

    def __reduce__(self) -> tuple[Any, ...]:
        return str.split, (self.text, "\n")


class RecordPacker:
    """Cuts so that packs are neither tiny, as far as the calls allow, nor huge. Any thread."""

    def __init__(self, dumps: Dumps) -> None:
        self._dumps = dumps
        self._at_once = 1000  # a guess at how many make some chunk; threads may disagree about it

    def pack(self, records: Iterable[Any]) -> list[PackedRecords]:
        """What a record's pickling raises, and then none is packed."""
        if isinstance(records, TextLines):
            return [PackedRecords(len(records), self._dumps(records))]
        at_hand = records if isinstance(records, list) else list(records)
        packs: list[PackedRecords] = []
        at = 0
        while at < len(at_hand):
            some = at_hand[at : at + self._at_once]
            packs.append(PackedRecords(len(some), self._dumps(some)))
            at += len(some)
            self._learn(len(some), len(packs[-1].pickled))
        return packs

    def _learn(self, count: int, size: int) -> None:
        if size > 2 * CHUNK_BYTES and count > 1:
            self._at_once = max(1, count // 2)
        elif size < CHUNK_BYTES // 2 and count == self._at_once:
            self._at_once = count * 2


def chunks_of(records: Iterable[Any], dumps: Dumps) -> tuple[int, list[bytes]]:
    """How many records there are, and their chunks, in order. Among them may be packs."""
    chunks = list(counted_chunks(records, dumps))
    return sum(chunk.count for chunk in chunks), [chunk.pickled for chunk in chunks]


def counted_chunks(records: Iterable[Any], dumps: Dumps) -> Iterator[PackedRecords]:
    """The same, each chunk with its count: `pickled` is one or more lists."""
    for packed, group in groupby(records, lambda record: isinstance(record, PackedRecords)):
        if packed:
            yield from _joined(group)
        else:
            counts: list[int] = []
            for chunk in pickled_chunks(group, lambda some, counts=counts: (counts.append(len(some)), dumps(some))[1]):
                yield PackedRecords(counts[-1], chunk)


def portions(chunks: Iterable[PackedRecords], most_bytes: int) -> Iterator[list[PackedRecords]]:
    """Of so many bytes at most, as far as single chunks allow."""
    some, size = list[PackedRecords](), 0
    for chunk in chunks:
        if some and size + len(chunk.pickled) > most_bytes:
            yield some
            some, size = [], 0
        some.append(chunk)
        size += len(chunk.pickled)
    if some:
        yield some


def records_of(chunks: Iterable[bytes]) -> Iterator[Any]:
    """Of a block."""
    for chunk in chunks:
        file = io.BytesIO(chunk)
        while file.tell() < len(chunk):
            yield from pickle.load(file)


def _joined(packs: Iterable[PackedRecords]) -> Iterator[PackedRecords]:
    """Small ones together."""
    for some in portions(packs, CHUNK_BYTES):
        yield some[0] if len(some) == 1 else PackedRecords(sum(pack.count for pack in some), b"".join(pack.pickled for pack in some))
