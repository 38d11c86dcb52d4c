"""What a StorageLevel of Spark's means for received blocks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kstream.receiver.block_store import Level


@dataclass(frozen=True, slots=True)
class Keeping:
    """How a receiver's blocks are kept: `how` is the value of a block store's Level. `warnings`: what was asked for and is not done."""

    how: str
    replicas: int
    warnings: tuple[str, ...] = ()


def keeping(level: Any, write_ahead_log: bool) -> Keeping:
    """`level` is a StorageLevel; None is MEMORY_AND_DISK_2. With a write-ahead log one replica is enough, as in Spark.

    Off-heap is memory here. Blocks are always serialized: that a level says otherwise makes no difference, but with a log Spark warns.
    """
    if level is None:
        return Keeping(Level.MEMORY_AND_DISK.value, 1 if write_ahead_log else 2)
    memory = level.useMemory or level.useOffHeap
    how = Level.MEMORY_AND_DISK if memory and level.useDisk else Level.DISK if level.useDisk else Level.MEMORY
    if not write_ahead_log:
        return Keeping(how.value, max(1, level.replication))
    warnings: list[str] = []
    if level.deserialized:
        warnings.append("Storage level serialization true is not supported when write ahead log is enabled, change to serialization false")
    if level.replication > 1:
        warnings.append(
            f"Storage level replication {level.replication} is unnecessary when write ahead log is enabled, change to replication 1"
        )
    return Keeping(how.value, 1, tuple(warnings))
