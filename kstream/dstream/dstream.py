"""DStream: a sequence of RDDs, one a batch; the base of all streams and the home of the operators users call.

The names and signatures are pyspark's. Operators may be called only before the context starts, on the driver. Functions given to
them run where pyspark's would: those on records in the Python workers, those on RDDs (transform, foreachRDD) on the driver.
"""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.storagelevel import StorageLevel

from kstream.batch_time import Duration, Seconds, Time
from kstream.dstream import rdd_functions as fn
from kstream.dstream.call_site import user_call_site
from kstream.dstream.ports import StreamHost
from kstream.dstream.recipe import Recorder, recorded
from kstream.dstream.reference import reduce_stream
from kstream.errors import ConfigurationError, IllegalStateError

if TYPE_CHECKING:
    from pyspark import RDD


class DStream(ABC):
    """One stream of a graph. Subclasses say how a batch's RDD is made (`compute`).

    RDDs are made in the JobGenerator's thread and remembered for `remember_duration`, so each is made once a batch.
    """

    operator = "stream"

    def __init__(self, ssc: StreamHost, dependencies: Sequence[DStream], slide_duration: Duration) -> None:
        ssc.check_can_add("inputs, transformations and outputs")
        self.ssc = ssc
        self.dependencies = tuple(dependencies)
        self.slide_duration = slide_duration
        self.creation_site = user_call_site()
        self.zero_time: Time | None = None
        self.remember_duration = slide_duration
        self.storage_level: StorageLevel | None = None
        self._generated: dict[Time, RDD[Any]] = {}
        self._lock = threading.RLock()

    def context(self) -> StreamHost:
        """The StreamingContext this stream belongs to."""
        return self.ssc

    @property
    def recorder(self) -> Recorder:
        return self.ssc.graph.recorder

    def __reduce__(self) -> Any:
        return reduce_stream(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.operator} at {self.creation_site}>"

    # -- a batch's RDD

    @abstractmethod
    def compute(self, time: Time) -> RDD[Any] | None:
        """Makes the RDD of a batch; None if there is none. Called once a batch time, by `getOrCompute`."""

    def getOrCompute(self, time: Time) -> RDD[Any] | None:
        """The RDD of a batch, made now if it is not remembered; None at times this stream does not slide to."""
        with self._lock:
            known = self._generated.get(time)
            if known is not None or not self._is_time_valid(time):
                return known
            rdd = self.compute(time)
            if rdd is None:
                return None
            if self.storage_level is not None and not rdd.is_cached:
                rdd.persist(self.storage_level)
            self._generated[time] = rdd
            return rdd

    def slice_rdds(self, begin: Time, end: Time) -> list[RDD[Any]]:
        """The RDDs of this stream's batch times in [begin, end], both ends included; times without one left out.

        Times that were never planned (the plan could not be stored, or downtime was coalesced) have none.
        """
        if self.zero_time is None:
            raise IllegalStateError(f"{self!r} has not been initialized", state="new")
        first = begin.floor(self.slide_duration, self.zero_time)
        first = first if first >= begin else first + self.slide_duration
        times = [time for time in first.to(end, self.slide_duration) if time > self.zero_time]
        rdds = [self.getOrCompute(time) for time in times]
        return [rdd for rdd in rdds if rdd is not None]

    def has_batch(self, time: Time) -> bool:
        """Whether every input this stream is made of was planned for the batch."""
        return all(parent.has_batch(time) for parent in self.dependencies)

    def _is_time_valid(self, time: Time) -> bool:
        if self.zero_time is None:
            raise IllegalStateError(f"{self!r} has not been initialized", state="new")
        return time > self.zero_time and time.since(self.zero_time).isMultipleOf(self.slide_duration)

    # -- life in the graph

    def initialize(self, zero_time: Time) -> None:
        """Sets the zero time of this stream and those it depends on."""
        if self.zero_time is None:
            self.zero_time = zero_time
            for parent in self.dependencies:
                parent.initialize(zero_time)

    def parent_remember_duration(self) -> Duration:
        """How long this stream's parents must remember for it."""
        return self.remember_duration

    def remember(self, duration: Duration) -> None:
        """Remembers RDDs at least so long; a shorter duration than now changes nothing."""
        if duration > self.remember_duration:
            self.remember_duration = duration

    def propagate_remember(self) -> None:
        """Makes everything upstream remember as long as this stream needs."""
        for parent in self.dependencies:
            parent.remember(self.parent_remember_duration())
            parent.propagate_remember()

    def clear_metadata(self, time: Time) -> None:
        """Forgets RDDs made for times ≤ `time` − remember, unpersisting those this stream persisted."""
        with self._lock:
            old = {t: rdd for t, rdd in self._generated.items() if t <= time - self.remember_duration}
            for t in old:
                del self._generated[t]
        if self.storage_level is not None and self.ssc.settings.get("spark.streaming.unpersist"):
            for rdd in old.values():
                rdd.unpersist()
        for parent in self.dependencies:
            parent.clear_metadata(time)

    @property
    def generated_times(self) -> list[Time]:
        """The batch times whose RDDs are remembered."""
        with self._lock:
            return sorted(self._generated)

    # -- storage

    @recorded
    def persist(self, storageLevel: StorageLevel = StorageLevel.MEMORY_ONLY) -> DStream:
        """Persists each of this stream's RDDs at the level, until it falls out of the remember duration."""
        self.storage_level = storageLevel
        return self

    @recorded
    def cache(self) -> DStream:
        """Persists at MEMORY_ONLY."""
        return self.persist(StorageLevel.MEMORY_ONLY)

    # -- transformations of records

    @recorded
    def map(self, f: Callable[[Any], Any], preservesPartitioning: bool = False) -> DStream:
        """f(record) for each record."""
        return self._each("map", lambda rdd: rdd.map(f, preservesPartitioning))

    @recorded
    def flatMap(self, f: Callable[[Any], Iterable[Any]], preservesPartitioning: bool = False) -> DStream:
        """All results of f(record) for each record."""
        return self._each("flatMap", lambda rdd: rdd.flatMap(f, preservesPartitioning))

    @recorded
    def filter(self, f: Callable[[Any], Any]) -> DStream:
        """The records for which f(record) is true."""
        return self._each("filter", lambda rdd: rdd.filter(f))

    @recorded
    def mapPartitions(self, f: Callable[[Iterable[Any]], Iterable[Any]], preservesPartitioning: bool = False) -> DStream:
        """f(iterator) for each partition."""
        return self._each("mapPartitions", lambda rdd: rdd.mapPartitions(f, preservesPartitioning))

    @recorded
    def mapPartitionsWithIndex(self, f: Callable[[int, Iterable[Any]], Iterable[Any]], preservesPartitioning: bool = False) -> DStream:
        """f(index, iterator) for each partition."""
        return self._each("mapPartitionsWithIndex", lambda rdd: rdd.mapPartitionsWithIndex(f, preservesPartitioning))

    @recorded
    def reduce(self, func: Callable[[Any, Any], Any]) -> DStream:
        """One record a batch: all records combined by `func`; nothing for an empty batch."""
        return self._each("reduce", lambda rdd: fn.reduce_to_one(rdd, func))

    @recorded
    def count(self) -> DStream:
        """One record a batch: the number of records; 0 for an empty batch."""
        return self._each("count", fn.count)

    @recorded
    def union(self, other: DStream) -> DStream:
        """This stream's records and the other's, batch by batch. Both must slide together."""
        from kstream.dstream.transformed import UnionDStream

        return UnionDStream([self, other])

    # -- transformations of (key, value) records

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

    # -- transformations of RDDs

    @recorded
    def transform(self, func: Callable[..., RDD[Any]]) -> DStream:
        """func(rdd) or func(time, rdd) for each batch, on the driver; it must return an RDD. `time` is a datetime."""
        from kstream.dstream.transformed import TransformedDStream

        if _takes_one_argument(func):
            return TransformedDStream([self], lambda _time, rdd: func(rdd))
        return TransformedDStream([self], lambda time, rdd: func(time.to_datetime(), rdd))

    # -- windows; durations are seconds, or a Duration

    @recorded
    def window(self, windowDuration: float | Duration, slideDuration: float | Duration | None = None) -> DStream:
        """All records of the last `windowDuration`, every `slideDuration` (default: this stream's own).

        Both must be multiples of this stream's slide duration. The first windows are partial.
        """
        from kstream.dstream.windowed import WindowedDStream

        slide = self.slide_duration if slideDuration is None else _duration(slideDuration)
        return WindowedDStream(self, _duration(windowDuration), slide)

    @recorded
    def reduceByKeyAndWindow(
        self,
        func: Callable[[Any, Any], Any],
        invFunc: None,
        windowDuration: float | Duration,
        slideDuration: float | Duration | None = None,
        numPartitions: int | None = None,
        filterFunc: Callable[[Any], Any] | None = None,
    ) -> DStream:
        """reduceByKey over a window; each batch is reduced first, then the window's reduced batches.

        `invFunc` must be None: windows with an inverse function are not offered yet.
        """
        if invFunc is not None:
            raise ConfigurationError(
                "reduceByKeyAndWindow with an inverse function is not offered yet: pass invFunc=None (the same totals; keys that "
                "fell out of the window are gone instead of staying with a zero)",
                key="invFunc", value=invFunc,
            )  # fmt: skip
        windowed = self.reduceByKey(func, numPartitions).window(windowDuration, slideDuration)
        reduced = windowed.reduceByKey(func, numPartitions)
        return reduced if filterFunc is None else reduced.filter(filterFunc)

    # -- outputs

    @recorded
    def foreachRDD(self, func: Callable[..., object]) -> None:
        """An output operation: func(rdd) or func(time, rdd) for each batch, on the driver. `time` is a datetime."""
        if _takes_one_argument(func):
            self._output("foreachRDD", lambda _time, rdd: func(rdd))
        else:
            self._output("foreachRDD", lambda time, rdd: func(time.to_datetime(), rdd))

    @recorded
    def pprint(self, num: int = 10) -> None:
        """An output operation: prints the first `num` records of each batch, as pyspark does."""
        self._output("pprint", lambda time, rdd: fn.print_first(time.to_datetime(), rdd, num))

    @recorded
    def print(self, num: int = 10) -> None:
        """The same as pprint."""
        self.pprint(num)

    def _output(self, name: str, func: Callable[[Time, RDD[Any]], object]) -> None:
        from kstream.dstream.transformed import ForEachDStream

        self.ssc.graph.add_output_stream(ForEachDStream(self, func, name))

    def _each(self, name: str, func: Callable[[RDD[Any]], RDD[Any]]) -> DStream:
        from kstream.dstream.transformed import TransformedDStream

        return TransformedDStream([self], lambda _time, rdd: func(rdd), name)

    def _partitions(self, given: int | None) -> int:
        return self.ssc.sparkContext.defaultParallelism if given is None else given


def _duration(value: float | Duration) -> Duration:
    return value if isinstance(value, Duration) else Seconds(value)


def _takes_one_argument(func: Callable[..., Any]) -> bool:
    """Whether `func` wants only the RDD (as pyspark decides it: by the number of positional parameters)."""
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        return True
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty]
    positional = [p for p in parameters if p.kind in kinds]
    if len(required) not in (0, 1, 2):
        raise TypeError(f"{func!r} must take (rdd) or (time, rdd), it takes {len(required)} arguments")
    return len(required) == 1 or (not required and len(positional) == 1)
