"""DStreamBase: what every stream is before it has operators – a place in the graph and one RDD a batch time."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyspark.storagelevel import StorageLevel

from kstream.batch_time import Duration, Seconds, Time, format_batch_time
from kstream.dstream.call_site import user_call_site
from kstream.dstream.ports import StreamHost
from kstream.dstream.recipe import Recorder, recorded
from kstream.dstream.reference import reduce_stream
from kstream.errors import ConfigurationError, IllegalStateError, add_note

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.dstream.dstream import DStream

R = TypeVar("R")


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
        recorder = ssc.graph.recorder
        self.creation_site = recorder.site or user_call_site()
        self.base_scope = recorder.scope
        self.zero_time: Time | None = None
        self.remember_duration = slide_duration
        self.checkpoint_duration: Duration | None = None
        self.storage_level: StorageLevel | None = None
        self.is_cached = False
        """Whether `persist` or `cache` has been called; that a window or a state is stored does not count, as in pyspark."""
        self.is_checkpointed = False
        """Whether `checkpoint` has been called; an interval that is the default does not count, as in pyspark."""
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
                self._persist(rdd, time, self.storage_level)
            self._generated[time] = rdd
            return rdd

    def _persist(self, rdd: RDD[Any], time: Time, level: StorageLevel) -> None:
        """What is persisted is made in the JVM at once, and listed by its name in Spark's page of storage."""

        def body() -> None:
            rdd.persist(level)
            at = format_batch_time(time, self.ssc.graph.batch_duration)
            self.ssc.graph.placement.name(rdd, f"{self.creation_site.short_form} @ {at}")

        self.placed(time, body)

    def placed(self, time: Time, body: Callable[[], R], open_to_inner: bool = False) -> R:
        """Runs `body`, which makes this stream's RDD of a batch, so that Spark's pages show it where the user called the operator.

        To be used by `compute` where an RDD is made in the JVM (a shuffle, a union, data), after the parents' RDDs have been asked
        for. A few calls to the JVM: an operator that PySpark fuses with the next one (map) does without. See `ports.Placement`.
        """
        scope = None if self.base_scope is None else self.base_scope.of_batch(time, self.ssc.graph.batch_duration)
        return self.ssc.graph.placement.place(self.creation_site, scope, open_to_inner, body)

    def slice_rdds(self, begin: Time, end: Time) -> list[RDD[Any]]:
        """The RDDs of this stream's batch times in [begin, end], both ends included; times without one left out.

        Times that were never planned (the plan could not be stored, or downtime was coalesced) have none.
        """
        zero = self._initialized()
        first = begin.floor(self.slide_duration, zero)
        first = first if first >= begin else first + self.slide_duration
        times = [time for time in first.to(end, self.slide_duration) if time > zero]
        rdds = [self.getOrCompute(time) for time in times]
        return [rdd for rdd in rdds if rdd is not None]

    def remembered_rdds(self, begin: Time, end: Time) -> list[RDD[Any]]:
        """The same for `slice`: `begin` and `end` may be any moments, what is not planned yet or no longer remembered is left out.

        A window could be made at such times, too, but of what happens to be there, and would be remembered so.
        """
        zero, newest = self._initialized(), self.newest_planned()
        if newest is None:
            return []
        too_old = newest - self.remember_duration
        held = set(self.generated_times)
        begin = max(begin, min({too_old, *held})).floor(self.slide_duration, zero)
        times = begin.to(min(end, newest), self.slide_duration)
        return [rdd for t in times if t in held or t > max(too_old, zero) if (rdd := self.getOrCompute(t)) is not None]

    def newest_planned(self) -> Time | None:
        """The latest batch time that an input of this stream was planned for."""
        times = [parent.newest_planned() for parent in self.dependencies]
        return max((time for time in times if time is not None), default=None)

    def has_batch(self, time: Time) -> bool:
        """Whether every input this stream is made of was planned for the batch."""
        return all(parent.has_batch(time) for parent in self.dependencies)

    def _is_time_valid(self, time: Time) -> bool:
        zero = self._initialized()
        return time > zero and time.since(zero).isMultipleOf(self.slide_duration)

    def _initialized(self) -> Time:
        if self.zero_time is None:
            raise IllegalStateError(
                f"{self!r} has not been initialized: its context has not started, or no output depends on it", state="new"
            )
        return self.zero_time

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

    def store(self, level: StorageLevel) -> None:
        """What `persist` does; by itself for operators that need it, whatever the user has asked for."""
        self.storage_level = level

    @recorded
    def persist(self, storageLevel: StorageLevel) -> DStream:
        """Persists each of this stream's RDDs at the level, until it falls out of the remember duration."""
        self.ssc.check_can_add("storage levels")
        self.is_cached = True
        self.store(storageLevel)
        return self._stream

    @recorded
    def cache(self) -> DStream:
        """Persists at MEMORY_ONLY."""
        return self.persist(StorageLevel.MEMORY_ONLY)

    @recorded
    def checkpoint(self, interval: float | Duration) -> DStream:
        """How often the state of this stream is written under the checkpoint directory: seconds, or a Duration.

        If only the SparkContext has a checkpoint directory, this is how often Spark checkpoints the RDD of the state.

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
        self.checkpoint_duration, self.is_checkpointed = given, True
        return self._stream

    # -- for the operators

    @property
    def _stream(self) -> DStream:
        """This stream as what every stream is: all kinds derive from DStream, of which this is a part."""
        return cast("DStream", self)

    def _output(self, name: str, func: Callable[[Time, RDD[Any]], object], *, own: bool = False) -> None:
        """`own`: the jobs are run by a function of ours, and are to be shown where the user called the operation."""
        from kstream.dstream.transformed import ForEachDStream

        self.ssc.graph.add_output_stream(ForEachDStream(self._stream, func, name, own=own))

    def _each(self, name: str, func: Callable[[RDD[Any]], RDD[Any]], *, fused: bool = False) -> DStream:
        """`fused`: PySpark makes no RDD of its own for `func`, but runs it in one pass with what comes next."""
        from kstream.dstream.transformed import Makes, TransformedDStream

        return TransformedDStream([self._stream], lambda _time, rdd: func(rdd), name, Makes.NOTHING_YET if fused else Makes.RDDS)

    def _partitions(self, given: int | None) -> int:
        return self.ssc.sparkContext.defaultParallelism if given is None else given
