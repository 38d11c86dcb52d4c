"""CollectedOutput: the records of a stream, batch by batch, for a test."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from kstream.batch_time import BatchTime

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.dstream.dstream import DStream

_known: WeakValueDictionary[int, CollectedOutput] = WeakValueDictionary()
_numbers = itertools.count()


class CollectedOutput:
    """An output operation that keeps the records of every batch, in the order in which the batches ran.

    Create it before the start. A graph that is restored in the same process fills the same object. A batch that runs twice occurs twice.
    Read `batches` after `ManualClock.advance` has returned, or after the stop. Any thread.
    """

    def __init__(self, stream: DStream[Any]) -> None:
        self._number = next(_numbers)
        self._lock = threading.Lock()
        self._batches: list[tuple[BatchTime, list[Any]]] = []
        _known[self._number] = self
        stream.foreachRDD(self)

    def __call__(self, time: BatchTime, rdd: RDD[Any]) -> None:
        """Keep the records of a batch: the function that `foreachRDD` calls, in a job thread. Blocks on a Spark job."""
        records = rdd.collect()
        with self._lock:
            self._batches.append((time, records))

    @property
    def batches(self) -> list[list[Any]]:
        """The records of each batch, in the order in which the batches ran."""
        with self._lock:
            return [records for _, records in self._batches]

    @property
    def times(self) -> list[BatchTime]:
        """The batch times in the same order, as foreachRDD passes them."""
        with self._lock:
            return [time for time, _ in self._batches]

    def __reduce__(self) -> Any:
        return _collected, (self._number,)  # unpickled as the same object, because the test does not read a copy

    def __repr__(self) -> str:
        return f"<CollectedOutput {len(self._batches)} batches>"


def _collected(number: int) -> CollectedOutput:
    """Return the CollectedOutput with this number. In another process, where no test reads it, return an empty one."""
    found = _known.get(number)
    if found is None:
        found = CollectedOutput.__new__(CollectedOutput)
        found._number, found._lock, found._batches = number, threading.Lock(), []  # pyright: ignore[reportPrivateUsage]
    return found
