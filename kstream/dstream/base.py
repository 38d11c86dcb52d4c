"""DStreamBase: what every stream is before it has operators – a place in the graph and one RDD a batch time."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from pyspark.storagelevel import StorageLevel

from kstream.batch_time import Duration, Time
from kstream.dstream.call_site import user_call_site
from kstream.dstream.ports import StreamHost
from kstream.dstream.recipe import Recorder, recorded
from kstream.dstream.reference import reduce_stream
from kstream.errors import IllegalStateError, add_note

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.dstream.dstream import DStream


class DStreamBase(ABC):
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
        self._name: str | None = None
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

    # -- its name

    @recorded
    def setName(self, name: str) -> DStream:
        """Names the stream, as RDD.setName; returns it. The stored offsets of an input with a name are found by it after any change of
        code; those of an input without are found by its position. ValueError for a name with a comma or for none."""
        self.ssc.check_can_add("names")
        if not name or "," in name:
            raise ValueError(f"a stream's name is some text without commas, it is {name!r}")
        self._name = name
        return self._stream

    def name(self) -> str | None:
        """The name it was given by `setName`."""
        return self._name

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
            try:
                rdd = self.compute(time)
            except Exception as e:
                add_note(e, f"in {self.operator} at {self.creation_site}, for batch {time}")
                raise
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
        return self._stream

    @recorded
    def cache(self) -> DStream:
        """Persists at MEMORY_ONLY."""
        return self.persist(StorageLevel.MEMORY_ONLY)

    # -- for the operators

    @property
    def _stream(self) -> DStream:
        """This stream as what every stream is: all kinds derive from DStream, of which this is a part."""
        return cast("DStream", self)

    def _output(self, name: str, func: Callable[[Time, RDD[Any]], object]) -> None:
        from kstream.dstream.transformed import ForEachDStream

        self.ssc.graph.add_output_stream(ForEachDStream(self._stream, func, name))

    def _each(self, name: str, func: Callable[[RDD[Any]], RDD[Any]]) -> DStream:
        from kstream.dstream.transformed import TransformedDStream

        return TransformedDStream([self._stream], lambda _time, rdd: func(rdd), name)

    def _partitions(self, given: int | None) -> int:
        return self.ssc.sparkContext.defaultParallelism if given is None else given
