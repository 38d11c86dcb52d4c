"""ConsumerCache: the Kafka consumers of a Python worker process, one a configuration, lent to one task at a time, kept between batches.

To create a consumer takes 50–100 ms, to assign another range about 1 ms. The cache takes the place of the JVM connector's consumer pool,
where an executor kept a consumer per partition. A worker process runs one task at a time, so one consumer is enough. Only Spark's Python
workers use the cache. A worker is one thread, so there is no lock.

Rules, each against a real fault:
- A forked child must not touch its parent's consumers, not even to close them: their threads did not survive the fork.
- A repeated task gets a new consumer, and the cached one is dropped, because it may be the cause of the first failure.
- A read that failed drops its consumer.
- A generator that was abandoned (`take`) may be closed late, when the consumer reads for the next task. Only the task that holds the loan
  may unassign.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kstream_kafka.client.ports import RangeConsumer, Settings

Factory = Callable[[Settings], RangeConsumer]


@dataclass
class _Entry:
    """A cached consumer. `loan` counts its loans; `borrower` is the task attempt that has it now, or None."""

    consumer: RangeConsumer
    loan: int = 0
    borrower: int | None = None


@dataclass
class ConsumerCache:
    """The consumers of this process. `make` creates one from its properties."""

    make: Factory
    _entries: dict[tuple[Any, ...], _Entry] = field(default_factory=dict[tuple[Any, ...], _Entry])
    _pid: int = field(default_factory=os.getpid)
    _of_the_parent: list[_Entry] = field(default_factory=list[_Entry])

    @contextmanager
    def lend(self, settings: Settings, task_attempt: int = -1, retry: bool = False) -> Generator[RangeConsumer]:
        """Lend a consumer. It is unassigned afterwards.

        Args:
            settings: complete consumer properties.
            task_attempt: Spark's unique id of the task attempt.
            retry: whether the task is a repeated one, which gets a new consumer.
        """
        self._forget_after_fork()
        key = _key(settings)
        entry = self._entries.get(key)
        if retry and entry is not None:
            self._drop(key, entry)
        if retry or (entry is not None and entry.borrower == task_attempt):
            # The second case: one task reads two ranges in turns (a zip of a stream with itself), and each needs a consumer.
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
        """Close every consumer of this process."""
        self._forget_after_fork()
        for key, entry in list(self._entries.items()):
            self._drop(key, entry)

    def _uncached(self, settings: Settings) -> Generator[RangeConsumer]:
        consumer = self.make(settings)
        try:
            yield consumer
        finally:
            consumer.close()

    def _drop(self, key: tuple[Any, ...], entry: _Entry) -> None:
        if self._entries.get(key) is entry:
            del self._entries[key]
        entry.consumer.close()

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._of_the_parent.extend(self._entries.values())  # kept, because to free them would touch them
            self._entries.clear()
            self._pid = os.getpid()


def _key(settings: Settings) -> tuple[Any, ...]:
    """Return the settings by value. A callback counts by its identity or its name, because every task unpickles its own copy."""
    return tuple((k, _callback_key(v) if callable(v) else v) for k, v in sorted(settings.items()))


def _callback_key(callback: Callable[..., Any]) -> str:
    """Return the identity of a callback. Two token callbacks of one name may be two users, who must not share a connection."""
    return str(getattr(callback, "identity", None) or getattr(callback, "__qualname__", "callback"))


_cache: ConsumerCache | None = None


def of_this_process() -> ConsumerCache:
    """Return the cache of this worker process, created at its first use."""
    global _cache
    if _cache is None:
        from kstream_kafka.reader.range_consumer import KafkaRangeConsumer  # only a task that reads loads librdkafka

        _cache = ConsumerCache(KafkaRangeConsumer)
    return _cache
