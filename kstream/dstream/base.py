"""DStreamBase: what every stream is before it has operators – a place in the graph and one RDD a batch time."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from pyspark.storagelevel import StorageLevel

from kstream.batch_time import Duration, Seconds, Time
from kstream.dstream.call_site import user_call_site
from kstream.dstream.ports import StreamHost
from kstream.dstream.recipe import Recorder, recorded
from kstream.dstream.reference import reduce_stream
from kstream.errors import ConfigurationError, IllegalStateError

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
        self.checkpoint_duration: Duration | None = None
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
        """Sets the zero time of this stream and those it depends on. One with a checkpoint interval remembers two of them."""
        if self.zero_time is None:
            self.zero_time = zero_time
            if self.checkpoint_duration is not None:
                self.remember_duration = max(self.remember_duration, self.checkpoint_duration * 2)
            for parent in self.dependencies:
                parent.initialize(zero_time)

    def reaches_back_to(self, time: Time) -> Time:
        """The oldest batch of its parents that this stream's batch at `time` is made of."""
        return time

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
            old = [self._generated.pop(t) for t in self._forgettable(time)]
        self._unpersist(old)
        for parent in self.dependencies:
            parent.clear_metadata(time)

    def _forgettable(self, time: Time) -> list[Time]:
        return [t for t in self._generated if t <= time - self.remember_duration]

    def _unpersist(self, rdds: Sequence[RDD[Any]]) -> None:
        if self.storage_level is not None and self.ssc.settings.get("spark.streaming.unpersist"):
            for rdd in rdds:
                rdd.unpersist()

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

    @recorded
    def checkpoint(self, interval: float | Duration) -> DStream:
        """How often the state of this stream is written under the checkpoint directory: seconds, or a Duration.

        It must be a multiple of the stream's slide duration. Default, for streams that carry state: the slide duration times the least
        number that makes 10 s of it. Of a stream that carries no state nothing is written – its RDDs are made again from the plans – but
        it remembers them for two intervals, as every stream with an interval does.
        """
        given = interval if isinstance(interval, Duration) else Seconds(interval)
        if given < self.slide_duration or not given.isMultipleOf(self.slide_duration):
            raise ConfigurationError(
                f"the checkpoint interval of {self!r} is {given}; it must be a multiple of the stream's slide duration, "
                f"{self.slide_duration}",
                key="interval", value=given,
            )  # fmt: skip
        self.checkpoint_duration = given
        return self._stream

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
