"""The stored form of one partition's states: how its bytes are read without decoding what is in them, and made.

    head      4 s  b"KSM" and the version    4 u  buckets, a power of 2    8 u  entries
    lengths   4 u  for each bucket, its bytes; 0 for an empty one
    oldest    8 i  for each bucket, the least update time in it (ms); 2^63 - 1 for an empty one
    buckets   one after the other; of n entries:
              4 u  n    n × 4 u  marks    n × 8 i  update times (ms)    n × 4 u  lengths    n pickles of (key, state)

All little-endian. An entry's mark is the upper half of its key's stable_hash; its low bits number the bucket. So marks and update times
are read without unpickling anything, and making more buckets of it moves pickles as they are.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from kstream.errors import CorruptRecordError, FormatVersionError

VERSION = 1
NEVER = 2**63 - 1
_MAGIC = b"KSM"
_HEAD = struct.Struct("<3sBIQ")
_COUNT = struct.Struct("<I")
_MOST = 16
"""More entries a bucket on average, and the buckets become more, of 4 to 8 entries each; less than one, and they become fewer."""


Pickle = bytes | memoryview
Row = tuple[int, int, Pickle]
"""An entry on its way into a bucket: mark, update time, pickle."""
Change = tuple[int, int, int, bytes | None]
"""A change of an entry: slot (-1 for a new one), mark, update time, and its new pickle. b"" leaves the old one, None takes it away."""


class Bucket:
    """The entries of one bucket, in columns. `bounds[i]` to `bounds[i + 1]` of `data` is the pickle of entry i."""

    __slots__ = ("bounds", "data", "marks", "updated")

    def __init__(self, data: memoryview, marks: tuple[int, ...], updated: tuple[int, ...], bounds: list[int]) -> None:
        self.data, self.marks, self.updated, self.bounds = data, marks, updated, bounds

    def pickle(self, slot: int) -> memoryview:
        return self.data[self.bounds[slot] : self.bounds[slot + 1]]

    def rows(self) -> Iterator[Row]:
        for slot, (mark, updated) in enumerate(zip(self.marks, self.updated, strict=True)):
            yield mark, updated, self.pickle(slot)

    def changed(self, changes: Iterable[Change]) -> tuple[list[Pickle], int]:
        """The pieces of the bucket's new bytes, and the least update time in it. What lies between changes is one piece."""
        marks, updated, bounds = list(self.marks), list(self.updated), self.bounds
        lengths = [end - begin for begin, end in pairwise(bounds)]
        pieces: list[Pickle] = [b""]
        copied = bounds[0]
        gone: list[int] = []
        for slot, _, time_ms, new in sorted(changes, key=_slot):
            if slot < 0:
                continue
            updated[slot] = time_ms
            if new == b"":
                continue
            pieces.append(self.data[copied : bounds[slot]])
            copied = bounds[slot + 1]
            if new is None:
                gone.append(slot)
            else:
                pieces.append(new)
                lengths[slot] = len(new)
        pieces.append(self.data[copied : bounds[-1]])
        for slot in reversed(gone):
            del marks[slot], updated[slot], lengths[slot]
        for slot, mark, time_ms, new in changes:
            if slot < 0 and new:
                marks.append(mark)
                updated.append(time_ms)
                lengths.append(len(new))
                pieces.append(new)
        pieces[0] = _columns(marks, updated, lengths)
        return pieces, min(updated, default=NEVER)


class StateForm:
    """One partition's bytes, opened: the index is read, the buckets are where they were."""

    def __init__(self, data: bytes) -> None:
        """CorruptRecordError for bytes of something else, FormatVersionError for those of a newer kstream."""
        self.data = data
        magic, version, self.buckets, self.entries = _HEAD.unpack_from(data) if len(data) >= _HEAD.size else (b"", 0, 0, 0)
        if magic != _MAGIC:
            raise CorruptRecordError(
                f"{len(data)} bytes that should be the states of a partition begin with {data[:4]!r}", path=None, reason="no state map"
            )
        if version > VERSION:
            raise FormatVersionError(
                f"states are stored in version {version} of their form, this kstream reads up to {VERSION}: use the newer kstream",
                path=None, version=version, supported=VERSION,
            )  # fmt: skip
        self._view = memoryview(data)
        index = _HEAD.size + 4 * self.buckets
        body = index + 8 * self.buckets
        self.lengths = _little_endian("I", data[_HEAD.size : index])
        self.oldest = _little_endian("q", data[index:body])
        self.bounds = list(accumulate(self.lengths, initial=body))
        if self.bounds[-1] != len(data):
            raise CorruptRecordError(
                f"the states of a partition should take {self.bounds[-1]} bytes, there are {len(data)}", path=None, reason="length"
            )

    def bucket(self, number: int) -> Bucket:
        if not self.lengths[number]:
            return Bucket(self._view, (), (), [self.bounds[number]])
        at = self.bounds[number]
        (n,) = _COUNT.unpack_from(self.data, at)
        columns = struct.unpack_from(f"<{n}I{n}q{n}I", self.data, at + 4)
        bounds = list(accumulate(columns[2 * n :], initial=at + 4 + 16 * n))
        return Bucket(self._view, columns[:n], columns[n : 2 * n], bounds)

    def older_than(self, time_ms: int) -> list[int]:
        """The numbers of the buckets with an entry updated before `time_ms`."""
        return [number for number, oldest in enumerate(self.oldest) if oldest < time_ms]

    def replaced(self, changes: Mapping[int, list[Change]], opened: Mapping[int, Bucket], entries: int) -> bytes:
        """These bytes with some buckets, already `opened`, changed; `entries` is their number then. What is between is copied as it is."""
        lengths, oldest = self.lengths[:], self.oldest[:]
        pieces: list[Pickle] = []
        copied = self.bounds[0]
        for number in sorted(changes):
            new, oldest[number] = opened[number].changed(changes[number])
            lengths[number] = sum(map(len, new))
            pieces.append(self._view[copied : self.bounds[number]])
            pieces += new
            copied = self.bounds[number + 1]
        pieces.append(self._view[copied:])
        return _join(lengths, oldest, entries, pieces)


def form_of(rows: Iterable[Row], buckets: int) -> bytes:
    """The bytes of all these entries, in so many buckets."""
    filled: list[list[Row]] = [[] for _ in range(buckets)]
    mask = buckets - 1
    for row in rows:
        filled[row[0] & mask].append(row)
    lengths, oldest = array("I"), array("q")
    pieces: list[Pickle] = []
    for bucket in filled:
        marks, updated, pickles = zip(*bucket, strict=True) if bucket else ((), (), ())
        columns = _columns(marks, updated, [len(of) for of in pickles])
        lengths.append(len(columns) + sum(map(len, pickles)))
        oldest.append(min(updated, default=NEVER))
        pieces += (columns, *pickles)
    return _join(lengths, oldest, sum(map(len, filled)), pieces)


def fitting(entries: int, buckets: int) -> int:
    """How many buckets so many entries want, now that they have `buckets`: the same, as long as these hold 1 to 16 on average.

    Else 4 to 8 each, so that the entries must become twice as many, or a quarter, before it happens again.
    """
    if entries <= _MOST * buckets and (entries >= buckets or buckets == 1):
        return buckets
    wanted = 1
    while wanted * (_MOST // 2) < entries:
        wanted *= 2
    return wanted


def _columns(marks: Sequence[int], updated: Sequence[int], lengths: Sequence[int]) -> bytes:
    """What comes before the pickles of a bucket; nothing for an empty one."""
    n = len(marks)
    return struct.pack(f"<I{n}I{n}q{n}I", n, *marks, *updated, *lengths) if n else b""


def _slot(change: Change) -> int:
    return change[0]


def _join(lengths: array[int], oldest: array[int], entries: int, pieces: Iterable[Pickle]) -> bytes:
    head = _HEAD.pack(_MAGIC, VERSION, len(lengths), entries)
    return b"".join((head, _bytes(lengths), _bytes(oldest), *pieces))


def _little_endian(code: str, data: bytes) -> array[int]:
    values = array(code)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _bytes(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()
