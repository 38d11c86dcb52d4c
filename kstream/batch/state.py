"""StateCheckpoint: the files of one stream's state after one batch, as a completion names them. KeyHash: the hash that placed its keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from kstream.batch_time import Time


class KeyHash(Enum):
    """The function that gives the partition of a key in a state."""

    NONE = "none"
    """No function: a record may be in any partition."""
    PYSPARK = "pyspark"
    """pyspark's `portable_hash`. For text its value depends on the Python version and on PYTHONHASHSEED."""
    STABLE = "stable"
    """`kstream.rdd.stable_hash`: its values are the same in every process."""


@dataclass(frozen=True, slots=True)
class StateCheckpoint:
    """The stored state of one stream after one batch.

    Attributes:
        time: the batch.
        files: the file of each partition, in order; empty if there was no state yet.
        hashing: the workers' `portable_hash` of a fixed word. If another Python or PYTHONHASHSEED gives another value, keys belong into
            other partitions. None if the state is empty.
    """

    time: Time
    files: Sequence[str]
    hashing: int | None = None
