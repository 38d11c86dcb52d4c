"""DStream: a sequence of RDDs, one a batch, with the operators that users call.

The names and signatures are pyspark's. Operators may be called only before the context starts, on the driver. Functions run where they run
in pyspark: functions on records in the Python workers, functions on RDDs (transform, foreachRDD) on the driver.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pyspark import rdd as pyspark_rdd
from pyspark.storagelevel import StorageLevel

from kstream.batch_time import BatchTime, Duration, Time
from kstream.dstream import rdd_functions as fn
from kstream.dstream.arguments import as_duration, check_function, check_inverse, with_batch_time, with_time_and_key
from kstream.dstream.base import T_co, node_of
from kstream.dstream.output_operations import OutputOperations
from kstream.dstream.recipe import on_workers, recorded
from kstream.dstream.state_dstreams import MapWithStateDStreamImpl, StateDStream
from kstream.dstream.state_spec import StateSpec, check_spec
from kstream.dstream.transformed_dstreams import RddOrigin, RecordDStream, TransformedDStream, UnionDStream
from kstream.dstream.windowed_dstreams import ReducedWindowedDStream, WindowedDStream, check_window
from kstream.rdd.map_with_state import snapshot

if TYPE_CHECKING:
    from pyspark import RDD

K = TypeVar("K")
V = TypeVar("V")
U = TypeVar("U")
W = TypeVar("W")
S = TypeVar("S")


class DStream(OutputOperations[T_co]):
    """A stream of records of type `T_co`. Its operators make new streams; output operations (`foreachRDD`, `pprint` …) make jobs.

    Durations are seconds or a Duration. `numPartitions` is the number of partitions after a shuffle (default: Spark's default
    parallelism). `preservesPartitioning=True` says that a function leaves the keys as they are, so that a following operator by key need
    not shuffle. Every operator raises IllegalStateError once the context has started.
    """

    # -- transformations of records, of partitions, of whole RDDs

    @recorded
    @on_workers("f")
    def map(self, f: Callable[[T_co], U], preservesPartitioning: bool = False) -> DStream[U]:
        """Apply a function to each record.

            lines.map(len)

        Args:
            f: makes the new record, in the workers.
            preservesPartitioning: `f` leaves the keys of (key, value) records as they are.

        Returns:
            A stream of f(record) for each record.
        """
        return DStream(RecordDStream(self._node, "map", f, lambda rdd: rdd.map(f, preservesPartitioning), preservesPartitioning))

    @recorded
    @on_workers("f")
    def flatMap(self, f: Callable[[T_co], Iterable[U]], preservesPartitioning: bool = False) -> DStream[U]:
        """Apply a function that makes any number of records of each record.

            lines.flatMap(str.split)

        Args:
            f: makes the new records, in the workers.
            preservesPartitioning: `f` leaves the keys of (key, value) records as they are.

        Returns:
            A stream of all results.
        """
        return DStream(RecordDStream(self._node, "flatMap", f, lambda rdd: rdd.flatMap(f, preservesPartitioning), preservesPartitioning))

    @recorded
    @on_workers("f")
    def filter(self, f: Callable[[T_co], Any]) -> DStream[T_co]:
        """Keep some of the records.

        Args:
            f: returns whether a record is kept; runs in the workers.

        Returns:
            A stream of the records for which f(record) is true.
        """
        return DStream(RecordDStream(self._node, "filter", f, lambda rdd: rdd.filter(f), True))

    @recorded
    @on_workers("f")
    def mapPartitions(self, f: Callable[[Iterator[T_co]], Iterable[U]], preservesPartitioning: bool = False) -> DStream[U]:
        """Apply a function to each partition. Use it to make something costly, such as a connection, once for many records.

        Args:
            f: takes an iterator over a partition's records and returns the new records; runs in the workers.
            preservesPartitioning: `f` leaves the keys of (key, value) records as they are.

        Returns:
            A stream of all results.
        """
        function: Callable[..., Iterable[U]] = f
        return self._each("mapPartitions", lambda rdd: rdd.mapPartitions(function, preservesPartitioning), fused=True)

    @recorded
    @on_workers("f")
    def mapPartitionsWithIndex(self, f: Callable[[int, Iterator[T_co]], Iterable[U]], preservesPartitioning: bool = False) -> DStream[U]:
        """Apply a function to each partition and its index.

        Args:
            f: takes the partition's index and an iterator over its records, and returns the new records; runs in the workers.
            preservesPartitioning: `f` leaves the keys of (key, value) records as they are.

        Returns:
            A stream of all results.
        """
        function: Callable[..., Iterable[U]] = f
        return self._each("mapPartitionsWithIndex", lambda rdd: rdd.mapPartitionsWithIndex(function, preservesPartitioning), fused=True)

    @recorded
    def glom(self) -> DStream[list[T_co]]:
        """Return a stream of one list for each partition, with its records; an empty partition gives an empty list."""
        return self._each("glom", lambda rdd: rdd.glom(), fused=True)

    @recorded
    def repartition(self, numPartitions: int) -> DStream[T_co]:
        """Return a stream of the same records in exactly `numPartitions` partitions, more or fewer than before. Shuffles every batch."""
        return self._each("repartition", lambda rdd: rdd.repartition(numPartitions))

    @recorded
    @on_workers("func")
    def reduce(self, func: Callable[[T_co, T_co], U]) -> DStream[T_co | U]:
        """Combine all records of a batch.

        Args:
            func: combines two records, in the workers; associative and commutative.

        Returns:
            A stream of one record a batch, none for an empty batch.
        """
        return self._each("reduce", lambda rdd: fn.reduce_to_one(rdd, func))

    @recorded
    def count(self) -> DStream[int]:
        """Return a stream of one record a batch: the number of records, 0 for an empty batch."""
        return self._each("count", fn.count)

    @recorded
    def countByValue(self) -> DStream[tuple[T_co, int]]:
        """Return a stream of (value, its count) for each distinct record of a batch, in Spark's default number of partitions."""
        return self._by_key("countByValue", None, lambda rdd, partitions: rdd.map(fn.with_one).reduceByKey(operator.add, partitions))

    @recorded
    def union(self, other: DStream[U]) -> DStream[T_co | U]:
        """Return a stream of the records of both streams, batch by batch. ValueError if their slide durations or contexts differ."""
        return DStream(UnionDStream([self._node, node_of(other)]))

    @recorded
    def transform(self, func: Callable[[RDD[T_co]], RDD[U]] | Callable[[BatchTime, RDD[T_co]], RDD[U]]) -> DStream[U]:
        """Apply a function to the RDD of each batch.

        Args:
            func: func(rdd) or func(time, rdd), on the driver, in the thread that plans batches. It must return an RDD, or the batch fails.
                `time` is a BatchTime: a datetime in local time, as in pyspark, with the exact `milliseconds`.

        Returns:
            A stream of the returned RDDs.

        Raises:
            TypeError: `func` takes neither form.
        """
        return DStream(TransformedDStream([self._node], with_batch_time(func, 1)))

    @recorded
    def transformWith(
        self,
        func: Callable[[RDD[T_co], RDD[U]], RDD[W]] | Callable[[BatchTime, RDD[T_co], RDD[U]], RDD[W]],
        other: DStream[U],
        keepSerializer: bool = False,
    ) -> DStream[W]:
        """Apply a function to the RDDs of two streams, batch by batch.

        Args:
            func: func(rdd, other's rdd) or func(time, rdd, other's rdd), as for `transform`.
            other: a stream of the same context with the same slide duration.
            keepSerializer: a parameter of pyspark; without effect, because no RDD leaves Python in between.

        Returns:
            A stream of the returned RDDs.

        Raises:
            TypeError: `func` takes neither form.
            ValueError: the streams have different slide durations or contexts.
        """
        return DStream(TransformedDStream([self._node, node_of(other)], with_batch_time(func, 2), "transformWith"))

    # -- transformations of (key, value) records within a batch

    @recorded
    @on_workers("f")
    def mapValues(self: DStream[tuple[K, V]], f: Callable[[V], U]) -> DStream[tuple[K, U]]:
        """Return a stream of (key, f(value)) for each record, partitioned as before. `f` runs in the workers."""
        return DStream(RecordDStream(self._node, "mapValues", f, lambda rdd: rdd.mapValues(f), True))

    @recorded
    @on_workers("f")
    def flatMapValues(self: DStream[tuple[K, V]], f: Callable[[V], Iterable[U]]) -> DStream[tuple[K, U]]:
        """Return a stream of (key, each result of f(value)), partitioned as before. `f` runs in the workers."""
        return DStream(RecordDStream(self._node, "flatMapValues", f, lambda rdd: rdd.flatMapValues(f), True))

    @recorded
    @on_workers("func")
    def reduceByKey(self: DStream[tuple[K, V]], func: Callable[[V, V], U], numPartitions: int | None = None) -> DStream[tuple[K, V | U]]:
        """Combine the values of each key of a batch.

        Args:
            func: combines two values, in the workers; associative and commutative.
            numPartitions: partitions of the result (default: Spark's default parallelism).

        Returns:
            A stream of (key, combined value).
        """
        return self._by_key("reduceByKey", numPartitions, lambda rdd, partitions: rdd.reduceByKey(func, partitions))

    @recorded
    def groupByKey(self: DStream[tuple[K, V]], numPartitions: int | None = None) -> DStream[tuple[K, Iterable[V]]]:
        """Return a stream of (key, iterable of its values) of each batch, in `numPartitions` partitions."""
        return self._by_key("groupByKey", numPartitions, lambda rdd, partitions: rdd.groupByKey(partitions))

    @recorded
    @on_workers("createCombiner", "mergeValue", "mergeCombiners")
    def combineByKey(
        self: DStream[tuple[K, V]],
        createCombiner: Callable[[V], U],
        mergeValue: Callable[[U, V], U],
        mergeCombiners: Callable[[U, U], U],
        numPartitions: int | None = None,
    ) -> DStream[tuple[K, U]]:
        """Combine the values of each key of a batch into another type, as `RDD.combineByKey`. The functions run in the workers.

        Args:
            createCombiner: makes a combined value of the first value of a key.
            mergeValue: adds a value to a combined value.
            mergeCombiners: combines two combined values.
            numPartitions: partitions of the result (default: Spark's default parallelism).

        Returns:
            A stream of (key, combined value).
        """
        functions = (createCombiner, mergeValue, mergeCombiners)
        return self._by_key("combineByKey", numPartitions, lambda rdd, partitions: rdd.combineByKey(*functions, partitions))

    @recorded
    @on_workers("partitionFunc")
    def partitionBy(
        self: DStream[tuple[K, V]], numPartitions: int, partitionFunc: Callable[[K], int] = pyspark_rdd.portable_hash
    ) -> DStream[tuple[K, V]]:
        """Return a stream of the same records, each in partition `partitionFunc(key) % numPartitions`."""
        return self._each("partitionBy", lambda rdd: rdd.partitionBy(numPartitions, partitionFunc))

    # -- (key, value) records with those of another stream; a batch is one shuffle of both sides

    @recorded
    def cogroup(
        self: DStream[tuple[K, V]], other: DStream[tuple[K, U]], numPartitions: int | None = None
    ) -> DStream[tuple[K, tuple[Iterable[V], Iterable[U]]]]:
        """Return a stream of (key, (iterable of this stream's values, iterable of the other's)) of each batch; one may be empty."""
        return self._with(other, "cogroup", numPartitions, lambda a, b, partitions: a.cogroup(b, partitions))

    @recorded
    def join(self: DStream[tuple[K, V]], other: DStream[tuple[K, U]], numPartitions: int | None = None) -> DStream[tuple[K, tuple[V, U]]]:
        """Join two streams by key, within a batch.

        Args:
            other: a stream of (key, value) of the same context with the same slide duration.
            numPartitions: partitions of the result (default: Spark's default parallelism).

        Returns:
            A stream of (key, (value of this stream, value of the other)) for each pair of values with the same key.

        Raises:
            ValueError: the streams have different slide durations or contexts.
        """
        return self._with(other, "join", numPartitions, lambda a, b, partitions: a.join(b, partitions))

    @recorded
    def leftOuterJoin(
        self: DStream[tuple[K, V]], other: DStream[tuple[K, U]], numPartitions: int | None = None
    ) -> DStream[tuple[K, tuple[V, U | None]]]:
        """Join as `join`. A value of this stream whose key the other stream does not have in the batch is paired with None."""
        return self._with(other, "leftOuterJoin", numPartitions, lambda a, b, partitions: a.leftOuterJoin(b, partitions))

    @recorded
    def rightOuterJoin(
        self: DStream[tuple[K, V]], other: DStream[tuple[K, U]], numPartitions: int | None = None
    ) -> DStream[tuple[K, tuple[V | None, U]]]:
        """Join as `join`. A value of the other stream whose key this stream does not have in the batch is paired with None."""
        return self._with(other, "rightOuterJoin", numPartitions, lambda a, b, partitions: a.rightOuterJoin(b, partitions))

    @recorded
    def fullOuterJoin(
        self: DStream[tuple[K, V]], other: DStream[tuple[K, U]], numPartitions: int | None = None
    ) -> DStream[tuple[K, tuple[V | None, U | None]]]:
        """Join as `join`. A value whose key only one of the streams has in the batch is paired with None."""
        return self._with(other, "fullOuterJoin", numPartitions, lambda a, b, partitions: a.fullOuterJoin(b, partitions))

    # -- windows

    @recorded
    def window(self, windowDuration: float | Duration, slideDuration: float | Duration | None = None) -> DStream[T_co]:
        """Combine the last batches into windows. The first windows are partial.

            clicks.window(Minutes(5), Seconds(30)).count()

        Args:
            windowDuration: the length of a window: seconds or a Duration, a multiple of this stream's slide duration.
            slideDuration: the time from one window to the next, in the same form (default: this stream's slide duration).

        Returns:
            A stream of all records of each window.

        Raises:
            ValueError: a duration is not a positive multiple of the slide duration.
        """
        return DStream(WindowedDStream(self._node, as_duration(windowDuration), self._slide(slideDuration)))

    @recorded
    @on_workers("func", "invFunc", "filterFunc", checked=False)
    def reduceByKeyAndWindow(
        self: DStream[tuple[K, V]],
        func: Callable[[V, V], U],
        invFunc: Callable[[V, V], U] | None,
        windowDuration: float | Duration,
        slideDuration: float | Duration | None = None,
        numPartitions: int | None = None,
        filterFunc: Callable[[tuple[K, V]], Any] | None = None,
    ) -> DStream[tuple[K, V | U]]:
        """Combine the values of each key of a window. The functions run in the workers.

            pairs.reduceByKeyAndWindow(operator.add, operator.sub, Minutes(5), Seconds(30))

        With `invFunc` each window is made from the window before, so its length does not matter for the cost. This needs a checkpoint
        directory, of this context or of the SparkContext, or `start` raises ConfigurationError. The reduced batches are persisted. A key
        whose data has left the window stays, with the value that `invFunc` leaves, unless `filterFunc` drops it.

        Args:
            func: combines two values; associative and commutative.
            invFunc: invFunc(value of the window, combined values that leave it) returns the rest; None for no reuse.
            windowDuration: as for `window`.
            slideDuration: as for `window`.
            numPartitions: partitions of the result (default: Spark's default parallelism).
            filterFunc: filterFunc((key, value)) returns whether a key is kept; None keeps all keys.

        Returns:
            A stream of (key, combined value) for each window.

        Raises:
            TypeError: `invFunc` is neither a function nor None, or a duration is neither a number nor a Duration.
            ValueError: as for `window`.
        """
        check_inverse("invFunc", invFunc, "reduceByKeyAndWindow(func, invFunc, windowDuration, slideDuration)")
        window, slide = self._checked_window(windowDuration, slideDuration)
        check_function("reduceByKeyAndWindow", "func", func)
        combine: Callable[..., Any] = func
        reduced: DStream[Any] = self.reduceByKey(combine, numPartitions)
        if invFunc is not None:
            return DStream(ReducedWindowedDStream(reduced._node, combine, invFunc, window, slide, numPartitions, filterFunc))
        reduced = reduced.window(window, slide).reduceByKey(combine, numPartitions)
        return reduced if filterFunc is None else reduced.filter(filterFunc)

    @recorded
    @on_workers("reduceFunc", "invReduceFunc", checked=False)
    def reduceByWindow(
        self,
        reduceFunc: Callable[[T_co, T_co], U],
        invReduceFunc: Callable[[T_co, T_co], U] | None,
        windowDuration: float | Duration,
        slideDuration: float | Duration,
    ) -> DStream[T_co | U]:
        """Combine all records of a window. The functions run in the workers.

        Args:
            reduceFunc: combines two records; associative and commutative.
            invReduceFunc: the inverse, invReduceFunc(reduceFunc(x, y), x) = y, or None. With an inverse a longer window does not cost
                more, and an empty window gives the value that the inverse leaves. Without it an empty window gives no record.
            windowDuration: as for `window`.
            slideDuration: as for `window`.

        Returns:
            A stream of one record a window; no record before the first one has come.

        Raises:
            TypeError: `invReduceFunc` is neither a function nor None.
            ValueError: as for `window`.
        """
        check_inverse("invReduceFunc", invReduceFunc, "reduceByWindow(reduceFunc, invReduceFunc, windowDuration, slideDuration)")
        self._checked_window(windowDuration, slideDuration)
        check_function("reduceByWindow", "reduceFunc", reduceFunc)
        keyed = self.map(fn.under_one_key)
        return keyed.reduceByKeyAndWindow(reduceFunc, invReduceFunc, windowDuration, slideDuration, 1).map(fn.value_of)

    @recorded
    def countByWindow(self, windowDuration: float | Duration, slideDuration: float | Duration) -> DStream[int]:
        """Return a stream of the number of records of each window: none before the first record, later 0 for an empty window."""
        counted = self.mapPartitions(fn.count_unless_empty)
        return counted.reduceByWindow(operator.add, operator.sub, windowDuration, slideDuration)

    @recorded
    def countByValueAndWindow(
        self, windowDuration: float | Duration, slideDuration: float | Duration, numPartitions: int | None = None
    ) -> DStream[tuple[T_co, int]]:
        """Return a stream of (value, its count) for each distinct record of a window. Values that left the window are forgotten."""
        keyed = self.map(fn.with_one)
        return keyed.reduceByKeyAndWindow(operator.add, operator.sub, windowDuration, slideDuration, numPartitions, fn.above_zero)

    @recorded
    def groupByKeyAndWindow(
        self: DStream[tuple[K, V]],
        windowDuration: float | Duration,
        slideDuration: float | Duration,
        numPartitions: int | None = None,
    ) -> DStream[tuple[K, Iterable[V]]]:
        """Return a stream of (key, iterable of its values) of each window, the values of earlier batches first.

        Keys without values in the window are left out. Each batch is grouped once. There is no form with an inverse, because the result is
        as large as the window.
        """
        partitions = self._node.default_partitions

        def group(time: Time, rdd: RDD[Any]) -> RDD[Any]:
            return fn.group_with_time(rdd, time.milliseconds, partitions(numPartitions, time))

        grouped: DStream[Any] = DStream(TransformedDStream([self._node], group, "groupByKey", RddOrigin.OPERATOR))
        return grouped.window(windowDuration, slideDuration).reduceByKey(operator.add, numPartitions).mapValues(fn.in_order_of_time)

    # -- state: needs a checkpoint directory of the StreamingContext, or of the SparkContext if no restart must recover the state

    @overload
    def updateStateByKey(
        self: DStream[tuple[K, V]],
        updateFunc: Callable[[list[V], S | None], S | None],
        numPartitions: int | None = None,
        initialRDD: RDD[tuple[K, S]] | Iterable[tuple[K, S]] | None = None,
    ) -> DStream[tuple[K, S]]: ...

    @overload
    def updateStateByKey(
        self: DStream[tuple[K, V]],
        updateFunc: Callable[[Time, K, list[V], S | None], S | None],
        numPartitions: int | None = None,
        initialRDD: RDD[tuple[K, S]] | Iterable[tuple[K, S]] | None = None,
    ) -> DStream[tuple[K, S]]: ...

    @recorded
    @on_workers("updateFunc")
    def updateStateByKey(
        self: DStream[tuple[Any, Any]],
        updateFunc: Callable[..., Any],
        numPartitions: int | None = None,
        initialRDD: RDD[Any] | Iterable[Any] | None = None,
    ) -> DStream[tuple[Any, Any]]:
        """Keep a state for each key, and update it in every batch. Needs a checkpoint directory.

            pairs.updateStateByKey(lambda values, total: sum(values) + (total or 0))

        Args:
            updateFunc: updateFunc(values of this batch, state before or None) returns the new state; None drops the key. It runs in the
                workers for every key in every batch, with an empty list for a key without data. A function with four required parameters
                is called with (batch `Time`, key, values, state).
            numPartitions: partitions of the state (default: Spark's default parallelism).
            initialRDD: (key, state) pairs before the first batch (default: none). The first batch updates them.

        Returns:
            A stream of (key, state) for every key.

        Raises:
            TypeError: `updateFunc` takes neither form.
        """
        initial: Any = initialRDD
        if initial is not None and not hasattr(initial, "ctx"):
            initial = self._node.ssc.sparkContext.parallelize(list(initial))
        return DStream(StateDStream(self._node, with_time_and_key(updateFunc), numPartitions, initial))

    @recorded
    def mapWithState(self: DStream[tuple[Any, Any]], spec: StateSpec) -> MapWithStateDStream[Any]:
        """Map each (key, value) by a function that reads and changes the state of the key. Needs a checkpoint directory.

            pairs.mapWithState(StateSpec.function(count).timeout(Minutes(30)))

        A batch decodes the states of its own keys and of keys that time out; the other states are copied as bytes.

        Args:
            spec: the function and its options; see `StateSpec`.

        Returns:
            A stream of the function's results; its `stateSnapshots` gives the states.
        """
        check_spec(spec)
        self._recorder.for_workers(spec.mapping_function)
        if spec.needs_setup:
            self._recorder.why_not = self._recorder.why_not or "mapWithState begins with an RDD that setup has made"
        return MapWithStateDStream(MapWithStateDStreamImpl(self._node, spec))

    # -- how operators make streams

    def _each(self, name: str, func: Callable[[RDD[Any]], RDD[Any]], *, fused: bool = False) -> DStream[Any]:
        """Return a stream of `func(rdd)` for each batch. `fused`: PySpark runs `func` in one pass with the next operator."""
        origin = RddOrigin.FUSED if fused else RddOrigin.OPERATOR
        return DStream(TransformedDStream([self._node], lambda _time, rdd: func(rdd), name, origin))

    def _by_key(self, name: str, numPartitions: int | None, func: Callable[[RDD[Any], int], RDD[Any]]) -> DStream[Any]:
        """Return a stream of `func(rdd, number of partitions)` for each batch."""
        partitions = self._node.default_partitions
        node = TransformedDStream([self._node], lambda time, rdd: func(rdd, partitions(numPartitions, time)), name, RddOrigin.OPERATOR)
        return DStream(node)

    def _with(
        self, other: DStream[Any], name: str, numPartitions: int | None, func: Callable[[RDD[Any], RDD[Any], int], RDD[Any]]
    ) -> DStream[Any]:
        """Return a stream of `func(rdd, other's rdd, number of partitions)` for each batch."""
        partitions = self._node.default_partitions
        parents = [self._node, node_of(other)]
        joined = TransformedDStream(parents, lambda time, a, b: func(a, b, partitions(numPartitions, time)), name, RddOrigin.OPERATOR)
        return DStream(joined)

    def _checked_window(self, window: float | Duration, slide: float | Duration | None) -> tuple[Duration, Duration]:
        """Return the length and the slide duration of a window. ValueError for what `check_window` refuses."""
        durations = as_duration(window), self._slide(slide)
        check_window(self._node, *durations)
        return durations

    def _slide(self, given: float | Duration | None) -> Duration:
        """Return the given slide duration, else that of this stream."""
        return self._node.slide_duration if given is None else as_duration(given)


class MapWithStateDStream(DStream[T_co]):
    """The records that the function of `mapWithState` returned. `persist` and `checkpoint` apply to its states."""

    @recorded
    def stateSnapshots(self) -> DStream[tuple[Any, Any]]:
        """Return a stream of every (key, state) after each batch, also for keys without data in the batch. Every state is decoded."""
        states = self._node.dependencies
        return DStream(TransformedDStream(states, lambda _time, rdd: rdd.flatMap(snapshot, preservesPartitioning=True), "stateSnapshots"))

    @recorded
    def persist(self, storageLevel: StorageLevel = StorageLevel.MEMORY_ONLY) -> MapWithStateDStream[T_co]:
        """Persist the states, and with them these records, at the given storage level. Return this stream."""
        return super().persist(storageLevel)
