"""Kafka offset ranges for people. Reads the plain data of a plan, so that it needs no connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

Range: TypeAlias = tuple[str, int, int, int]
"""Topic, partition, from (read), until (not read)."""


def kafka_ranges(data: Mapping[str, Any]) -> list[Range] | None:
    """The ranges in a stream's plan data; None if it has none, as a stream that is not Kafka's."""
    stored = data.get("ranges")
    if not isinstance(stored, list) or not all(isinstance(r, list) and len(r) == 4 for r in stored):
        return None
    return [(str(t), int(p), int(a), int(b)) for t, p, a, b in stored]


def compact(ranges: Sequence[Range], most: int = 8) -> str:
    """`orders/0 [5, 10) /1 [7, 9)`: ranges that hold something; the others, and those past `most`, are counted."""
    full = [r for r in sorted(ranges) if r[3] > r[2]]
    empty = len(ranges) - len(full)
    words: list[str] = []
    for topic, rows in groupby(full[:most], key=lambda r: r[0]):
        words += [f"{topic if i == 0 else ''}/{p} [{a}, {b})" for i, (_, p, a, b) in enumerate(rows)]
    if len(full) > most:
        words.append(f"… {len(full) - most} more")
    if empty:
        words.append(f"({empty} empty)" if full else f"{empty} empty")
    return " ".join(words)
