"""StateCheckpoint: where one state stream's state of one batch lies, as the completion record names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kstream.batch_time import Time


@dataclass(frozen=True, slots=True)
class StateCheckpoint:
    """`files[i]` holds partition i of the state as the batch at `time` left it. No files: there was no state yet.

    `hashing` is what the workers' hash of a fixed word was: another Python, or another PYTHONHASHSEED, puts keys into other partitions.
    None where the state is empty.
    """

    time: Time
    files: Sequence[str]
    hashing: int | None = None
