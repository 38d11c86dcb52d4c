"""Split: the part of a file that one task reads. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kstream.files.file_status import FileStatus


@dataclass(frozen=True, slots=True)
class Split:
    """Bytes [start, end) of a file as it was planned."""

    file: FileStatus
    start: int
    end: int


def cut(files: Iterable[FileStatus], most_bytes: int, unit: int, can_cut: Callable[[str], bool]) -> list[Split]:
    """The files in their order, the larger ones in parts of about `most_bytes`, cut at multiples of `unit`.

    A last part of up to a tenth more is not worth a task of its own (Hadoop's SPLIT_SLOP).
    """
    step = max(unit, most_bytes // unit * unit)
    splits: list[Split] = []
    for file in files:
        at = 0
        while can_cut(file.path) and file.size - at > step * 1.1:
            splits.append(Split(file, at, at + step))
            at += step
        splits.append(Split(file, at, file.size))
    return splits
