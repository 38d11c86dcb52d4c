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
_LAST_RESORT = 1.5
"""How many times `longest_lineage` the lineage may grow while states cannot be written. Then Spark cuts it by a local checkpoint."""


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


@dataclass(frozen=True)
class Recovery:
    """The state in files from which the states after it can be made again."""

    time: Time
    """Its batch; the batch of the beginning if the stream began without state."""
    state: RDD[Any] | None
    """An RDD of its files; None if there was no state yet."""


@dataclass
class Lineage:
    """What the RDDs of the remembered states are computed from, and the places where Spark cuts this lineage."""

    bases: dict[Time, Time] = field(default_factory=dict[Time, Time])
    """Batch of a remembered state → the batch of the state in files, or of the beginning, from which its RDD is computed."""
    lengths: dict[Time, int] = field(default_factory=dict[Time, int])
    """Batch of a remembered state → how many states its RDD is computed from, itself included, since the newest cut before it."""
    local_checkpoints: list[Time] = field(default_factory=list[Time])
    """Batches whose state has a local checkpoint: Spark keeps it in the executors."""
    rdd_checkpoints: dict[Time, RDD[Any]] = field(default_factory=dict[Time, Any])
    """RDDs marked for Spark's reliable checkpoint, by batch, until their files are removed."""

    def made(self, time: Time, before: Time) -> None:
        """Note that the state of a batch is computed from the state of another one."""
        is_cut = before in self.local_checkpoints or before in self.rdd_checkpoints
        self.bases[time] = self.bases.get(before, before)
        self.lengths[time] = 1 if is_cut else self.lengths.get(before, 0) + 1

    def read_from_files(self, time: Time) -> None:
        """Note that the state of a batch is computed from nothing but its files."""
        self.forget([time])
        self.bases[time] = time

    def newest_cut(self, time: Time) -> Time:
        """Return the newest batch, before `time`, at which the lineage of its state ends: tasks compute no older batch."""
        base = self.bases[time]
        return max([base, *(cut for cut in (*self.local_checkpoints, *self.rdd_checkpoints) if base < cut < time)])

    def forget(self, times: Collection[Time]) -> None:
        """Forget the states of these batches."""
        for time in times:
            self.bases.pop(time, None)
            self.lengths.pop(time, None)
            self.rdd_checkpoints.pop(time, None)
        self.local_checkpoints = [t for t in self.local_checkpoints if t not in times]

    def forget_all_but(self, times: Collection[Time]) -> None:
        """Forget what the states of batches besides these are computed from. Spark's RDD checkpoints stay until their files are removed."""
        self.bases = {t: base for t, base in self.bases.items() if t in times}
        self.lengths = {t: length for t, length in self.lengths.items() if t in times}
        self.local_checkpoints = [t for t in self.local_checkpoints if t in times]

    def is_anchor(self, time: Time, limit: Time) -> bool:
        """Return whether later states can be computed only from the blocks of this batch's state, because it is the last local checkpoint.

        Args:
            time: the batch.
            limit: local checkpoints after this time do not count.
        """
        if time not in self.local_checkpoints:
            return False
        cuts = {*self.local_checkpoints, *self.bases.values()}
        return not any(time < cut <= limit for cut in cuts)


class StatefulDStream(DStreamNode):
    """Base of the streams with state. `compute` of a subclass gets the state to continue from by `previous`.

    The RDDs are persisted because the next batch reads them. When a batch has ended, the blocks of the state two batches earlier are
    unpersisted. The state is written once every `checkpoint_duration`, and when the lineage is `longest_lineage` batches long (`written` is
    called). The next batch is made from the written state, and this cuts the lineage. Neither a restart nor a repeated task needs anything
    older. Batch times that were never planned do not change the state.

    No RDD that a batch holds is replaced, except in a repair: the scheduler generates the batch after a state that is due when that state
    is written. If the state cannot be written for long, Spark cuts the lineage by a local checkpoint (in the executors). If an executor is
    lost, its local checkpoints are lost. `go_back` then forgets the newer states, which are made again from the last written one.

    Without a checkpoint directory of the StreamingContext (`uses_rdd_checkpoints`) the state is not written for a restart. Then Spark
    checkpoints its RDD every `checkpoint_duration` in the directory of the SparkContext, which cuts the lineage.

    Threads: the JobGenerator's thread makes RDDs and calls `go_back`, and user threads make RDDs in `slice`; job threads call
    `compute_state`, `is_due` and `state_to_write`; the cleaner's thread calls `states_to_read` and `remove_outdated_checkpoints`; any
    thread calls `written`. `_lock` guards all that changes after `initialize`.
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
        self._lineage = Lineage()
        self._cleared = Time(0)
        """The time for which `clear_metadata` was called last."""
        self._with_blocks: set[Time] = set()
        """The batches whose state is persisted."""
        self._replaced: list[tuple[Time, Time, RDD[Any]]] = []
        """Batches, the bases of their lineage, and RDDs that a written state has replaced. Batches that have not ended may read them."""

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
                    return self._check_began_empty(time)
                self._continue_from_written(time)
                self._make_missing_states(time, began)
            return self._generated.get(time)

    def _make_missing_states(self, time: Time, began: Time) -> None:
        """Make the states up to a batch that are missing since the newest one, or since `began`. Call this under the lock."""
        newest = max((t for t in self._generated if began <= t <= time), default=began)
        begun = newest.floor(self.slide_duration, self.zero_time)  # of the former interval, `newest` is no batch time now
        for missing in (begun + self.slide_duration).to(time, self.slide_duration):
            if self.has_batch(missing):
                before = self.previous_time(missing)
                self._lineage.made(missing, began if before is None else before)
                self._cut_long_lineage(missing, super().getOrCompute(missing))

    def _complete_state(self, time: Time) -> None:
        """Make again what a batch computed besides its state (see `stands_in`), if the state was read from files. Under the lock.

        It is made from the state before, which may have to be made first.
        """
        began = max((t for t in self._older if t < time), default=None)
        if began is not None and self.has_batch(time):
            self._make_missing_states(time - self.slide_duration, began)
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

    def _cut_long_lineage(self, time: Time, state: RDD[Any] | None) -> None:
        """Mark the state of a batch for a checkpoint of Spark, if the lineage must be cut there. Call this under the lock.

        With `uses_rdd_checkpoints` the state gets a reliable checkpoint once an interval, or when the lineage is `longest_lineage` batches
        long. Without it such a state is due, and written. Only if that has failed for long the state gets a local checkpoint.
        """
        self._with_blocks.add(time)
        if state is None:
            return
        if self.uses_rdd_checkpoints:
            assert self.checkpoint_duration is not None
            cut = self._lineage.newest_cut(time)
            if self._is_lineage_long(time) or time.floor(self.checkpoint_duration, self.zero_time) > cut:
                state.checkpoint()
                self._lineage.rdd_checkpoints[time] = state
        elif self._is_lineage_long(time, _LAST_RESORT):
            state.localCheckpoint()
            self._lineage.local_checkpoints.append(time)

    def _is_lineage_long(self, time: Time, times: float = 1) -> bool:
        """Return whether the lineage of a remembered state is so many times `longest_lineage` batches long. Call this under the lock."""
        return self._lineage.lengths.get(time, 0) >= self.longest_lineage * times

    def has_batch(self, time: Time) -> bool:
        """Return whether any input that this stream depends on was planned for a batch of its slide that ends at `time`."""
        if self._inputs is None:
            self._inputs = list(self.ssc.graph.inputs_of(self))
        step = self.ssc.graph.batch_duration
        times = (time - self.slide_duration + step).to(time, step)
        return any(stream.has_batch(t) for stream in self._inputs for t in times)

    def _check_began_empty(self, time: Time) -> None:
        """Raise NoRDDError for a state from before the beginning, unless there was none then."""
        if not self._beginning.was_empty:
            raise NoRDDError(
                f"the state of {self!r} at batch {time} is no longer known: this driver continued from the state at {self._beginning.time}",
                time=time.milliseconds,
            )

    # -- life

    def initialize(self, zero_time: Time) -> None:
        """Set the zero time, and a checkpoint interval of at least 10 s if none is set. The stream begins without state; see `begin`."""
        if self.zero_time is None:
            if self.checkpoint_duration is None:
                times = -(-_WRITTEN_EVERY.milliseconds // self.slide_duration.milliseconds)
                self.checkpoint_duration = self.slide_duration * times
            self._beginning = Beginning(zero_time, was_empty=True)
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
            self._written = WrittenState(time, None if state is None else lambda: state)
            if state is not None:
                self._begin_with(time, state)

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
                self._begin_with(time, state)

    def _begin_with(self, time: Time, state: RDD[Any]) -> None:
        """Take an RDD of a state in files as the state of its batch. Call this under the lock."""
        self._generated[time] = self._persisted(state)
        self._with_blocks.add(time)
        self._lineage.read_from_files(time)

    def compute_state(self, time: Time) -> None:
        """Compute the state of a batch, if later batches continue from it. In a job thread; blocks on a Spark job, whose error is raised.

        After a restart a newer state is read from files: then no later batch needs that of an older, unfinished batch.
        """
        with self._lock:
            state = self._generated.get(time) if time > self._beginning.time else None
        if state is not None:
            self.ssc.state_rdds.compute(state)

    def is_due(self, time: Time) -> bool:
        """Return whether the state of a batch must be written when all jobs of the batch have ended. Any thread.

        One state is written for each checkpoint interval: that of the batch at its end, or of the first batch after it. A state is also due
        when its lineage is `longest_lineage` batches long.
        """
        with self._lock:
            if self.uses_rdd_checkpoints or time not in self._generated or self.checkpoint_duration is None or self.zero_time is None:
                return False
            since = self.zero_time if self._written is None else self._written.time
            if time <= since:
                return False
            return time.floor(self.checkpoint_duration, self.zero_time) > since or self._is_lineage_long(time)

    def state_to_write(self, time: Time) -> RDD[Any] | None:
        """Return the RDD of the state of a batch if `is_due`, else None. Any thread.

        A repair of another batch may forget the state. Then it is due when the batch has run again.
        """
        with self._lock:
            return self._generated[time] if self.is_due(time) else None

    def written(self, time: Time, read: Callable[[], RDD[Any]]) -> None:
        """Note that the state of a batch is durable: later batches are made from it.

        Any thread; blocks while another thread makes an RDD of this stream.

        Args:
            time: the batch.
            read: makes an RDD of the written state. It is called later, by the thread that makes RDDs.
        """
        with self._lock:
            if self._written is None or time > self._written.time:
                self._written = WrittenState(time, read)

    def states_to_read(self, new: Time, unfinished: Collection[Time]) -> set[Time]:
        """Return the batches of the states in files that batches which have not ended may have to read. Any thread.

        Those are the bases of all states that such a batch reads, and of the newest state, from which the next batch is made. A state may
        be read long after the batch that follows it: an output that takes only the first records reads only the first partition, and a
        later batch reads the others. Blocks that are lost with an executor are computed again from the base.

        Args:
            new: the oldest batch of those that run or come.
            unfinished: the batches that have not succeeded. Older ones than `new` have failed, and may be tried again.
        """
        with self._lock:
            reach, bases = self.slide_duration + self.window_lookback, self._lineage.bases
            newest = max(self._generated, default=None)
            read = {*bases, *(t for t, _, _ in self._replaced), *self._older.values()}
            oldest = min(read, default=new)
            older = [t for t in unfinished if oldest <= t < new]  # an outage may leave many, and few are as new as a remembered state

            def is_read(time: Time) -> bool:
                return time > new - reach or any(time <= t < time + reach for t in older)

            needed = {base for t, base in bases.items() if t == newest or is_read(t)}
            needed |= {base for t, base, _ in self._replaced if is_read(t)}
            return needed | {began for began, until in self._older.items() if is_read(until)}

    def begins_after(self, time: Time) -> bool:
        """Return whether the state with which this driver began is that of this batch or of a later one, and so has its data in it."""
        with self._lock:
            return self._beginning.time >= time

    def forget(self, times: Collection[Time]) -> None:
        """Forget the states of these batches, which no output has shown and no file has. States that the driver began with stay."""
        with self._lock:
            began = {self._beginning.time, *self._older}
            gone = {t for t in times if t in self._generated and t not in began}
            self._with_blocks -= gone
            self._lineage.forget(gone)
        super().forget(gone)

    def recovery(self) -> Recovery | None:
        """Return the written state from which the newer states can be made again; None if they cannot. Changes nothing.

        They cannot if the written state cannot be read, or if the plan of a later batch is no longer kept. Then only a restart helps.
        Blocks while the driver reads the written state (only if the workers cannot open the store).
        """
        with self._lock:
            written = self._written
            if written is None or written.time < self._cleared - self.remember_duration:
                return None
            if not all(self.has_batch(t) for t in self._generated if t > written.time):
                return None
            if written.read is None:
                return Recovery(written.time, None)
            state = self._read(written.read)
            return None if state is None else Recovery(written.time, state)

    def go_back(self, recovery: Recovery) -> None:
        """Forget the states after the written state, so that they are made again from it, because blocks or files of a state are gone.

        The forgotten RDDs stay persisted until their batches have ended, because jobs may still read them.

        Args:
            recovery: what `recovery` has returned.
        """
        with self._lock:
            younger = [t for t in self._generated if t > recovery.time]
            if recovery.state is not None:
                self._replace_by_files(recovery.time, recovery.state)
            self._replaced += [(t, self._lineage.bases[t], self._generated.pop(t)) for t in younger]
            self._with_blocks.difference_update(younger)
            self._lineage.forget(younger)

    def _continue_from_written(self, time: Time) -> None:
        """Let a new batch continue from the written state, unless a newer one is made already. Call this under the lock."""
        written, newest = self._written, max(self._generated, default=None)
        if written is None or written.read is None or written.time != newest or time <= written.time:
            return
        if self._lineage.bases[written.time] != written.time:
            state = self._read(written.read)
            if state is not None:
                self._replace_by_files(written.time, state)

    def _read(self, read: Callable[[], RDD[Any]]) -> RDD[Any] | None:
        """Return an RDD of a written state. If its files cannot be read, log a warning and return None."""
        try:
            return read()
        except StorageError as e:  # only if the driver itself reads; if workers read, their tasks fail later
            logger.warning("the state of %r that was written cannot be read back: %s", self, e)
            return None

    def _replace_by_files(self, written: Time, state: RDD[Any]) -> None:
        """Replace the RDD of a written state by an RDD of its files, which cuts the lineage of later states. Call this under the lock."""
        made = self._generated.get(written)
        if made is not None:
            self.stands_in(state, made)
            self._replaced.append((written, self._lineage.bases[written], made))
        self._begin_with(written, state)

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
        """Forget the states of `begin_older` from which only batches before `time` are computed, because these have ended."""
        with self._lock:
            self._older = {began: until for began, until in self._older.items() if until >= time}
            self._without_results = {t for t in self._without_results if any(began < t <= until for began, until in self._older.items())}

    def clear_metadata(self, time: Time) -> None:
        """Forget old states as every stream does, but never the newest one. Unpersist blocks sooner: when no batch needs them."""
        with self._lock:
            self._cleared = max(time, self._cleared)
            limit = time - self.slide_duration * 2 - self.window_lookback
            unread = [rdd for t, _, rdd in self._replaced if t <= limit]
            self._replaced = [entry for entry in self._replaced if entry[0] > limit]
            newest = max(self._generated, default=limit)
            kept = {newest, *self._older}
            freed = [t for t in self._with_blocks if t <= limit and t not in kept and not self._lineage.is_anchor(t, limit)]
            self._with_blocks.difference_update(freed)
            unread += [self._generated[t] for t in freed if t in self._generated]
        self._unpersist(unread)
        super().clear_metadata(time)
        with self._lock:
            self._lineage.forget_all_but(self._generated)

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
        """Return the batches whose states are outdated, without those from which later states may still be computed."""
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
