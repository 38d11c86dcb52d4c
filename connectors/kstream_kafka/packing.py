"""Packing: which task reads what. Small ranges into few tasks, large ones into several, both only on request. Pure.

A Python task costs some 30 ms and more, a range inside a task about one: a thousand partitions with a few records each are read far
sooner by a few tasks. A range of millions of records, the other way round, keeps one core busy and the others waiting. Tasks hold
pieces in the order of (topic, partition, offset) and follow each other in that order, so the order inside a Kafka partition is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

from kstream_kafka.offset_range import OffsetRange

RANGE_COST = 500
"""What a range costs besides its records, in records: to assign it and get its first fetch takes as long as to read about so many."""


@dataclass(frozen=True, slots=True)
class Packing:
    """What is asked for; 0 is nothing. `max_tasks`: most tasks a batch. `max_records_per_task`: longer ranges are split."""

    max_tasks: int = 0
    max_records_per_task: int = 0


NOT_PACKED = Packing()
"""Task i reads range i."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range that one task reads, or a part of it, with the leader epoch of its plan (None: unknown)."""

    range: OffsetRange
    leader_epoch: int | None = None


TaskPieces: TypeAlias = tuple[Piece, ...]


def pack(ranges: Sequence[OffsetRange], leader_epochs: Sequence[int | None], packing: Packing) -> tuple[TaskPieces, ...]:
    """The pieces of each task. `leader_epochs[i]` belongs to `ranges[i]`.

    Nothing asked for: task i reads range i, empty ranges included. With `max_tasks` empty ranges get no task, and no task has two
    pieces of one Kafka partition. With `max_records_per_task` alone a range that is short enough still has a task of its own.
    """
    pieces = [Piece(r, epoch) for r, epoch in zip(ranges, leader_epochs, strict=True)]
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
    return [Piece(OffsetRange(r.topic, r.partition, a, b), piece.leader_epoch) for a, b in pairwise(edges)]


def _cut(pieces: Sequence[Piece], most: int) -> list[list[Piece]]:
    """At most `most` runs of neighbours, each weighing no more than its share and one piece: a piece goes where its middle lies."""
    if len(pieces) <= most:
        return [[piece] for piece in pieces]
    ends = list(accumulate(piece.range.count() + RANGE_COST for piece in pieces))
    runs: dict[int, list[Piece]] = {}
    for piece, begin, end in zip(pieces, [0, *ends], ends, strict=False):
        runs.setdefault((begin + end) * most // (2 * ends[-1]), []).append(piece)
    return list(runs.values())


def _merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Neighbours that follow each other in one partition are one piece again."""
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1].range if merged else None
        r = piece.range
        if last is not None and (last.topic, last.partition, last.untilOffset) == (r.topic, r.partition, r.fromOffset):
            merged[-1] = Piece(OffsetRange(r.topic, r.partition, last.fromOffset, r.untilOffset), piece.leader_epoch)
        else:
            merged.append(piece)
    return merged
