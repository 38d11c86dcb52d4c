"""BlockStore: the received blocks of one executor, in memory up to a budget and on disk beyond it. They die with the executor."""

from __future__ import annotations

import enum
import re
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from kstream.errors import BlockNotStoredError
from kstream.receiver.block_form import joined, split

_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")


class Level(enum.Enum):
    """Where a block may lie; of Spark's StorageLevel what has a meaning here."""

    MEMORY = "memory"
    MEMORY_AND_DISK = "memory-and-disk"
    DISK = "disk"


class BlockStore:
    """Thread-safe. A block is a few chunks of bytes under a name, and never changes: putting it again changes nothing.

    At most `memory_bytes` are held in memory. A block that does not fit goes to a file in `folder`, or is refused with
    BlockNotStoredError if it may not lie on disk. Files are written without the lock, so that reads go on meanwhile.
    """

    def __init__(self, memory_bytes: int, folder: Path) -> None:
        self._budget = memory_bytes
        self._folder = folder
        self._lock = threading.Lock()
        self._used = 0
        self._memory: dict[str, tuple[bytes, ...]] = {}
        self._files: dict[str, int] = {}

    def put(self, name: str, chunks: Sequence[bytes], how: str = Level.MEMORY_AND_DISK.value) -> None:
        """Returns when the block is kept. `how` is the value of a Level. BlockNotStoredError, and nothing is kept."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a block")
        level, size = Level(how), sum(map(len, chunks))
        with self._lock:
            if name in self._memory or name in self._files:
                return
            if level is not Level.DISK and self._used + size <= self._budget:
                self._memory[name] = tuple(chunks)
                self._used += size
                return
            free = self._budget - self._used
        if level is Level.MEMORY:
            raise BlockNotStoredError(
                f"block {name} of {size} bytes does not fit into the {free} bytes of memory that are left, and may not lie on disk: "
                "let it (StorageLevel.MEMORY_AND_DISK), or give spark.streaming.kstream.blockStore.memory more",
                block=name, size=size, free=free,
            )  # fmt: skip
        self._write(name, chunks)
        with self._lock:
            self._files[name] = size

    def get(self, name: str) -> tuple[bytes, ...]:
        """Its chunks. KeyError if it is not here."""
        with self._lock:
            chunks = self._memory.get(name)
            if chunks is not None:
                return chunks
            if name not in self._files:
                raise KeyError(name)
        try:
            return tuple(split((self._folder / name).read_bytes(), str(self._folder / name)))
        except FileNotFoundError:  # removed since
            raise KeyError(name) from None

    def remove(self, names: Iterable[str]) -> None:
        """Those that are here."""
        for name in names:
            with self._lock:
                self._used -= sum(map(len, self._memory.pop(name, ())))
                on_disk = self._files.pop(name, None) is not None
            if on_disk:
                (self._folder / name).unlink(missing_ok=True)

    def usage(self) -> dict[str, int]:
        """How many blocks and bytes, by where they are."""
        with self._lock:
            return {
                "blocks": len(self._memory) + len(self._files),
                "memory_bytes": self._used,
                "disk_bytes": sum(self._files.values()),
            }

    def _write(self, name: str, chunks: Sequence[bytes]) -> None:
        path = self._folder / name
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as file:
                file.write(joined(chunks))
        except OSError as e:
            with suppress(OSError):
                path.unlink()
            raise BlockNotStoredError(
                f"block {name} could not be written to {path}: {e}", block=name, size=sum(map(len, chunks)), free=0
            ) from e
