"""DStreamNode: one stream of the DStreamGraph – its parents, and one RDD a batch time.

A DStream is what a user holds; its node is what the graph and the scheduler work with. Kinds of nodes know this base and no operator.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.storagelevel import StorageLevel

from kstream.batch_time import Duration, Time, format_batch_time
from kstream.dstream.ports import StreamHost, services_of
from kstream.dstream.recipe import Recorder, user_call_site
from kstream.errors import ConfigurationError, IllegalStateError, add_note

if TYPE_CHECKING:
    from pyspark import RDD

R = TypeVar("R")


class DStreamNode(ABC):
    """One stream of a graph. Subclasses say how the RDD of a batch is made (`compute`).

    RDDs are made in the JobGenerator's thread and remembered for `remember_duration`. So each is made once a batch.
    """

    operator = "stream"

    def __init__(self, ssc: StreamHost, dependencies: Sequence[DStreamNode], slide_duration: Duration) -> None:
        self.ssc = services_of(ssc)
        self.ssc.check_can_add("inputs, transformations and outputs")
        self.dependencies = tuple(dependencies)
        self.slide_duration = slide_duration
        self.given_name: str | None = None
        self.creation_site = self.recorder.site or user_call_site()
        self.base_scope = self.recorder.scope
        self.zero_time: Time | None = None
        self.remember_duration = slide_duration
        self.checkpoint_duration: Duration | None = None
        self.storage_level: StorageLevel | None = None
        self._generated: dict[Time, RDD[Any]] = {}
        self._lock = threading.RLock()

    @property
    def recorder(self) -> Recorder:
        """Where the calls that built the graph are written down."""
        return self.ssc.graph.recorder

    def __repr__(self) -> str:
        return self.description()

    def description(self) -> str:
        """The kind of the node, the operator and the user's line, for messages."""
        return f"<{type(self).__name__} {self.operator} at {self.creation_site}>"

    # -- a batch's RDD

    @abstractmethod
    def compute(self, time: Time) -> RDD[Any] | None:
        """Make the RDD of a batch; None if there is none. Called once a batch time, by `getOrCompute`."""

    def getOrCompute(self, time: Time) -> RDD[Any] | None:
        """Return the RDD of a batch. It is made now if it is not remembered. None at times this stream does not slide to."""
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
        """Persist an RDD. That makes it in the JVM at once, and Spark's storage page lists it by its name."""

        def body() -> None:
            rdd.persist(level)
            at = format_batch_time(time, self.ssc.graph.batch_duration)
            self.ssc.graph.placement.name(rdd, f"{self.creation_site.short_form} @ {at}")

        self.placed(time, body)

    def placed(self, time: Time, body: Callable[[], R], open_to_inner: bool = False) -> R:
        """Run `body`, which makes this stream's RDD of a batch. Spark's pages then show the RDD where the user called the operator.

        `compute` uses it where an RDD is made in the JVM (a shuffle, a union, data), after it has asked for the parents' RDDs. It costs a
        few calls to the JVM. An operator that PySpark fuses with the next one (map) does without. See `ports.Placement`.
        """
        scope = None if self.base_scope is None else self.base_scope.of_batch(time, self.ssc.graph.batch_duration)
        return self.ssc.graph.placement.place(self.creation_site, scope, open_to_inner, body)

    def slice_rdds(self, begin: Time, end: Time) -> list[RDD[Any]]:
        """Return the RDDs of this stream's batch times in [begin, end], both ends included; times without an RDD are left out.

        Times that were never planned (the plan could not be stored, or downtime was coalesced) have none.
        """
        zero = self._initialized()
        first = begin.floor(self.slide_duration, zero)
        first = first if first >= begin else first + self.slide_duration
        times = [time for time in first.to(end, self.slide_duration) if time > zero]
        rdds = [self.getOrCompute(time) for time in times]
        return [rdd for rdd in rdds if rdd is not None]

    def remembered_rdds(self, begin: Time, end: Time) -> list[RDD[Any]]:
        """Return the RDDs for `slice`: `begin` and `end` may be any moments. Times not planned yet or no longer remembered are left out.

        A window could be computed at such a time, but only of the data that happens to be there, and it would be remembered so.
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

    @property
    def generated_times(self) -> list[Time]:
        """The batch times whose RDDs are remembered."""
        with self._lock:
            return sorted(self._generated)

    # -- life in the graph

    def initialize(self, zero_time: Time) -> None:
        """Set the zero time of this stream and its parents. A stream with a checkpoint interval remembers two intervals."""
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
        """Remember RDDs at least so long. A shorter duration than now changes nothing."""
        if duration > self.remember_duration:
            self.remember_duration = duration

    def propagate_remember(self) -> None:
        """Make everything upstream remember as long as this stream needs."""
        for parent in self.dependencies:
            parent.remember(self.parent_remember_duration())
            parent.propagate_remember()

    def clear_metadata(self, time: Time) -> None:
        """Forget RDDs made for times ≤ `time` − remember; unpersist those this stream persisted."""
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

    # -- what operators set

    def set_storage_level(self, level: StorageLevel) -> None:
        """Persist the RDDs made from now on at this level. Operators that need stored parents call it, too."""
        self.storage_level = level

    def set_checkpoint_interval(self, interval: Duration) -> None:
        """Set how often the state is written. ConfigurationError unless it is a multiple of the slide duration."""
        if interval < self.slide_duration or not interval.isMultipleOf(self.slide_duration):
            raise ConfigurationError(
                f"the checkpoint interval of {self!r} is {interval}; it must be a multiple of the stream's slide duration, "
                f"{self.slide_duration}",
                key="interval",
                value=interval,
            )
        self.checkpoint_duration = interval

    def default_partitions(self, given: int | None) -> int:
        """The number of partitions after a shuffle: as given, else Spark's default parallelism."""
        return self.ssc.sparkContext.defaultParallelism if given is None else given


def in_order(outputs: Iterable[DStreamNode]) -> list[DStreamNode]:
    """The outputs and all streams they depend on, each before the streams it is made of."""
    seen: set[int] = set()
    order: list[DStreamNode] = []

    def visit(stream: DStreamNode) -> None:
        if id(stream) in seen:
            return
        seen.add(id(stream))
        for parent in stream.dependencies:
            visit(parent)
        order.append(stream)

    for output in outputs:
        visit(output)
    return order[::-1]


def check_same_slide(parents: Sequence[DStreamNode]) -> None:
    """ValueError unless the streams belong to one context and slide together."""
    if not parents:
        raise ValueError("needs at least one stream")
    if any(p.ssc is not parents[0].ssc for p in parents):
        raise ValueError("the streams belong to different contexts")
    slides = sorted({p.slide_duration for p in parents})
    if len(slides) > 1:
        raise ValueError(f"the streams have different slide durations: {', '.join(map(str, slides))}")
