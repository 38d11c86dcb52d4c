"""Packing: which task reads what. Small ranges into few tasks, large ones into several, both only on request. Pure.

A Python task costs some 30 ms and more, a small range read together with others a tenth of one: a thousand partitions with a few
records each are read far sooner by a few tasks. A range of millions of records, the other way round, keeps one core busy and the
others waiting. Packed tasks hold pieces in the order of (topic, partition, offset) and follow each other in that order, so the order
inside a Kafka partition is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

from kstream_kafka.planning.offset_range import OffsetRange

RANGE_COST = 100
"""What a range costs besides its records, in records: to assign it and to serve it in a fetch takes the client and the broker as long
as to read about so many. Without it a task with hundreds of ranges of one record would count for less than one with a short range."""

SMALL_RANGE = 1_000
"""Up to so many records a range is read with small fetches, and together with other small ones of its task."""
MOST_TOGETHER = 250
"""Ranges read at once. What the client does for an assigned partition grows with their number; beyond some hundreds that costs more
than the fetch it saves. And a fetch brings up to 64 KiB of each, wanted or not."""
MOST_RECORDS_TOGETHER = 10_000
"""Records of ranges read at once: they may have to wait in memory until it is their turn."""


@dataclass(frozen=True, slots=True)
class Packing:
    """What is asked for; 0 is nothing. `max_tasks`: most tasks a batch. `max_records_per_task`: longer ranges are split."""

    max_tasks: int = 0
    max_records_per_task: int = 0


NOT_PACKED = Packing()
"""Task i reads range i."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range that one task reads, or a part of it. `leader_epoch` is that of its end when it was planned, `from_epoch` the one under
    which its first offset was reached (None: unknown)."""

    range: OffsetRange
    leader_epoch: int | None = None
    from_epoch: int | None = None


TaskPieces: TypeAlias = tuple[Piece, ...]


def pack(pieces: Sequence[Piece], packing: Packing) -> tuple[TaskPieces, ...]:
    """The pieces of each task, out of whole ranges.

    Nothing asked for: task i reads range i, empty ranges included. With `max_records_per_task` alone the parts of a range have
    consecutive tasks, and a range that is short enough still has one of its own. With `max_tasks` there are no more than that, none of
    them empty: no records at all are no task at all. With both, ranges are split first: a task may then hold more than one part.
    """
    if packing.max_records_per_task > 0:
        pieces = [part for piece in pieces for part in _split(piece, packing.max_records_per_task)]
    if packing.max_tasks <= 0:
        return tuple((piece,) for piece in pieces)
    full = sorted((p for p in pieces if p.range.count() > 0), key=lambda p: (p.range.topic, p.range.partition, p.range.fromOffset))
    return tuple(tuple(_merged(task)) for task in _cut(full, packing.max_tasks))


def _split(piece: Piece, most: int) -> list[Piece]:
    """Parts of at most so many records, as even as can be."""
    r = piece.range
    parts = max(1, -(-r.count() // most))
    edges = [r.fromOffset + r.count() * i // parts for i in range(parts + 1)]
    epoch = piece.leader_epoch  # of the later parts' beginnings no other is known
    return [
        Piece(OffsetRange(r.topic, r.partition, a, b), epoch, piece.from_epoch if a == r.fromOffset else epoch) for a, b in pairwise(edges)
    ]


def _cut(pieces: Sequence[Piece], most: int) -> list[list[Piece]]:
    """At most `most` runs of neighbours, each weighing no more than an equal share and one piece: a piece goes where its middle lies."""
    if len(pieces) <= most:
        return [[piece] for piece in pieces]
    ends = list(accumulate(piece.range.count() + RANGE_COST for piece in pieces))
    runs: dict[int, list[Piece]] = {}
    for piece, begin, end in zip(pieces, [0, *ends], ends, strict=False):
        runs.setdefault((begin + end) * most // (2 * ends[-1]), []).append(piece)
    return list(runs.values())


def _merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Parts of one range that have come together again are one piece: it is read in one go."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and _continues(merged[-1], piece):
            r = piece.range
            first = merged[-1]
            whole = OffsetRange(r.topic, r.partition, first.range.fromOffset, r.untilOffset)
            merged[-1] = Piece(whole, piece.leader_epoch, first.from_epoch)
        else:
            merged.append(piece)
    return merged


def _continues(one: Piece, other: Piece) -> bool:
    a, b = one.range, other.range
    return (a.topic, a.partition, a.untilOffset, one.leader_epoch) == (b.topic, b.partition, b.fromOffset, other.leader_epoch)


def is_small(piece: Piece) -> bool:
    """Whether it is read with small fetches."""
    return piece.range.count() <= SMALL_RANGE


def groups(pieces: Iterable[Piece]) -> Iterator[tuple[Piece, ...]]:
    """The pieces of a task as they are read: small neighbours together, as far as memory allows, a large one alone, empty ones not at all.

    No two pieces of a group are of one partition (ranges that a user gave may leave gaps, or overlap): a client reads a partition
    from one place at a time.
    """
    together: dict[tuple[str, int], Piece] = {}
    records = 0
    for piece in pieces:
        r = piece.range
        if r.count() <= 0:
            continue
        full = len(together) == MOST_TOGETHER or records + r.count() > MOST_RECORDS_TOGETHER or (r.topic, r.partition) in together
        if together and (full or not is_small(piece)):
            yield tuple(together.values())
            together, records = {}, 0
        if is_small(piece):
            together[r.topic, r.partition] = piece
            records += r.count()
        else:
            yield (piece,)
    if together:
        yield tuple(together.values())
