"""The stored form of one partition's states: reading its index without decoding keys and states, and making new bytes.

    head      4 s  b"KSM" and the version    4 u  buckets, a power of 2    8 u  entries
    lengths   4 u  for each bucket, its bytes; 0 for an empty one
    oldest    8 i  for each bucket, the least update time in it (ms); 2^63 - 1 for an empty one
    buckets   one after the other; of n entries:
              4 u  n    n × 4 u  marks    n × 8 i  update times (ms)    n × 4 u  lengths    n pickles of (key, state)

All numbers are little-endian. The mark of an entry is the upper half of its key's stable_hash; the low bits of the mark are the number of
its bucket. So marks and update times are read without unpickling, and a change of the number of buckets moves the pickles unchanged.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from kstream.errors import CorruptRecordError, FormatVersionError

VERSION = 1
NEVER = 2**63 - 1
_MAGIC = b"KSM"
_HEAD = struct.Struct("<3sBIQ")
_COUNT = struct.Struct("<I")
_TIME = struct.Struct("<q")
_LENGTHS = [struct.Struct(f"<{n}I") for n in range(65)]
_MOST = 16
"""If the buckets have more entries than this on average, or less than one, `fitting` chooses another number of buckets."""


Pickle = bytes | memoryview
Row = tuple[int, int, Pickle]
"""An entry to be put into a bucket: mark, update time, pickle."""
Change = tuple["Place | None", int, int, bytes | None]
"""A change of an entry: its place (None for a new entry), mark, update time, and new pickle. b"" keeps the old pickle, None drops the
entry."""


class Place(NamedTuple):
    """The place of a stored entry: its slot in its bucket, its update time, and the begin and end of its pickle in the bytes."""

    slot: int
    updated: int
    begin: int
    end: int


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
        """Return the bucket with some changes.

        Args:
            changes: the changes of this bucket's entries.

        Returns:
            The pieces of the new bytes, and the least update time. The entries between two changed ones are copied as one piece.
        """
        marks, updated, bounds = list(self.marks), list(self.updated), self.bounds
        lengths = [end - begin for begin, end in pairwise(bounds)]
        pieces: list[Pickle] = [b""]
        copied = bounds[0]
        gone: list[int] = []
        for place, _, time_ms, new in sorted(changes, key=_slot):
            if place is None:
                continue
            slot = place.slot
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
        for place, mark, time_ms, new in changes:
            if place is None and new:
                marks.append(mark)
                updated.append(time_ms)
                lengths.append(len(new))
                pieces.append(new)
        pieces[0] = _columns(marks, updated, lengths)
        return pieces, min(updated, default=NEVER)


class StateForm:
    """The bytes of one partition, with their index. The buckets are not read yet. Never changes."""

    def __init__(self, data: bytes) -> None:
        """Read the index.

        Raises:
            CorruptRecordError: the bytes are not states, or are cut.
            FormatVersionError: a newer kstream has written the bytes.
        """
        self.data = data
        magic, version, self.buckets, self.entries = _HEAD.unpack_from(data) if len(data) >= _HEAD.size else (b"", 0, 0, 0)
        if magic != _MAGIC:
            raise CorruptRecordError(
                f"{len(data)} bytes that should be the states of a partition begin with {data[:4]!r}", path=None, reason="no state map"
            )
        if version > VERSION:
            raise FormatVersionError(
                f"states are stored in version {version} of their form, this kstream reads up to {VERSION}: use the newer kstream",
                path=None,
                version=version,
                supported=VERSION,
            )
        self._view = memoryview(data)
        index = _HEAD.size + 4 * self.buckets
        body = index + 8 * self.buckets
        self.lengths = _from_little_endian("I", data[_HEAD.size : index])
        self.oldest = _from_little_endian("q", data[index:body])
        self.bounds = array("Q", accumulate(self.lengths, initial=body))
        if self.bounds[-1] != len(data):
            raise CorruptRecordError(
                f"the states of a partition should take {self.bounds[-1]} bytes, there are {len(data)}", path=None, reason="length"
            )

    def place(self, number: int, mark: int, after: int = -1) -> Place | None:
        """Return the next entry of a bucket with this mark; None if there is none. No other entry of the bucket is unpacked.

        Args:
            number: the number of the bucket.
            mark: the mark of the entry.
            after: the slot after which the search begins.
        """
        if not self.lengths[number]:
            return None
        at = self.bounds[number] + 4
        (n,) = _COUNT.unpack_from(self.data, at - 4)
        found = self.data.find(_COUNT.pack(mark), at + 4 * (after + 1), at + 4 * n)
        while (found - at) & 3 and found >= 0:  # not aligned: the end of one mark and the beginning of the next
            found = self.data.find(_COUNT.pack(mark), found + 1, at + 4 * n)
        if found < 0:
            return None
        slot = (found - at) >> 2
        column = _LENGTHS[slot + 1] if slot < 64 else struct.Struct(f"<{slot + 1}I")
        lengths = column.unpack_from(self.data, at + 12 * n)
        end = at + 16 * n + sum(lengths)
        (updated,) = _TIME.unpack_from(self.data, at + 4 * n + 8 * slot)
        return Place(slot, updated, end - lengths[slot], end)

    def pickle(self, place: Place) -> memoryview:
        return self._view[place.begin : place.end]

    def bucket(self, number: int) -> Bucket:
        """Unpack the columns of a bucket. The pickles stay as they are."""
        if not self.lengths[number]:
            return Bucket(self._view, (), (), [self.bounds[number]])
        at = self.bounds[number]
        (n,) = _COUNT.unpack_from(self.data, at)
        columns = struct.unpack_from(f"<{n}I{n}q{n}I", self.data, at + 4)
        bounds = list(accumulate(columns[2 * n :], initial=at + 4 + 16 * n))
        return Bucket(self._view, columns[:n], columns[n : 2 * n], bounds)

    def older_than(self, time_ms: int) -> list[int]:
        """Return the numbers of the buckets that have an entry updated before `time_ms`."""
        if min(self.oldest) >= time_ms:
            return []
        return [number for number, oldest in enumerate(self.oldest) if oldest < time_ms]

    def replaced(self, changes: Mapping[int, list[Change]], entries: int) -> bytes:
        """Return new bytes with some entries changed. Buckets without changes are copied as bytes.

        Args:
            changes: the changes of each bucket, by its number.
            entries: the number of entries after the changes.
        """
        lengths, oldest = self.lengths[:], self.oldest[:]
        pieces: list[Pickle] = []
        copied = self.bounds[0]
        for number in sorted(changes):
            pieces.append(self._view[copied : self.bounds[number]])
            copied = self.bounds[number + 1]
            of_bucket = changes[number]
            place, _, updated, pickle = of_bucket[0]
            if len(of_bucket) == 1 and place is not None and pickle is not None:
                pieces += self._patched(number, place, updated, pickle)
                lengths[number] += len(pickle) - (place.end - place.begin if pickle else 0)
                if place.updated == oldest[number]:
                    oldest[number] = min(updated, *self._others(number, place.slot))
                continue
            new, oldest[number] = self.bucket(number).changed(of_bucket)
            lengths[number] = sum(map(len, new))
            pieces += new
        pieces.append(self._view[copied:])
        return _join(lengths, oldest, entries, pieces)

    def _patched(self, number: int, place: Place, updated: int, pickle: bytes) -> Iterable[Pickle]:
        """Return the pieces of a bucket with one entry changed, which is the most frequent case. The columns are not unpacked.

        Args:
            number: the number of the bucket.
            place: the place of the entry.
            updated: the new update time.
            pickle: the new pickle; b"" keeps the old one.
        """
        view, at = self._view, self.bounds[number]
        (n,) = _COUNT.unpack_from(self.data, at)
        time = at + 4 + 4 * n + 8 * place.slot
        length = at + 4 + 12 * n + 4 * place.slot
        new_time = _TIME.pack(updated)
        if not pickle:
            return view[at:time], new_time, view[time + 8 : self.bounds[number + 1]]
        return (
            view[at:time],
            new_time,
            view[time + 8 : length],
            _COUNT.pack(len(pickle)),
            view[length + 4 : place.begin],
            pickle,
            view[place.end : self.bounds[number + 1]],
        )

    def _others(self, number: int, slot: int) -> list[int]:
        """Return the update times of a bucket without that of one slot; `[NEVER]` if there are no others."""
        at = self.bounds[number]
        (n,) = _COUNT.unpack_from(self.data, at)
        times = list(struct.unpack_from(f"<{n}q", self.data, at + 4 + 4 * n))
        del times[slot]
        return times or [NEVER]


def form_of(rows: Iterable[Row], buckets: int) -> bytes:
    """Return the bytes of a partition with these entries.

    Args:
        rows: the entries, in any order.
        buckets: the number of buckets, a power of 2.
    """
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
    """Return the number of buckets for a number of entries.

    The number stays as it is while the buckets hold 1 to 16 entries on average. Otherwise it becomes the power of 2 that gives 4 to 8
    entries each. Then the number of entries must double, or fall to a quarter, before it changes again.

    Args:
        entries: the number of entries.
        buckets: the present number of buckets.
    """
    if entries <= _MOST * buckets and (entries >= buckets or buckets == 1):
        return buckets
    wanted = 1
    while wanted * (_MOST // 2) < entries:
        wanted *= 2
    return wanted


def _columns(marks: Sequence[int], updated: Sequence[int], lengths: Sequence[int]) -> bytes:
    """Return the bytes of a bucket before its pickles; b"" for an empty bucket."""
    n = len(marks)
    return struct.pack(f"<I{n}I{n}q{n}I", n, *marks, *updated, *lengths) if n else b""


def _slot(change: Change) -> int:
    """Return the slot of a changed entry, as a sort key; −1 for a new entry."""
    return -1 if change[0] is None else change[0].slot


def _join(lengths: array[int], oldest: array[int], entries: int, pieces: Iterable[Pickle]) -> bytes:
    """Return the bytes of a partition, from the columns of its index and the pieces of its buckets."""
    head = _HEAD.pack(_MAGIC, VERSION, len(lengths), entries)
    return b"".join((head, _to_little_endian(lengths), _to_little_endian(oldest), *pieces))


def _from_little_endian(code: str, data: bytes) -> array[int]:
    values = array(code)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _to_little_endian(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()
