"""PairDStreamFunctions: transformations of streams of (key, value) records, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstream.dstream.base import DStreamBase
from kstream.dstream.recipe import recorded

if TYPE_CHECKING:
    from kstream.dstream.dstream import DStream
    from kstream.dstream.map_with_state_dstream import MapWithStateDStream
    from kstream.dstream.state_spec import StateSpec


class PairDStreamFunctions(DStreamBase):
    """The part of DStream for (key, value) records within a batch; windows and state have parts of their own."""

    @recorded
    def mapValues(self, f: Callable[[Any], Any]) -> DStream:
        """(key, f(value)); keeps the partitioning."""
        return self._each("mapValues", lambda rdd: rdd.mapValues(f))

    @recorded
    def flatMapValues(self, f: Callable[[Any], Iterable[Any]]) -> DStream:
        """(key, each result of f(value)); keeps the partitioning."""
        return self._each("flatMapValues", lambda rdd: rdd.flatMapValues(f))

    @recorded
    def reduceByKey(self, func: Callable[[Any, Any], Any], numPartitions: int | None = None) -> DStream:
        """The values of each key of a batch combined by `func`, which must be associative and commutative."""
        return self._each("reduceByKey", lambda rdd: rdd.reduceByKey(func, self._partitions(numPartitions)))

    @recorded
    def groupByKey(self, numPartitions: int | None = None) -> DStream:
        """(key, iterable of the values) of each batch."""
        return self._each("groupByKey", lambda rdd: rdd.groupByKey(self._partitions(numPartitions)))

    @recorded
    def combineByKey(
        self,
        createCombiner: Callable[[Any], Any],
        mergeValue: Callable[[Any, Any], Any],
        mergeCombiners: Callable[[Any, Any], Any],
        numPartitions: int | None = None,
    ) -> DStream:
        """The values of each key combined by three functions, as in `RDD.combineByKey`."""
        return self._each(
            "combineByKey",
            lambda rdd: rdd.combineByKey(createCombiner, mergeValue, mergeCombiners, self._partitions(numPartitions)),
        )

    @recorded
    def mapWithState(self, spec: StateSpec) -> MapWithStateDStream:
        """For each (key, value) what the function of `spec` returns, given the key's state, which it may change. `StateSpec` says how.

        A batch costs what its keys cost, not what all keys do.
        """
        from kstream.dstream.map_with_state_dstream import MapWithStateDStream

        if spec.needs_setup:
            self.recorder.why_not = self.recorder.why_not or "mapWithState begins with an RDD that setup has made"
        return MapWithStateDStream(self._stream, spec)
