"""One Kafka consumer per Python worker process and configuration, lent to one task at a time and kept between batches.

Making a consumer costs 50–100 ms, giving a live one another range about 1 ms. It takes the place of the JVM connector's
consumer pool: there each executor kept a consumer per partition, here a worker process runs one task at a time, so one
consumer, re-assigned, is enough. Runs in Spark's Python workers only; a worker is one thread, so there is no lock.

Rules, each of which has bitten someone:
- A forked child must not touch its parent's consumers, not even to close them: their threads did not survive the fork.
- A task that is tried again gets a fresh consumer of its own, and the cached one is dropped: it may be why the first try failed.
- A read that failed drops its consumer.
- A generator that was abandoned (`take`) may be closed late, when the consumer already reads for the next task: only the task that
  holds the loan may unassign.
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
    """A cached consumer; `loan` counts the loans made of it, `borrower` is the task attempt that has it now (None: nobody)."""

    consumer: RangeConsumer
    loan: int = 0
    borrower: int | None = None


@dataclass
class ConsumerCache:
    """The consumers of this process. `make` builds one from its properties."""

    make: Factory
    _entries: dict[tuple[Any, ...], _Entry] = field(default_factory=dict[tuple[Any, ...], _Entry])
    _pid: int = field(default_factory=os.getpid)
    _of_the_parent: list[_Entry] = field(default_factory=list[_Entry])

    @contextmanager
    def lend(self, settings: Settings, task_attempt: int = -1, retry: bool = False) -> Generator[RangeConsumer]:
        """A consumer for one range, unassigned afterwards. `task_attempt` is Spark's unique id of it; `retry` asks for a fresh one."""
        self._forget_after_fork()
        key = _key(settings)
        entry = self._entries.get(key)
        if retry and entry is not None:
            self._drop(key, entry)
        if retry or (entry is not None and entry.borrower == task_attempt):
            # The second case: one task reads two ranges in turns (a zip of a stream with itself), each needs its own.
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
        """Closes every consumer that is this process's own."""
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
            self._of_the_parent.extend(self._entries.values())  # kept, since to free them would touch them
            self._entries.clear()
            self._pid = os.getpid()


def _key(settings: Settings) -> tuple[Any, ...]:
    """Settings by value. A callback counts by its identity, if it has one, else by its name, since every task unpickles its own copy."""
    return tuple((k, _told_apart_by(v) if callable(v) else v) for k, v in sorted(settings.items()))


def _told_apart_by(callback: Callable[..., Any]) -> str:
    """Two token callbacks of one name may be two users: one must not read with the other's connection."""
    return str(getattr(callback, "identity", None) or getattr(callback, "__qualname__", "callback"))


_cache: ConsumerCache | None = None


def of_this_process() -> ConsumerCache:
    """The cache of this worker process, made at its first use."""
    global _cache
    if _cache is None:
        from kstream_kafka.reader.range_consumer import KafkaRangeConsumer  # here, so that only a task that reads loads librdkafka

        _cache = ConsumerCache(KafkaRangeConsumer)
    return _cache
