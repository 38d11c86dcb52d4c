"""PairDStreamFunctions: transformations of streams of (key, value) records, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pyspark import rdd as pyspark_rdd

from kstream.dstream.base import DStreamBase
from kstream.dstream.recipe import on_workers, recorded

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.dstream.dstream import DStream
    from kstream.dstream.map_with_state_dstream import MapWithStateDStream
    from kstream.dstream.state_spec import StateSpec


class PairDStreamFunctions(DStreamBase):
    """The part of DStream for (key, value) records within a batch; windows and state have parts of their own."""

    @recorded
    @on_workers("f")
    def mapValues(self, f: Callable[[Any], Any]) -> DStream:
        """(key, f(value)); keeps the partitioning."""
        return self._each("mapValues", lambda rdd: rdd.mapValues(f), fused=True)

    @recorded
    @on_workers("f")
    def flatMapValues(self, f: Callable[[Any], Iterable[Any]]) -> DStream:
        """(key, each result of f(value)); keeps the partitioning."""
        return self._each("flatMapValues", lambda rdd: rdd.flatMapValues(f), fused=True)

    @recorded
    @on_workers("func")
    def reduceByKey(self, func: Callable[[Any, Any], Any], numPartitions: int | None = None) -> DStream:
        """The values of each key of a batch combined by `func`, which must be associative and commutative."""
        return self._each("reduceByKey", lambda rdd: rdd.reduceByKey(func, self._partitions(numPartitions)))

    @recorded
    def groupByKey(self, numPartitions: int | None = None) -> DStream:
        """(key, iterable of the values) of each batch."""
        return self._each("groupByKey", lambda rdd: rdd.groupByKey(self._partitions(numPartitions)))

    @recorded
    @on_workers("createCombiner", "mergeValue", "mergeCombiners")
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
    @on_workers("partitionFunc")
    def partitionBy(self, numPartitions: int, partitionFunc: Callable[[Any], int] = pyspark_rdd.portable_hash) -> DStream:
        """The same records, each in the partition `partitionFunc(key) % numPartitions`."""
        return self._each("partitionBy", lambda rdd: rdd.partitionBy(numPartitions, partitionFunc))

    # -- with another stream; a batch is one shuffle of both sides

    @recorded
    def cogroup(self, other: DStream, numPartitions: int | None = None) -> DStream:
        """(key, (values here, values there)) for each key of either side in a batch; both are iterables, maybe empty."""
        return self._with(other, "cogroup", lambda a, b: a.cogroup(b, self._partitions(numPartitions)))

    @recorded
    def join(self, other: DStream, numPartitions: int | None = None) -> DStream:
        """(key, (value here, value there)) for each pair of values that share a key within a batch."""
        return self._with(other, "join", lambda a, b: a.join(b, self._partitions(numPartitions)))

    @recorded
    def leftOuterJoin(self, other: DStream, numPartitions: int | None = None) -> DStream:
        """As join; a value here whose key the other side has not in this batch comes with None."""
        return self._with(other, "leftOuterJoin", lambda a, b: a.leftOuterJoin(b, self._partitions(numPartitions)))

    @recorded
    def rightOuterJoin(self, other: DStream, numPartitions: int | None = None) -> DStream:
        """As join; a value of the other side whose key is not here in this batch comes with None in the first place."""
        return self._with(other, "rightOuterJoin", lambda a, b: a.rightOuterJoin(b, self._partitions(numPartitions)))

    @recorded
    def fullOuterJoin(self, other: DStream, numPartitions: int | None = None) -> DStream:
        """As join; the values of keys that only one side has come with None in the place of the other."""
        return self._with(other, "fullOuterJoin", lambda a, b: a.fullOuterJoin(b, self._partitions(numPartitions)))

    def _with(self, other: DStream, name: str, func: Callable[[RDD[Any], RDD[Any]], RDD[Any]]) -> DStream:
        from kstream.dstream.transformed import Makes, TransformedDStream

        return TransformedDStream([self._stream, other], lambda _time, a, b: func(a, b), name, Makes.RDDS)

    # -- with state

    @recorded
    def mapWithState(self, spec: StateSpec) -> MapWithStateDStream:
        """For each (key, value) what the function of `spec` returns, given the key's state, which it may change. `StateSpec` says how.

        A batch costs what its keys cost, not what all keys do.
        """
        from kstream.dstream.map_with_state_dstream import MapWithStateDStream

        self.recorder.for_workers(spec.mapping_function)
        if spec.needs_setup:
            self.recorder.why_not = self.recorder.why_not or "mapWithState begins with an RDD that setup has made"
        return MapWithStateDStream(self._stream, spec)
