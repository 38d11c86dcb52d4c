"""StatefulDStream: the base of streams that make the RDD of a batch from their own RDD of the batch before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
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
_FULL_LINEAGE = 2  # in checkpoint intervals: the lineage that `_shorten_lineage` lets grow
_LEAST_GAIN = 4  # the lineage must be this many times as long as the part that is computed again


@dataclass(frozen=True)
class Beginning:
    """The state that a driver started from. The driver computes no state at or before this time."""

    time: Time
    was_empty: bool
    """Whether there was no state at that time. If there was one, asking for an older state is an error (NoRDDError)."""


@dataclass(frozen=True)
class WrittenState:
    """The newest state that is durable in the checkpoint."""

    time: Time
    read: Callable[[], RDD[Any]] | None
    """Makes an RDD of the state; None if there is no state yet."""


@dataclass
class Lineage:
    """The RDDs that the newest state's RDD is computed from, and the places where Spark cuts this lineage."""

    base: Time
    """The batch of the state that was read from files, or that the driver began with. All newer RDDs are computed from that state."""
    local_checkpoints: list[Time] = field(default_factory=list[Time])
    """Batches whose state has a local checkpoint: Spark keeps it in the executors."""
    rdd_checkpoints: dict[Time, RDD[Any]] = field(default_factory=dict[Time, Any])
    """RDDs marked for Spark's reliable checkpoint, by batch, until their files are removed."""
    unread: dict[Time, Time] = field(default_factory=dict[Time, Time])
    """Batch of a state in files that tasks may still have to read → the newest batch that is computed from that state."""

    def newest_cut(self, time: Time, began: Time) -> Time:
        """Return the newest batch, not after `time`, at which the lineage ends: tasks compute no older batch. Never older than `began`."""
        cuts = [self.base, *self.unread, *self.local_checkpoints, *self.rdd_checkpoints]
        return max([began, *(cut for cut in cuts if cut <= time)])

    def read_by(self, time: Time) -> None:
        """Note that a batch's state is computed from the newest state in files that is not newer."""
        base = max((t for t in (self.base, *self.unread) if t <= time), default=self.base)
        if base in self.unread:
            self.unread[base] = max(time, self.unread[base])

    def restart_from(self, time: Time) -> None:
        """Set the base to the batch whose state was read from files."""
        self.base = time
        self.local_checkpoints = [t for t in self.local_checkpoints if t < time]
        self.unread[time] = time

    def is_anchor(self, time: Time, limit: Time) -> bool:
        """Return whether later states can be computed only from the blocks of this batch's state, because it is the last local checkpoint.

        Args:
            time: the batch.
            limit: local checkpoints after this time do not count.
        """
        if time not in self.local_checkpoints or time < self.base:
            return False
        return not any(time < cut <= limit for cut in self.local_checkpoints)


class StatefulDStream(DStreamNode):
    """Base of the streams with state. `compute` of a subclass gets the state to continue from by `previous`.

    The RDDs are persisted because the next batch reads them. When a batch has ended, the blocks of the state two batches earlier are
    unpersisted. The state is written once every `checkpoint_duration` (`written` is called), and later batches continue from the written
    state. Neither a restart nor a repeated task needs anything older. Batch times that were never planned do not change the state.

    After a downtime, or when a stream is behind, many batches are made before the first of them has run. Then Spark checkpoints the state
    locally (in the executors) after every `longest_lineage` batches, which cuts the lineage. If an executor is lost, its local checkpoints
    are lost. `go_back` then forgets the newer batches, which are made again from the last written state.

    Without a checkpoint directory of the StreamingContext (`uses_rdd_checkpoints`) the state is not written for a restart. Then Spark
    checkpoints its RDD every `checkpoint_duration` in the directory of the SparkContext, which cuts the lineage.

    Threads: the JobGenerator's thread makes RDDs, and user threads do in `slice`; job threads call `compute_state`, `is_due` and
    `state_at`; the JobScheduler's thread calls `go_back`; the cleaner's thread calls `states_to_read` and `remove_outdated_checkpoints`;
    any thread calls `written`. `_lock` guards all that changes after `initialize`.
    """

    key_hash = KeyHash.NONE
    """The hash by which the keys of the RDDs are partitioned. The RDDs that are read from files have the same partitioning."""
    survives_absence = True
    """Whether the state is still valid if the program had been without this stream for a time."""
    takes_out = False
    """Whether a later state takes out again what an earlier one has added, so that both must see the same records."""
    totals_window: Duration | None = None
    """The duration of the window whose totals the state has. Totals of another duration are no state of this stream."""
    longest_lineage = 30
    """In batches. Each adds three RDDs. With about two hundred RDDs the JVM's serializer may overflow its stack, in driver or worker."""

    def __init__(self, parent: DStreamNode, slide_duration: Duration) -> None:
        super().__init__(parent.ssc, (parent,), slide_duration)
        self.storage_level = StorageLevel.MEMORY_ONLY
        self.uses_rdd_checkpoints = False
        """Whether Spark's RDD checkpoints cut the lineage. Set by the graph at the start. If True, `is_due` is never true."""
        self.window_lookback = Duration(0)
        """How far back from the newest batch the windows over this stream look. Set by the graph."""
        self._number = self.ssc.graph.add_state_stream(self)
        self._inputs: list[DStreamNode] | None = None
        self._beginning = Beginning(Time(0), was_empty=True)
        self._older: dict[Time, Time] = {}
        """Batch of a state older than the beginning → the unfinished batch up to which states are computed from it."""
        self._without_results: set[Time] = set()
        """Batches that run again with a state from files: what mapWithState made with that state is in no file (see `stands_in`)."""
        self._written: WrittenState | None = None
        self._lineage = Lineage(Time(0))
        self._being_written: tuple[Time, Time] | None = None
        """The batch whose state is being written, and the base of the lineage when the writing began."""
        self._with_blocks: set[Time] = set()
        """The batches whose state is persisted."""
        self._replaced: list[tuple[Time, RDD[Any]]] = []
        """Batches and RDDs that a written state has replaced. They stay persisted, because batches that still run may read their blocks."""

    @property
    def state_id(self) -> str:
        """The id under which the state is stored: `s0`, `s1` … in the order in which the streams with state were made."""
        return f"s{self._number}"

    # -- a batch's state

    def previous(self, time: Time) -> RDD[Any] | None:
        """Return the newest state before `time`; None before the first state. For `compute`, under the lock; computes no RDD itself."""
        before = self.previous_time(time)
        return None if before is None else self._generated[before]

    def previous_time(self, time: Time) -> Time | None:
        """Return the batch of the state that `previous` returns: one slide duration before `time`, or older if that was not planned."""
        return max((t for t in self._generated if t < time), default=None)

    def getOrCompute(self, time: Time) -> RDD[Any] | None:
        """Return the state after a batch. States of older batches that are missing are made first, in a loop instead of a deep recursion.

        Returns:
            The RDD of the state; None if there is none, or if this stream does not slide to the time.

        Raises:
            NoRDDError: the state is older than the one this driver started from.
        """
        with self._lock:
            if time in self._without_results:
                self._complete_state(time)
            if time not in self._generated and self._is_time_valid(time):
                began = self._began_before(time)
                if began is None:
                    return self._before_the_beginning(time)
                self._shorten_lineage()
                self._make(time, began)
            return self._generated.get(time)

    def _make(self, time: Time, began: Time) -> None:
        """Make the states up to a batch that are missing since the newest one, or since `began`. Call this under the lock."""
        newest = max((t for t in self._generated if began <= t <= time), default=began)
        begun = newest.floor(self.slide_duration, self.zero_time)  # of the former interval, `newest` is no batch time now
        for missing in (begun + self.slide_duration).to(time, self.slide_duration):
            if self.has_batch(missing):
                self._cut_long_lineage(missing, super().getOrCompute(missing), began)
        self._lineage.read_by(time)

    def _complete_state(self, time: Time) -> None:
        """Give a state that was read from files what was computed with it, from the state before. Call this under the lock."""
        began = max((t for t in self._older if t < time), default=None)
        if began is not None and self.has_batch(time):
            self._make(time - self.slide_duration, began)
            made = self.compute(time)
            if made is not None:
                self.stands_in(self._generated[time], made)
        self._without_results.discard(time)

    def _began_before(self, time: Time) -> Time | None:
        """Return the batch of the state from which this driver computes the state of `time`; None if it knows none. Under the lock."""
        if time > self._beginning.time:
            return self._beginning.time
        older = max((t for t in self._older if t <= time), default=None)
        return None if older is None or time > self._older[older] else older

    def _cut_long_lineage(self, time: Time, state: RDD[Any] | None, began: Time) -> None:
        """Mark the state of a batch for a checkpoint of Spark, if the lineage must be cut there. Call this under the lock.

        With `uses_rdd_checkpoints` the state gets a reliable checkpoint once an interval, or when the lineage is `longest_lineage` slides
        long. Without it the state gets a local checkpoint, and only when the lineage is so long.
        """
        self._with_blocks.add(time)
        if state is None:
            return
        cut = self._lineage.newest_cut(time, began)
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
        """Whether, in this stream's slide that ends at `time`, any input that it depends on was planned."""
        if self._inputs is None:
            self._inputs = list(self.ssc.graph.inputs_of(self))
        step = self.ssc.graph.batch_duration
        times = (time - self.slide_duration + step).to(time, step)
        return any(stream.has_batch(t) for stream in self._inputs for t in times)

    def _before_the_beginning(self, time: Time) -> None:
        """Raise NoRDDError unless there was no state at the beginning."""
        if not self._beginning.was_empty:
            raise NoRDDError(
                f"the state of {self!r} at batch {time} is no longer known: this driver continued from the state at {self._beginning.time}",
                time=time.milliseconds,
            )

    # -- life

    def initialize(self, zero_time: Time) -> None:
        """Set the zero time, and a checkpoint interval of at least 10 s if none is set."""
        if self.zero_time is None:
            if self.checkpoint_duration is None:
                times = -(-_WRITTEN_EVERY.milliseconds // self.slide_duration.milliseconds)
                self.checkpoint_duration = self.slide_duration * times
            self._beginning = Beginning(zero_time, was_empty=True)
            self._lineage.base = zero_time
        super().initialize(zero_time)

    def begin(self, time: Time, state: RDD[Any] | None, empty_before: bool) -> None:
        """Set the state from which this driver continues. Called before its first batch. No state at or before `time` is computed.

        Args:
            time: the batch of the state.
            state: the RDD of the state; None if there is no state yet.
            empty_before: whether there was no state at `time`. If there was one, asking for an older state raises NoRDDError.
        """
        with self._lock:
            self._beginning = Beginning(time, empty_before)
            self._lineage.base = time
            self._written = WrittenState(time, None if state is None else lambda: state)
            if state is not None:
                self._generated[time] = self._persisted(state)
                self._with_blocks.add(time)
                self._lineage.unread[time] = time

    def begin_older(self, time: Time, state: RDD[Any] | None, until: Time) -> None:
        """Set an older state, from which unfinished batches are computed. Called after `begin`, newest first, before the first batch.

        Args:
            time: the batch of the state.
            state: the RDD of the state; None if there is no state yet.
            until: the newest of these unfinished batches. No state of a later batch is computed from this one.
        """
        with self._lock:
            until = until.floor(self.slide_duration, self._initialized())
            self._older[time] = max(until, self._older.get(time, until))
            self._without_results |= {t for t in self._generated if time < t <= until}
            if state is not None and time not in self._generated:
                self._generated[time] = self._persisted(state)
                self._with_blocks.add(time)
                self._lineage.unread[time] = time

    def compute_state(self, time: Time) -> None:
        """Compute the state of a batch, if later batches continue from it. In a job thread; blocks on a Spark job, whose error is raised.

        After a restart a newer state is read from files: then no later batch needs that of an older, unfinished batch.
        """
        with self._lock:
            state = self._generated.get(time) if time > self._beginning.time else None
        if state is not None:
            self.ssc.state_rdds.compute(state)

    def is_due(self, time: Time) -> bool:
        """Return whether the state of a batch must be written. Called when all jobs of the batch have succeeded. Any thread.

        One state is written for each checkpoint interval: that of the batch at its end, or of the first batch after it.
        """
        with self._lock:
            if self.uses_rdd_checkpoints or time not in self._generated or self.checkpoint_duration is None or self.zero_time is None:
                return False
            since = self.zero_time if self._written is None else self._written.time
            return time.floor(self.checkpoint_duration, self.zero_time) > since

    def state_at(self, time: Time) -> RDD[Any]:
        """Return the RDD of the state of a batch that `is_due`, which the caller then writes. KeyError if it is forgotten. Any thread."""
        with self._lock:
            self._being_written = (time, self._lineage.base)
            return self._generated[time]

    def written(self, time: Time, read: Callable[[], RDD[Any]]) -> None:
        """Note that the state of a batch is durable: later batches are made from it.

        Any thread; blocks while another thread makes an RDD of this stream.

        Args:
            time: the batch.
            read: makes an RDD of the written state. It is called later, by the thread that makes RDDs or by `go_back`.
        """
        with self._lock:
            if self._written is None or time > self._written.time:
                self._written = WrittenState(time, read)
            if self._being_written is not None and self._being_written[0] == time:
                self._lineage.unread.pop(self._being_written[1], None)  # the write has computed and persisted every partition

    def states_to_read(self, unfinished: Time) -> set[Time]:
        """Return the batches of the states in files that batches from `unfinished` on may have to read. Any thread.

        A state may be read long after the batch that follows it: an output that takes only the first records reads only the first
        partition, and a later batch reads the others.
        """
        with self._lock:
            limit, lineage = unfinished - self.slide_duration, self._lineage
            lineage.unread = {base: newest for base, newest in lineage.unread.items() if base == lineage.base or newest > limit}
            return set(lineage.unread)

    def begins_after(self, time: Time) -> bool:
        """Return whether this driver began with a state of a batch that is not older: it has the data of that batch in it."""
        with self._lock:
            return self._beginning.time >= time

    def forget(self, times: Collection[Time]) -> None:
        """Forget the states of these batches, which have not been computed. States that the driver began with stay."""
        with self._lock:
            began = {self._beginning.time, *self._older}
            gone = {t for t in times if t in self._generated and t not in began}
            self._with_blocks -= gone
            lineage = self._lineage
            lineage.local_checkpoints = [t for t in lineage.local_checkpoints if t not in gone]
            for t in gone:
                lineage.rdd_checkpoints.pop(t, None)
        super().forget(gone)

    def go_back(self) -> None:
        """Forget the states after the last written state, so that they are made again from it.

        Called when blocks of the state were lost with an executor. If the plan of a batch is no longer kept, or no state was written,
        nothing changes; then only a restart helps.

        Any thread. Blocks while another thread makes an RDD of this stream, and while the driver reads the written state (only if the
        workers cannot open the store).
        """
        with self._lock:
            written = self._written
            if written is None or written.read is None:
                return
            younger = [t for t in self._generated if t > written.time]
            if all(self.has_batch(t) for t in younger):
                self._continue_from(written.time, written.read, younger)

    def _shorten_lineage(self) -> None:
        """Continue from the newest written state, if this saves much more work than it costs. Call this under the lock.

        Batches that were made while the state was being written descend from its old RDD. If they were kept, the lineage would grow with
        each write. If they are made again, their data is read again. So they are made again only if the lineage is `_FULL_LINEAGE`
        checkpoint intervals long and `_LEAST_GAIN` times as long as the part that is made again.
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
        """Replace the RDD of a written state by an RDD of its files, and forget the states of younger batches. Call this under the lock.

        If the files cannot be read, a warning is logged and nothing changes.
        """
        try:
            state = self._persisted(read())
        except StorageError as e:  # only if the driver itself reads; if workers read, their tasks fail later
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
        """Copy what `made` has besides the state to `state`, which was read from files and replaces it. For subclasses."""

    def _persisted(self, rdd: RDD[Any]) -> RDD[Any]:
        """Persist an RDD at the stream's storage level, unless it is persisted already. Return it."""
        return rdd if self.storage_level is None or rdd.is_cached else rdd.persist(self.storage_level)

    # -- clean-up

    def caught_up_to(self) -> Time:
        """Return the newest batch whose state is made. Parents must not forget newer batches, because later states need them.

        While the state of an unfinished batch is still to be made from an older one, that one counts.
        """
        with self._lock:
            made = self._generated.keys() - self._without_results
            to_make = [began for began, until in self._older.items() if until > began and until not in made]
            return min(to_make, default=max(self._generated, default=self._beginning.time))

    def forget_older(self, time: Time) -> None:
        """Forget from which states batches before `time` are computed, because they have ended."""
        with self._lock:
            self._older = {began: until for began, until in self._older.items() if until >= time}
            self._without_results = {t for t in self._without_results if any(began < t <= until for began, until in self._older.items())}

    def clear_metadata(self, time: Time) -> None:
        """Forget old states as every stream does, but never the newest one. Unpersist blocks sooner: when no batch needs them."""
        with self._lock:
            limit = time - self.slide_duration * 2 - self.window_lookback
            unread = [rdd for t, rdd in self._replaced if t <= limit]
            self._replaced = [(t, rdd) for t, rdd in self._replaced if t > limit]
            newest = max(self._generated, default=limit)
            kept = {newest, *self._older}
            freed = [t for t in self._with_blocks if t <= limit and t not in kept and not self._lineage.is_anchor(t, limit)]
            self._with_blocks.difference_update(freed)
            unread += [self._generated[t] for t in freed if t in self._generated]
        self._unpersist(unread)
        super().clear_metadata(time)

    def remove_outdated_checkpoints(self) -> None:
        """Remove the files of Spark's RDD checkpoints that no remembered RDD needs. The cleaner's thread; blocks on the file system.

        A checkpoint has files only after a job has run. An older checkpoint stays until a newer one has files.
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
        return [t for t in super()._forgettable(time) if t != newest and t not in self._older and not self._lineage.is_anchor(t, time)]


def oldest_required_batches(
    order: Iterable[DStreamNode], first: Time, kept: Callable[[StatefulDStream, Time], Time | None]
) -> dict[DStreamNode, Time]:
    """Return the oldest batch of each stream that the batches from `first` on need. Pure if `kept` is pure.

    Args:
        order: the streams, each before its parents.
        first: the oldest batch that runs.
        kept: `kept(stream, time)` returns the newest batch, not after `time`, whose state is stored. The states after that batch are
            computed. None means that the state at `time` needs nothing older.
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
