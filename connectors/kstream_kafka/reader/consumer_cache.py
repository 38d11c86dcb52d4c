"""ConsumerCache: the Kafka consumers of a Python worker process, one for each configuration.

The cache lends a consumer to one task at a time and keeps it between batches. To create a consumer takes 50–100 ms, to assign another range
about 1 ms. The cache replaces the JVM connector's consumer pool, in which an executor keeps one consumer for each partition. A worker
process runs one task at a time, so one consumer is enough. Only Spark's Python workers use the cache. A worker has one thread, so there is
no lock.

These rules each prevent a fault that has occurred:
- A forked child must not touch its parent's consumers, not even to close them, because their threads did not survive the fork.
- A repeated task gets a new consumer, and the cached one is closed, because it may be the cause of the first failure.
- After a failed read, its consumer is closed.
- A generator that was abandoned (by `take`) may be closed late, while the consumer already reads for the next task. Only the task with the
  latest loan may unassign the consumer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kstream_kafka.client.ports import RangeConsumer, Settings
from kstream_kafka.client.secrets import SecretSource

Factory = Callable[[Settings], RangeConsumer]
"""A function that creates a consumer from its properties."""


@dataclass
class _Entry:
    """A cached consumer.

    Attributes:
        consumer: the consumer.
        loan: how often the consumer was lent.
        borrower: the id of the task attempt that has the consumer now; None if it is free.
    """

    consumer: RangeConsumer
    loan: int = 0
    borrower: int | None = None


@dataclass
class ConsumerCache:
    """The consumers of this process, one for each configuration. Not thread-safe: a worker has one thread.

    Attributes:
        make: creates a consumer from its properties.
    """

    make: Factory
    _entries: dict[tuple[Any, ...], _Entry] = field(default_factory=dict[tuple[Any, ...], _Entry])
    _pid: int = field(default_factory=os.getpid)
    _of_the_parent: list[_Entry] = field(default_factory=list[_Entry])

    @contextmanager
    def lend(self, settings: Settings, task_attempt: int = -1, retry: bool = False) -> Generator[RangeConsumer]:
        """Lend a consumer for a `with` block. Creates one if there is none, which blocks for 50–100 ms.

        After the block the consumer is unassigned and kept, unless another task has borrowed it meanwhile. If the block fails, the consumer
        is closed. A repeated task, and a task that has the cached consumer already, get one of their own, which is closed after the block.

        Args:
            settings: complete consumer properties.
            task_attempt: Spark's unique id of the task attempt.
            retry: whether the task is a repeated one. Then the cached consumer is closed.

        Yields:
            The consumer.

        Raises:
            KafkaError: the consumer cannot be created.
        """
        self._forget_after_fork()
        key = settings_key(settings)
        entry = self._entries.get(key)
        if retry and entry is not None:
            self._drop(key, entry)
        if retry or (entry is not None and entry.borrower == task_attempt):
            # In the second case a task reads two ranges in turns (a zip of a stream with itself). Each range needs a consumer.
            yield from self._uncached(settings)
            return
        if entry is None:
            entry = self._entries[key] = _Entry(self.make(settings))
        entry.loan += 1
        entry.borrower = task_attempt
        loan = entry.loan
        try:
            yield entry.consumer
        except GeneratorExit:
            raise
        except BaseException:
            self._drop(key, entry)
            raise
        finally:
            if entry.loan == loan and self._entries.get(key) is entry:
                entry.borrower = None
                entry.consumer.unassign()

    def close(self) -> None:
        """Close every consumer that this process has created and kept."""
        self._forget_after_fork()
        for key, entry in list(self._entries.items()):
            self._drop(key, entry)

    def _uncached(self, settings: Settings) -> Generator[RangeConsumer]:
        """Yield a new consumer, and close it afterwards."""
        consumer = self.make(settings)
        try:
            yield consumer
        finally:
            consumer.close()

    def _drop(self, key: tuple[Any, ...], entry: _Entry) -> None:
        """Close a cached consumer, and keep it no longer. Another one that has its key by now stays."""
        if self._entries.get(key) is entry:
            del self._entries[key]
        entry.consumer.close()

    def _forget_after_fork(self) -> None:
        """Set the parent's consumers aside in a forked child, without touching them."""
        if self._pid != os.getpid():
            self._of_the_parent.extend(self._entries.values())  # kept, because freeing a consumer would touch it
            self._entries.clear()
            self._pid = os.getpid()


def settings_key(settings: Settings) -> tuple[Any, ...]:
    """Return the key of settings: equal for equal values. Callbacks are compared by `_callback_key`: each task unpickles its own copy."""
    return tuple((k, _callback_key(v) if callable(v) or isinstance(v, SecretSource) else v) for k, v in sorted(settings.items()))


def _callback_key(callback: Callable[..., Any] | SecretSource) -> str:
    """Return the identity of a callback or of the source of a secret, or the name of a callback that has none.

    A token callback has an identity, because two callbacks of one name may be of two users, and two users must not share a connection.
    """
    return str(getattr(callback, "identity", None) or getattr(callback, "__qualname__", "callback"))


_cache: ConsumerCache | None = None


def of_this_process() -> ConsumerCache:
    """Return the cache of this worker process. The first call creates it."""
    global _cache
    if _cache is None:
        from kstream_kafka.reader.range_consumer import KafkaRangeConsumer  # imported late, because only a task that reads needs librdkafka

        _cache = ConsumerCache(KafkaRangeConsumer)
    return _cache
