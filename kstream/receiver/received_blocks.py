"""ReceivedBlocks: what a receiver has stored and no batch has forgotten yet, in blocks. In memory, for the driver that received it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable
from typing import Any

from kstream.clock import Clock
from kstream.errors import IllegalStateError

Block = list[Any]


class ReceivedBlocks:
    """Thread-safe. A block is what came in one block interval (Spark's `spark.streaming.blockInterval`), or in one call of `add_all`.

    Its id is `input-<stream>-<driver>-<number>`: `driver` is drawn anew by each driver, so that a block of one that died is never taken
    for another's. Numbers rise in the order of arrival.
    """

    def __init__(self, stream_id: int, clock: Clock, interval_ms: int) -> None:
        self._prefix = f"input-{stream_id}-{uuid.uuid4().hex[:8]}"
        self._clock = clock
        self._interval = interval_ms
        self._lock = threading.Lock()
        self._made = 0
        self._open: Block = []
        self._opened_in = 0
        self._blocks: dict[str, Block] = {}
        self._waiting: dict[str, None] = {}
        self._closed = False

    def add(self, record: Any) -> None:
        """Into the open block; IllegalStateError after `close`."""
        interval = self._clock.time_ms() // self._interval
        with self._lock:
            self._check_open()
            if self._open and interval != self._opened_in:
                self._cut()
            self._opened_in = interval
            self._open.append(record)

    def add_all(self, records: Iterable[Any]) -> None:
        """As a block of their own, behind what came before; of no records none. IllegalStateError after `close`."""
        block = list(records)  # before the lock: it may take its time
        with self._lock:
            self._check_open()
            self._cut()
            self._open = block
            self._cut()

    def close(self) -> None:
        """Nothing more comes in."""
        with self._lock:
            self._closed = True

    def waiting(self) -> list[tuple[str, int]]:
        """Ids and sizes of the blocks that no batch has taken, in the order of arrival; the open block is closed first."""
        with self._lock:
            self._cut()
            return [(name, len(self._blocks[name])) for name in self._waiting]

    def take(self, names: Iterable[str]) -> None:
        """A batch's plan with these blocks is durable."""
        with self._lock:
            for name in names:
                self._waiting.pop(name, None)

    def get(self, name: str) -> Block | None:
        """A block's records; None if it is not here (any more)."""
        with self._lock:
            return self._blocks.get(name)

    def remove(self, names: Iterable[str]) -> None:
        """Nobody needs these any more."""
        with self._lock:
            for name in names:
                self._blocks.pop(name, None)

    def __len__(self) -> int:
        """How many blocks are kept."""
        with self._lock:
            return len(self._blocks)

    def _cut(self) -> None:
        if self._open:
            self._made += 1
            name = f"{self._prefix}-{self._made}"
            self._blocks[name], self._open = self._open, []
            self._waiting[name] = None

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the receiver's stream has stopped: nothing can be stored any more", state="stopped")
