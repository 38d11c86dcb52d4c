"""DStreamNode: one stream of the DStreamGraph – its parents, and one RDD a batch time.

A user holds a DStream; the graph and the scheduler work with its node. The kinds of nodes use this base and no operator of DStream.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.storagelevel import StorageLevel

from kstream.batch_time import Duration, Time, format_batch_time
from kstream.dstream.ports import StreamHost, services_of
from kstream.dstream.recipe import Recorder, user_call_site
from kstream.dstream.settings import UNPERSIST
from kstream.errors import ConfigurationError, IllegalStateError, add_note
from kstream.public_call import refused

if TYPE_CHECKING:
    from pyspark import RDD

R = TypeVar("R")


class DStreamNode(ABC):
    """One stream of a graph. Subclasses define how the RDD of a batch is made (`compute`).

    Each RDD is made once, and remembered for `remember_duration`. The JobGenerator's thread makes RDDs; `slice` may make one in a user's
    thread. `_lock` guards the remembered RDDs, and is held while an RDD is made.
    """

    operator = "stream"

    def __init__(self, ssc: StreamHost, dependencies: Sequence[DStreamNode], slide_duration: Duration) -> None:
        self.ssc = services_of(ssc)
        self.ssc.check_can_add("inputs, transformations and outputs")
        self.dependencies = tuple(dependencies)
        self.slide_duration = slide_duration
        self.given_name: str | None = None
        """The name that the user has set."""
        self.creation_site = self.recorder.site or user_call_site()
        """The line of the user's code that made this stream."""
        self.base_scope = self.recorder.scope
        """The scope of the operator on Spark's pages; None outside an operator."""
        self.zero_time: Time | None = None
        """One interval before the first batch of the stream. Set by `initialize`."""
        self.remember_duration = slide_duration
        self.checkpoint_duration: Duration | None = None
        self.storage_level: StorageLevel | None = None
        """The level at which RDDs are persisted; None for not persisted."""
        self._generated: dict[Time, RDD[Any]] = {}
        """The remembered RDDs, by batch time."""
        self._lock = threading.RLock()

    @property
    def tolerates_record_errors(self) -> bool:
        """Whether an operator on single records of this stream leaves out a record for which it fails."""
        return False

    @property
    def knows_records(self) -> bool:
        """Whether the record of the source can be known of each element of this stream."""
        return False

    @property
    def stands_on_storage(self) -> bool:
        """Whether a stream between this one and the source is persisted. Asked only of a stream that knows its records."""
        return False

    @property
    def recorder(self) -> Recorder:
        """The recorder of the calls that built the graph."""
        return self.ssc.graph.recorder

    def __repr__(self) -> str:
        return self.description()

    def description(self) -> str:
        """Return the kind of the node, the operator and the user's line, for messages."""
        return f"<{type(self).__name__} {self.operator} at {self.creation_site}>"

    # -- a batch's RDD

    @abstractmethod
    def compute(self, time: Time) -> RDD[Any] | None:
        """Make and return the RDD of a batch; None if there is none. Called by `getOrCompute`, under the lock. An error fails the batch."""

    def getOrCompute(self, time: Time) -> RDD[Any] | None:
        """Return the RDD of a batch. If it is not remembered, it is made now. Any thread; blocks while another thread makes one.

        Returns:
            The RDD; None if the batch has none, or if this stream does not slide to the time.

        Raises:
            IllegalStateError: the stream is not initialized. Errors of `compute` are raised with a note that names the operator.
        """
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
        """Persist an RDD and name it for Spark's storage page. This makes the RDD in the JVM at once."""

        def body() -> None:
            rdd.persist(level)
            at = format_batch_time(time, self.ssc.graph.batch_duration)
            self.ssc.graph.placement.name(rdd, f"{self.creation_site.short_form} @ {at}")

        self.placed(time, body)

    def placed(self, time: Time, body: Callable[[], R], open_to_inner: bool = False) -> R:
        """Run `body`, which makes this stream's RDD of a batch, and return its result. Spark's pages show the RDD at the user's call.

        `compute` calls this where it makes an RDD in the JVM (a shuffle, a union, data), after it has the parents' RDDs. This costs a few
        calls to the JVM. An operator that PySpark fuses with the next one (map) does not call it. See `ports.Placement`.
        """
        scope = None if self.base_scope is None else self.base_scope.of_batch(time, self.ssc.graph.batch_duration)
        return self.ssc.graph.placement.place(self.creation_site, scope, open_to_inner, body)

    def slice_rdds(self, begin: Time, end: Time) -> list[RDD[Any]]:
        """Return the RDDs of this stream's batch times in [begin, end], oldest first; RDDs that are not remembered are made.

        For windows. Both ends are included; a `begin` between two batches counts as the later one. Times without an RDD are left out, such
        as times that were never planned because the plan could not be stored or the batch was coalesced.
        """
        zero = self._initialized()
        first = begin.floor(self.slide_duration, zero)
        first = first if first >= begin else first + self.slide_duration
        times = [time for time in first.to(end, self.slide_duration) if time > zero]
        rdds = [self.getOrCompute(time) for time in times]
        return [rdd for rdd in rdds if rdd is not None]

    def remembered_rdds(self, begin: Time, end: Time) -> list[RDD[Any]]:
        """Return the RDDs of [begin, end] for `slice`, oldest first; a `begin` between two batches counts as the earlier one. Any thread.

        Times that are not generated yet or no longer remembered are left out. A window at such a time would be computed from a part of its
        data, and that result would be remembered. A planned batch that waits for its turn is generated when its turn comes.
        """
        zero, planned, generated = self._initialized(), self.newest_planned(), self.ssc.graph.newest_generated
        if planned is None or generated is None:
            return []
        newest = min(planned, generated)
        too_old = newest - self.remember_duration
        held = set(self.generated_times)
        begin = max(begin, min({too_old, *held})).floor(self.slide_duration, zero)
        times = begin.to(min(end, newest), self.slide_duration)
        return [rdd for t in times if t in held or t > max(too_old, zero) if (rdd := self.getOrCompute(t)) is not None]

    def newest_planned(self) -> Time | None:
        """Return the latest batch time for which an input of this stream was planned; None if there is none."""
        times = [parent.newest_planned() for parent in self.dependencies]
        return max((time for time in times if time is not None), default=None)

    def has_batch(self, time: Time) -> bool:
        """Return whether every input that this stream depends on was planned for the batch."""
        return all(parent.has_batch(time) for parent in self.dependencies)

    def _is_time_valid(self, time: Time) -> bool:
        """Return whether this stream slides to the time: it is after the zero time, by a whole number of slide durations."""
        zero = self._initialized()
        return time > zero and time.since(zero).isMultipleOf(self.slide_duration)

    def _initialized(self) -> Time:
        """Return the zero time. IllegalStateError if the stream is not initialized."""
        if self.zero_time is None:
            raise IllegalStateError(
                f"{self!r} has not been initialized: its context has not started, or no output depends on it", state="new"
            )
        return self.zero_time

    @property
    def generated_times(self) -> list[Time]:
        """The batch times whose RDDs are remembered, oldest first. Any thread."""
        with self._lock:
            return sorted(self._generated)

    # -- life in the graph

    def initialize(self, zero_time: Time) -> None:
        """Set the zero time of this stream and its parents, once. A stream with a checkpoint interval remembers at least two intervals."""
        if self.zero_time is None:
            self.zero_time = zero_time
            if self.checkpoint_duration is not None:
                self.remember_duration = max(self.remember_duration, self.checkpoint_duration * 2)
            for parent in self.dependencies:
                parent.initialize(zero_time)

    def reaches_back_to(self, time: Time) -> Time:
        """Return the oldest batch of the parents that this stream's batch at `time` needs."""
        return time

    def parent_remember_duration(self) -> Duration:
        """Return how long the parents must remember their RDDs for this stream."""
        return self.remember_duration

    def remember(self, duration: Duration) -> None:
        """Raise the remember duration to this value. A shorter duration than the present one changes nothing."""
        if duration > self.remember_duration:
            self.remember_duration = duration

    def propagate_remember(self) -> None:
        """Raise the remember durations of all streams that this one depends on, as far as this stream's own duration needs."""
        for parent in self.dependencies:
            parent.remember(self.parent_remember_duration())
            parent.propagate_remember()

    def clear_metadata(self, time: Time) -> None:
        """Forget the RDDs that are `outdated` at `time`, here and in the parents. Unpersist those that a stream has persisted."""
        with self._lock:
            old = [self._generated.pop(t) for t in self._forgettable(time)]
        self._unpersist(old)
        for parent in self.dependencies:
            parent.clear_metadata(time)

    def forget(self, times: Collection[Time]) -> None:
        """Forget the RDDs of these batches, so that they are made again when they are needed, and unpersist them. Any thread."""
        with self._lock:
            old = [self._generated.pop(t) for t in times if t in self._generated]
        self._unpersist(old)

    def _forgettable(self, time: Time) -> list[Time]:
        """Return the batches whose RDDs `clear_metadata` forgets: those that are `outdated`, unless a subclass keeps more of them."""
        return self.outdated(self._generated, time)

    def outdated(self, batches: Iterable[Time], time: Time) -> list[Time]:
        """Return the batches that are older than the remember duration before `time`, except those that the retry of a batch needs."""
        required = self.ssc.graph.required(time, self.remember_duration)
        return [t for t in batches if t not in required]

    def _unpersist(self, rdds: Sequence[RDD[Any]]) -> None:
        """Unpersist RDDs that are forgotten, if this stream persists its RDDs and `spark.streaming.unpersist` is true."""
        if self.storage_level is not None and self.ssc.settings[UNPERSIST]:
            for rdd in rdds:
                rdd.unpersist()

    # -- what operators set

    def set_storage_level(self, level: StorageLevel) -> None:
        """Persist the RDDs made from now on at this level. Operators that read a parent's RDDs several times call this on the parent."""
        self.storage_level = level

    def set_checkpoint_interval(self, interval: Duration) -> None:
        """Set the interval at which the state is written.

        Raises:
            ConfigurationError: the interval is not a positive multiple of the slide duration.
        """
        if interval < self.slide_duration or not interval.isMultipleOf(self.slide_duration):
            raise ConfigurationError(
                f"the checkpoint interval of {self!r} is {interval}; it must be a multiple of the stream's slide duration, "
                f"{self.slide_duration}",
                key="interval",
                value=interval,
            )
        self.checkpoint_duration = interval

    def default_partitions(self, given: int | None, time: Time, first: int | None = None) -> int:
        """Return the number of partitions after a shuffle in a batch.

        Args:
            given: by the user; None uses Spark's default parallelism: that of the driver that planned the batch, if it is kept.
            time: the batch.
            first: Spark's default parallelism if it is not kept; None uses that of this moment.
        """
        if given is not None:
            return given
        kept = self.ssc.graph.parallelism_of(time)
        if kept is not None:
            return kept
        return self.ssc.sparkContext.defaultParallelism if first is None else first


def in_order(outputs: Iterable[DStreamNode]) -> list[DStreamNode]:
    """Return the outputs and all streams that they depend on, each before its parents."""
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
    """Raise ValueError unless there are streams, and all have the same context and slide duration."""
    if not parents:
        raise refused(ValueError("needs at least one stream"))
    if any(p.ssc is not parents[0].ssc for p in parents):
        raise refused(ValueError("the streams belong to different contexts"))
    slides = sorted({p.slide_duration for p in parents})
    if len(slides) > 1:
        raise refused(ValueError(f"the streams have different slide durations: {', '.join(map(str, slides))}"))
