"""The dead letters of a batch that are stored already, by the places of their records. Pure.

The report of a task names the letters that it has stored. The driver gives those of all tasks to the tasks of the next output, as the text
of one of Spark's local properties. A function that was pickled before the first output ran could not have them.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Set
from itertools import accumulate, pairwise
from typing import TypeAlias

LetterOrigin: TypeAlias = tuple[str, int | None, str]
"""(topic, partition, operator) of records that failed."""
StoredLetters: TypeAlias = dict[LetterOrigin, set[int]]
"""Origin → the offsets of the records whose letters are stored."""


def add_letters(into: StoredLetters, more: Mapping[LetterOrigin, Set[int]]) -> None:
    """Add letters to others."""
    for origin, offsets in more.items():
        into.setdefault(origin, set()).update(offsets)


def letters_text(letters: Mapping[LetterOrigin, Set[int]]) -> str:
    """Return letters as text of ASCII characters, about two for a letter. Offsets are written as distances: near ones are short."""
    rows = [[*origin, _distances(sorted(offsets))] for origin, offsets in letters.items() if offsets]
    return base64.b64encode(zlib.compress(json.dumps(rows).encode())).decode()


def letters_of_text(text: str) -> StoredLetters:
    rows = json.loads(zlib.decompress(base64.b64decode(text)))
    return {(topic, partition, operator): set(accumulate(distances)) for topic, partition, operator, distances in rows}


def _distances(offsets: list[int]) -> list[int]:
    """Return the first offset, and the distance of each other one from that before it."""
    return [offsets[0], *(after - before for before, after in pairwise(offsets))]
