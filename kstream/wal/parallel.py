"""in_order: many small reads at once, their results in the order of what was asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from kstream.loop import Runtime, WorkerPool
from kstream.wal.outcome import Outcome

A = TypeVar("A")
B = TypeVar("B")


def in_order(items: Sequence[A], action: Callable[[A], B], most: int, runtime: Runtime) -> Iterator[B]:
    """`action` of each item. At most `most` are begun and not yet handed out, however slowly the results are taken.

    What an action raises comes where its result would have, and ends the iteration.
    """
    if not items:
        return
    pool = WorkerPool(min(most, len(items)), "WriteAheadLogReader", runtime)

    def begin(item: A) -> Outcome[B]:
        outcome = Outcome[B](runtime)
        pool.submit(lambda: _run(action, item, outcome))
        return outcome

    pool.start()
    try:
        rest = iter(items)
        begun = deque(begin(item) for item in islice(rest, most))
        while begun:
            outcome = begun.popleft()
            outcome.wait()
            if outcome.error is not None:
                raise outcome.error
            yield outcome.value
            begun.extend(begin(item) for item in islice(rest, 1))
    finally:
        pool.stop(0)


def _run(action: Callable[[A], B], item: A, outcome: Outcome[B]) -> None:
    try:
        outcome.succeed(action(item))
    except BaseException as e:  # raised where the result is waited for
        outcome.fail(e)
