"""StateDStream: for each key a state, updated by the user's function with the values of each batch (updateStateByKey)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstream.batch import KeyHash
from kstream.batch_time import Time
from kstream.dstream.rdd_functions import co_grouped
from kstream.dstream.stateful_dstream import StatefulDStream
from kstream.worker.process import freeze_gc

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.dstream.dstream import DStream

Update = Callable[[Time, Any, list[Any], Any], Any]
"""(batch time, key, the key's values of this batch, its state or None) → its new state; None drops the key."""


def with_time_and_key(function: Callable[..., Any]) -> Update:
    """The user's function as one of (time, key, values, state).

    pyspark's form takes (values, state). One that must be given four arguments is handed the batch `Time` and the key as well, as the
    fullest form of Spark's Scala API is. TypeError for any other number.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins do not tell
        parameters = ()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    if required == 4:
        return function
    if required > 2:
        raise TypeError(f"{function!r} must take (values, state) or (time, key, values, state), it takes {required} arguments")
    return lambda _time, _key, values, state: function(values, state)


class StateDStream(StatefulDStream):
    """At T: every key that had a state or has values in the batch, with what `update` makes of them. Keys without data are given again.

    `update` also runs for a planned batch whose parent has no RDD. `initial`: what keys start with, seen in the first batch.
    """

    key_hash = KeyHash.PYSPARK
    operator = "updateStateByKey"

    def __init__(self, parent: DStream, update: Update, partitions: int, initial: RDD[Any] | None) -> None:
        super().__init__(parent, parent.slide_duration)
        self._update = update
        self._partitions_of_state = partitions
        self._initial = initial

    def compute(self, time: Time) -> RDD[Any] | None:
        values = self.dependencies[0].getOrCompute(time)
        state = self.previous(time) or self._initial
        sc = self.ssc.sparkContext
        before, new = state or sc.emptyRDD(), values or sc.emptyRDD()
        return self.placed(time, lambda: updated(before, new, self._update, time, self._partitions_of_state))


def updated(state: RDD[Any], values: RDD[Any], update: Update, time: Time, partitions: int) -> RDD[Any]:
    """The states after a batch, hashed by key into so many partitions. Shuffles only what is not yet so."""

    def run(entries: Iterable[tuple[Any, tuple[list[Any], list[Any]]]]) -> Iterable[Any]:
        freeze_gc()
        for key, (states, new) in entries:
            result = update(time, key, new, states[0] if states else None)
            if result is not None:
                yield key, result

    return co_grouped([state, values], partitions).mapPartitions(run, preservesPartitioning=True)
