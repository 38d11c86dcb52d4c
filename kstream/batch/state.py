"""StateCheckpoint: where one state stream's state of one batch lies, as the completion record names it. KeyHash: what placed its keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from kstream.batch_time import Time


class KeyHash(Enum):
    """Which function of a key says in which partition of a state it is."""

    NONE = "none"
    """None: a record may be anywhere."""
    PYSPARK = "pyspark"
    """`portable_hash`, by which pyspark places keys. Of text it is another one with another Python or PYTHONHASHSEED."""
    STABLE = "stable"
    """`stable_hash`, the same in every process."""


@dataclass(frozen=True, slots=True)
class StateCheckpoint:
    """`files[i]` holds partition i of the state as the batch at `time` left it. No files: there was no state yet.

    `hashing` is what the workers' portable_hash of a fixed word was: another Python, or another PYTHONHASHSEED, puts keys into other
    partitions. None where the state is empty.
    """

    time: Time
    files: Sequence[str]
    hashing: int | None = None
