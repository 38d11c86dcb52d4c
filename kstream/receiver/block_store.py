"""BlockStore: the received blocks of one executor, in memory up to a budget and on disk beyond it; and the clients of such a store.

The blocks die with the executor. The store is in a process of its own (`block_store_process`).

The stored form of a block, on the disk of a store and as a record of a receiver's write-ahead log: `KBLK` and the version (1 byte); then
each chunk, as its length (8 bytes, big-endian) and its bytes. A block without records has no chunks.
"""

from __future__ import annotations

import enum
import json
import logging
import re
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kstream.errors import (
    BlockNotStoredError,
    CorruptRecordError,
    FormatVersionError,
    KStreamError,
    RpcError,
    RpcUnreachableError,
)
from kstream.receiver.settings import BLOCK_STORE_MEMORY
from kstream.rpc import RpcClient, RpcCredentials

logger = logging.getLogger(__name__)
VERSION = 1
_MAGIC = b"KBLK"
_HEAD = len(_MAGIC) + 1
_LENGTH = struct.Struct(">Q")

_BLOCK_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")

REMOVE: Final = "remove"
"""The message that removes blocks: a JSON list of their ids."""
USAGE: Final = "usage"
"""The message that asks for `BlockStore.usage`."""
END: Final = "end"
"""The message by which a stopping driver ends its stores, because the executors may live longer."""


class Level(enum.Enum):
    """The places where a store may keep a block."""

    MEMORY = "memory"
    MEMORY_AND_DISK = "memory-and-disk"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class EffectiveStorageLevel:
    """The meaning of a Spark StorageLevel for received blocks."""

    level: str
    """The value of a block store's Level."""
    replicas: int
    """The number of executors that should have a block."""
    warnings: tuple[str, ...] = ()
    """Warnings about parts of the StorageLevel that have no effect on received blocks."""


def effective_storage_level(storage_level: Any, write_ahead_log: bool) -> EffectiveStorageLevel:
    """Return the effective level of a receiver's StorageLevel. Pure.

    With a write-ahead log one replica is enough, as in Spark. Off-heap is memory here. Blocks are always serialized; with a log a
    StorageLevel that asks otherwise gets Spark's warning.

    Args:
        storage_level: A pyspark StorageLevel; None is MEMORY_AND_DISK_2.
        write_ahead_log: Whether receivers write write-ahead logs.
    """
    if storage_level is None:
        return EffectiveStorageLevel(Level.MEMORY_AND_DISK.value, 1 if write_ahead_log else 2)
    memory = storage_level.useMemory or storage_level.useOffHeap
    level = Level.MEMORY_AND_DISK if memory and storage_level.useDisk else Level.DISK if storage_level.useDisk else Level.MEMORY
    if not write_ahead_log:
        return EffectiveStorageLevel(level.value, max(1, storage_level.replication))
    warnings: list[str] = []
    if storage_level.deserialized:
        warnings.append("Storage level serialization true is not supported when write ahead log is enabled, change to serialization false")
    if storage_level.replication > 1:
        warnings.append(
            f"Storage level replication {storage_level.replication} is unnecessary when write ahead log is enabled, change to replication 1"
        )
    return EffectiveStorageLevel(level.value, 1, tuple(warnings))


# -- the stored form


def encode_block(chunks: Iterable[bytes]) -> bytes:
    """Return the stored form of a block with these chunks."""
    return b"".join([_MAGIC, bytes([VERSION]), *(part for chunk in chunks for part in (_LENGTH.pack(len(chunk)), chunk))])


def decode_block(data: bytes, where: str) -> Sequence[bytes]:
    """Return the chunks of a block from its stored form.

    Args:
        data: The stored form.
        where: The place of the bytes, for error messages.

    Raises:
        CorruptRecordError: the bytes are no block, or a part of a block.
        FormatVersionError: another version of kstream has written the block.
    """
    if not data.startswith(_MAGIC) or len(data) < _HEAD:
        raise _corrupt(where, "its first bytes are not those of a block")
    if (version := data[len(_MAGIC)]) != VERSION:
        raise FormatVersionError(
            f"the received block at {where} has format version {version}, this kstream reads {VERSION}: upgrade kstream to read it",
            path=where,
            version=version,
            supported=VERSION,
        )
    found: list[bytes] = []
    at = _HEAD
    while at < len(data):
        until = at + _LENGTH.size
        if until > len(data) or (end := until + _LENGTH.unpack_from(data, at)[0]) > len(data):
            raise _corrupt(where, f"a chunk that begins at byte {at} goes beyond the {len(data)} bytes there are")
        found.append(data[until:end])
        at = end
    return found


def _corrupt(where: str, reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"{where} does not hold a received block: {reason}", path=where, reason=reason)


# -- the store


class BlockStore:
    """The received blocks of one executor. Thread-safe.

    A block is a few chunks of bytes under an id. It never changes: a second put of the same id changes nothing. `_lock` guards the maps
    of blocks. Files are written without it, so that reads continue meanwhile.
    """

    def __init__(self, memory_bytes: int, folder: Path) -> None:
        """Make an empty store.

        Args:
            memory_bytes: The most bytes of blocks in memory.
            folder: The folder for the files of all other blocks. It is created when the first block needs it.
        """
        self._budget = memory_bytes
        self._folder = folder
        self._lock = threading.Lock()
        self._used = 0
        self._memory: dict[str, tuple[bytes, ...]] = {}
        self._files: dict[str, int] = {}

    def put(self, block_id: str, chunks: Sequence[bytes], level: str = Level.MEMORY_AND_DISK.value) -> None:
        """Store a block. Blocks while the block is written to disk.

        Args:
            block_id: The id: letters, digits, `_` and `-`.
            chunks: The bytes of the block.
            level: The value of a Level.

        Raises:
            BlockNotStoredError: memory is full and the level allows no disk, or the disk failed. Nothing is stored.
            ValueError: the id is no valid id, or there is no such level.
        """
        if not _BLOCK_ID.fullmatch(block_id):
            raise ValueError(f"{block_id!r} is no name of a block")
        wanted, size = Level(level), sum(map(len, chunks))
        with self._lock:
            if block_id in self._memory or block_id in self._files:
                return
            if wanted is not Level.DISK and self._used + size <= self._budget:
                self._memory[block_id] = tuple(chunks)
                self._used += size
                return
            free = self._budget - self._used
        if wanted is Level.MEMORY:
            raise BlockNotStoredError(
                f"block {block_id} of {size} bytes does not fit into the {free} bytes of memory that are left, and may not be on disk: "
                f"use StorageLevel.MEMORY_AND_DISK, or increase {BLOCK_STORE_MEMORY}",
                block=block_id,
                size=size,
                free=free,
            )
        self._write(block_id, chunks)
        with self._lock:
            self._files[block_id] = size

    def get(self, block_id: str) -> tuple[bytes, ...]:
        """Return the chunks of a block. This may read a file.

        Raises:
            KeyError: the store does not have the block.
            CorruptRecordError: the file of the block is damaged.
        """
        with self._lock:
            chunks = self._memory.get(block_id)
            if chunks is not None:
                return chunks
            if block_id not in self._files:
                raise KeyError(block_id)
        try:
            return tuple(decode_block((self._folder / block_id).read_bytes(), str(self._folder / block_id)))
        except FileNotFoundError:  # removed since
            raise KeyError(block_id) from None

    def remove(self, block_ids: Iterable[str]) -> None:
        """Remove blocks. Ids of blocks that the store does not have are ignored."""
        for block_id in block_ids:
            with self._lock:
                self._used -= sum(map(len, self._memory.pop(block_id, ())))
                on_disk = self._files.pop(block_id, None) is not None
            if on_disk:
                (self._folder / block_id).unlink(missing_ok=True)

    def usage(self) -> dict[str, int]:
        """Return the number of blocks (`blocks`), and their bytes in memory (`memory_bytes`) and on disk (`disk_bytes`)."""
        with self._lock:
            return {
                "blocks": len(self._memory) + len(self._files),
                "memory_bytes": self._used,
                "disk_bytes": sum(self._files.values()),
            }

    def _write(self, block_id: str, chunks: Sequence[bytes]) -> None:
        """Write a block to its file. BlockNotStoredError if the disk fails; the file is then removed, if possible."""
        path = self._folder / block_id
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as file:
                file.write(encode_block(chunks))
        except OSError as e:
            with suppress(OSError):
                path.unlink()
            raise BlockNotStoredError(
                f"block {block_id} could not be written to {path}: {e}", block=block_id, size=sum(map(len, chunks)), free=0
            ) from e


# -- clients


def remove_blocks(store: RpcClient, block_ids: Iterable[str]) -> None:
    """Remove blocks from the store of another process, which ignores unknown ids. Blocks. RpcError if the store does not answer."""
    store.ask(REMOVE, json.dumps(list(block_ids)).encode())


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The address on which an executor's store listens, and the pid of the store's process."""

    host: str
    port: int
    pid: int


class BlockStoreClient:
    """A client of one executor's store. Thread-safe; every call blocks."""

    def __init__(self, executor_id: str, host: str, port: int, credentials: RpcCredentials) -> None:
        self.executor_id = executor_id
        self._client = RpcClient(host, port, credentials)

    def put(self, block_id: str, chunks: Sequence[bytes], level: str) -> None:
        """Store a block at a Level, given by its value. RpcError if the store did not take the block."""
        self._client.put(block_id, chunks, level)

    def remove(self, block_id: str) -> None:
        """Remove a block, if the store has it. RpcError if the store does not answer."""
        remove_blocks(self._client, [block_id])


class OwnBlockStoreClient(BlockStoreClient):
    """A client of the store of this worker's own executor. If that store has died, the next `put` starts another one."""

    def __init__(self, executor_id: str, host: str, port: int, credentials: RpcCredentials, start: Callable[[], StoreAddress]) -> None:
        """Make a client. `start` finds or starts a store of the executor, and returns its address; it may block."""
        super().__init__(executor_id, host, port, credentials)
        self._credentials = credentials
        self._start = start

    def put(self, block_id: str, chunks: Sequence[bytes], level: str) -> None:
        """Store a block; if the store is unreachable, start another one and store the block there. RpcError if that fails, too."""
        try:
            super().put(block_id, chunks, level)
        except RpcUnreachableError as e:
            logger.warning("the block store of this executor has died with its blocks; another one is started: %s", e)
            try:
                address = self._start()
            except (KStreamError, OSError) as error:
                raise RpcError(f"no block store could be started again: {error}", place=e.facts["place"]) from error
            self._client = RpcClient(address.host, address.port, self._credentials)
            super().put(block_id, chunks, level)
