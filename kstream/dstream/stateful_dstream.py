"""StatefulDStream: a stream whose RDD of a batch is made from its own RDD of the batch before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.storagelevel import StorageLevel

from kstream.batch import KeyHash
from kstream.batch_time import Duration, Time
from kstream.dstream.node import DStreamNode
from kstream.errors import NoRDDError, StorageError

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger(__name__)
_WRITTEN_EVERY = Duration(10_000)
_FULL_LINEAGE = 2
_LEAST_GAIN = 4


@dataclass(frozen=True)
class Beginning:
    """The state that a driver started from. It computes no state at or before this time."""

    time: Time
    was_empty: bool
    """There was no state then. Otherwise there was one, and it is an error to ask for it."""


@dataclass(frozen=True)
class WrittenState:
    """The newest durable state."""

    time: Time
    read: Callable[[], RDD[Any]] | None
    """Makes an RDD of the state; None where there is no state yet."""


@dataclass
class Lineage:
    """What the newest state's RDD descends from, and where Spark cuts that."""

    base: Time
    """The state that was read back or was there at the beginning. All newer RDDs descend from it."""
    local_checkpoints: list[Time] = field(default_factory=list[Time])
    """Batches whose state Spark checkpoints in the executors' own stores."""
    rdd_checkpoints: dict[Time, RDD[Any]] = field(default_factory=dict[Time, Any])
    """RDDs marked for Spark's reliable checkpoint, whose files are not removed yet."""
    unread: dict[Time, Time] = field(default_factory=dict[Time, Time])
    """States in files that RDDs descend from and that not every task has read yet → the newest batch made of them."""

    def newest_cut(self) -> Time:
        """The newest batch that tasks need not go behind."""
        return max([self.base, *self.local_checkpoints, *self.rdd_checkpoints])

    def restart_from(self, time: Time) -> None:
        """Newer RDDs descend from the state that was read back."""
        self.base = time
        self.local_checkpoints = [t for t in self.local_checkpoints if t < time]
        self.unread[time] = time

    def is_anchor(self, time: Time, limit: Time) -> bool:
        """Whether newer states can be computed again only from the blocks of this one, because Spark has cut the lineage there."""
        if time not in self.local_checkpoints or time < self.base:
            return False
        return not any(time < cut <= limit for cut in self.local_checkpoints)


class StatefulDStream(DStreamNode):
    """Base of the streams that carry state. `compute` of a subclass gets the state to continue from by `previous`.

    Its RDDs are persisted because the next batch reads them. When a batch has ended, the blocks of the state two batches earlier are
    unpersisted. The state is written once every `checkpoint_duration` (`written` is called), and later batches continue from the written
    state. Neither a restart nor a repeated task goes further back. Batch times that were never planned leave the state as it is.

    After a downtime, or when a stream is behind, many batches are made before the first of them has run. Then Spark checkpoints the state
    after every `longest_lineage` batches in the executors' own stores, which cuts the lineage. An executor that is lost takes such blocks
    with it; `go_back` then makes the batches again from the state that was written last.

    Without a checkpoint directory of the StreamingContext (`uses_rdd_checkpoints`) the state is not written for a restart. Then Spark
    checkpoints its RDD every `checkpoint_duration` in the directory of the SparkContext, which cuts the lineage.

    `key_hash`: what places the keys of its RDDs; they are read back as such.
    `survives_absence`: the state is still valid when the stream was taken out of the program for a while and is back.
    """

    key_hash = KeyHash.NONE
    survives_absence = True
    longest_lineage = 30
    """Batches. Each adds three RDDs; with some two hundred the JVM's serializer may run out of stack, in the driver or in a worker."""

    def __init__(self, parent: DStreamNode, slide_duration: Duration) -> None:
        super().__init__(parent.ssc, (parent,), slide_duration)
        self.storage_level = StorageLevel.MEMORY_ONLY
        self.uses_rdd_checkpoints = False
        """Whether Spark's RDD checkpoints cut the lineage. Set at the start; then nothing is ever `is_due` or `written`."""
        self.window_lookback = Duration(0)
        """How far behind the newest batch the windows over this stream look. Set by the graph."""
        self._number = self.ssc.graph.add_state_stream(self)
        self._inputs: list[DStreamNode] | None = None
        self._beginning = Beginning(Time(0), was_empty=True)
        self._written: WrittenState | None = None
        self._lineage = Lineage(Time(0))
        self._being_written: tuple[Time, Time] | None = None
        """The batch whose state is being written, and the base of its RDD's lineage then."""
        self._with_blocks: set[Time] = set()
        """Batches whose state is persisted."""
        self._replaced: list[tuple[Time, RDD[Any]]] = []
        """RDDs that a written state has replaced. Batches that still run may read their blocks."""

    @property
    def state_id(self) -> str:
        """What its state is stored under: `s0`, `s1` … in the order in which the streams with state were made. The one place that says."""
        return f"s{self._number}"

    # -- a batch's state

    def previous(self, time: Time) -> RDD[Any] | None:
        """The state as the batches before `time` left it; None before the first batch. For `compute`: it computes nothing itself."""
        before = self.previous_time(time)
        return None if before is None else self._generated[before]

    def previous_time(self, time: Time) -> Time | None:
        """The batch that left the state which `previous` returns: one slide duration before `time`, if that was planned."""
        return max((t for t in self._generated if t < time), default=None)

    def getOrCompute(self, time: Time) -> RDD[Any] | None:
        """Return the state after a batch. Missing older ones are made first, one by one: recursion would be as deep as the gap."""
        with self._lock:
            if time not in self._generated and self._is_time_valid(time):
                if time <= self._beginning.time:
                    return self._before_the_beginning(time)
                self._shorten_lineage()
                newest = max((t for t in self._generated if t < time), default=self._beginning.time)
                for missing in (newest + self.slide_duration).to(time, self.slide_duration):
                    if self.has_batch(missing):
                        self._cut_long_lineage(missing, super().getOrCompute(missing))
                if self._lineage.base in self._lineage.unread:
                    self._lineage.unread[self._lineage.base] = time
            return self._generated.get(time)

    def _cut_long_lineage(self, time: Time, state: RDD[Any] | None) -> None:
        """Mark the state of a batch for a checkpoint of Spark's, where the lineage must be cut.

        With `uses_rdd_checkpoints` that is once an interval, by Spark's reliable checkpoint. Otherwise by a local checkpoint, and only if
        the lineage is `longest_lineage` slides long.
        """
        self._with_blocks.add(time)
        if state is None:
            return
        cut = self._lineage.newest_cut()
        too_long = time.since(cut) >= self.slide_duration * self.longest_lineage
        if self.uses_rdd_checkpoints:
            assert self.checkpoint_duration is not None
            if too_long or time.floor(self.checkpoint_duration, self.zero_time) > cut:
                state.checkpoint()
                self._lineage.rdd_checkpoints[time] = state
        elif too_long:
            state.localCheckpoint()
            self._lineage.local_checkpoints.append(time)

    def has_batch(self, time: Time) -> bool:
        """Whether any batch since this stream's last one was planned, in any input it is made of."""
        if self._inputs is None:
            self._inputs = list(self.ssc.graph.inputs_of(self))
        step = self.ssc.graph.batch_duration
        times = (time - self.slide_duration + step).to(time, step)
        return any(stream.has_batch(t) for stream in self._inputs for t in times)

    def _before_the_beginning(self, time: Time) -> None:
        if not self._beginning.was_empty:
            raise NoRDDError(
                f"the state of {self!r} at batch {time} is not known any more: this driver went on from the one at {self._beginning.time}",
                time=time.milliseconds,
            )

    # -- life

    def initialize(self, zero_time: Time) -> None:
        if self.zero_time is None:
            if self.checkpoint_duration is None:
                times = -(-_WRITTEN_EVERY.milliseconds // self.slide_duration.milliseconds)
                self.checkpoint_duration = self.slide_duration * times
            self._beginning = Beginning(zero_time, was_empty=True)
            self._lineage.base = zero_time
        super().initialize(zero_time)

    def begin(self, time: Time, state: RDD[Any] | None, empty_before: bool) -> None:
        """Set the state to begin with, before the first batch. Nothing older is ever computed.

        Args:
            time: the batch that left the state.
            state: the state; None if there is none yet.
            empty_before: there was no state at `time`. Otherwise there was, and it is an error to ask for it.
        """
        with self._lock:
            self._beginning = Beginning(time, empty_before)
            self._lineage.base = time
            self._written = WrittenState(time, None if state is None else lambda: state)
            if state is not None:
                self._generated[time] = self._persisted(state)
                self._with_blocks.add(time)
                self._lineage.unread[time] = time

    def is_due(self, time: Time) -> bool:
        """Whether the state of a batch that has ended must be written: at each multiple of the interval, or as soon as possible after."""
        with self._lock:
            if self.uses_rdd_checkpoints or time not in self._generated or self.checkpoint_duration is None or self.zero_time is None:
                return False
            since = self.zero_time if self._written is None else self._written.time
            return time.floor(self.checkpoint_duration, self.zero_time) > since

    def state_at(self, time: Time) -> RDD[Any]:
        """The state of a batch that `is_due`, to be written."""
        with self._lock:
            self._being_written = (time, self._lineage.base)
            return self._generated[time]

    def written(self, time: Time, read: Callable[[], RDD[Any]]) -> None:
        """The state of the batch is durable: newer batches are made from it. Any thread.

        Args:
            time: the batch.
            read: makes an RDD of the written state.
        """
        with self._lock:
            if self._written is None or time > self._written.time:
                self._written = WrittenState(time, read)
            if self._being_written is not None and self._being_written[0] == time:
                self._lineage.unread.pop(self._being_written[1], None)  # every partition was made, and is persisted

    def reads_from(self, unfinished: Time) -> Time | None:
        """The oldest state in files that batches from `unfinished` on may have to read; None for none.

        An output that takes the first records reads only the first partition. A later batch reads the others when it needs them.
        """
        with self._lock:
            limit, lineage = unfinished - self.slide_duration, self._lineage
            lineage.unread = {base: newest for base, newest in lineage.unread.items() if base == lineage.base or newest > limit}
            return min(lineage.unread, default=None)

    def go_back(self) -> None:
        """Blocks of the state are lost with an executor: forget the batches after the last written state, so that they are made again.

        Where they cannot be made again, only a restart helps. Any thread.
        """
        with self._lock:
            written = self._written
            if written is None or written.read is None:
                return
            younger = [t for t in self._generated if t > written.time]
            if all(self.has_batch(t) for t in younger):
                self._continue_from(written.time, written.read, younger)

    def _shorten_lineage(self) -> None:
        """Continue from the newest written state, where that costs nothing, or little against what it saves.

        Batches made while the state was being written descend from the RDD it was written from. If they were kept, the lineage would grow
        with each round. If they are made again, their data is read again.
        """
        written, base = self._written, self._lineage.base
        if written is None or written.read is None or written.time <= base or written.time not in self._generated:
            return
        younger = sorted(t for t in self._generated if t > written.time)
        if younger:
            assert self.checkpoint_duration is not None
            length, again = younger[-1].since(base), younger[-1].since(written.time)
            if length < self.checkpoint_duration * _FULL_LINEAGE or length < again * _LEAST_GAIN:
                return
            if not all(self.has_batch(t) for t in younger):
                return
        self._continue_from(written.time, written.read, younger)

    def _continue_from(self, written: Time, read: Callable[[], RDD[Any]], younger: list[Time]) -> None:
        """Replace the RDD that a state was written from by the written state, and forget the younger ones."""
        try:
            state = self._persisted(read())
        except StorageError as e:  # where the driver itself reads
            logger.warning("the state of %r that was written cannot be read back: %s", self, e)
            return
        if written in self._generated:
            self.stands_in(state, self._generated[written])
        self._replaced += [(t, self._generated.pop(t)) for t in [*younger, written] if t in self._generated]
        self._with_blocks.difference_update(younger)
        self._generated[written] = state
        self._with_blocks.add(written)
        self._lineage.restart_from(written)

    def stands_in(self, state: RDD[Any], made: RDD[Any]) -> None:
        """`state` was read back and replaces the RDD that was `made`. For a subclass whose RDDs carry more than the state."""

    def _persisted(self, rdd: RDD[Any]) -> RDD[Any]:
        return rdd if self.storage_level is None or rdd.is_cached else rdd.persist(self.storage_level)

    # -- clean-up

    def caught_up_to(self) -> Time:
        """The newest batch whose state is made. Nothing newer may be forgotten upstream."""
        with self._lock:
            return max(self._generated, default=self._beginning.time)

    def clear_metadata(self, time: Time) -> None:
        """Forget as every stream does, but never the newest state. Unpersist sooner: as soon as no batch reads the blocks."""
        with self._lock:
            limit = time - self.slide_duration * 2 - self.window_lookback
            unread = [rdd for t, rdd in self._replaced if t <= limit]
            self._replaced = [(t, rdd) for t, rdd in self._replaced if t > limit]
            newest = max(self._generated, default=limit)
            freed = [t for t in self._with_blocks if t <= limit and t != newest and not self._lineage.is_anchor(t, limit)]
            self._with_blocks.difference_update(freed)
            unread += [self._generated[t] for t in freed if t in self._generated]
        self._unpersist(unread)
        super().clear_metadata(time)

    def remove_outdated_checkpoints(self) -> None:
        """Remove the files of Spark's RDD checkpoints from which no remembered RDD descends. Blocks; the cleaner's thread.

        A checkpoint has files once a job has run. Until a newer one has files, the older one stays.
        """
        checkpoints = self._lineage.rdd_checkpoints
        with self._lock:
            oldest = min(self._generated, default=None)
            marked = {} if oldest is None else {t: rdd for t, rdd in checkpoints.items() if t <= oldest}
        files = {t: file for t, rdd in marked.items() if (file := rdd.getCheckpointFile()) is not None}
        needed = max(files, default=None)
        for time in sorted(marked):
            if needed is not None and time < needed:
                if time in files:
                    self.ssc.state_rdds.remove_checkpoint(files[time])
                with self._lock:
                    del checkpoints[time]

    def _forgettable(self, time: Time) -> list[Time]:
        newest = max(self._generated, default=None)
        return [t for t in super()._forgettable(time) if t != newest and not self._lineage.is_anchor(t, time)]


def oldest_required_batches(
    order: Iterable[DStreamNode], first: Time, kept: Callable[[StatefulDStream, Time], Time | None]
) -> dict[DStreamNode, Time]:
    """How far back the batches from `first` on look: the oldest batch of each stream that must be known. Pure.

    Args:
        order: the streams, each before the streams it is made of.
        first: the oldest batch that runs.
        kept: `kept(stream, time)` is the batch, not after `time`, whose state is known; newer states are computed. None: the states of
            this stream need nothing older.
    """
    required: dict[DStreamNode, Time] = {}
    for stream in order:
        time = required.setdefault(stream, first)
        if isinstance(stream, StatefulDStream):
            known = kept(stream, time)
            time = time if known is None else min(time, known + stream.slide_duration)
        back = stream.reaches_back_to(time)
        for parent in stream.dependencies:
            required[parent] = min(required.get(parent, first), back)
    return required
