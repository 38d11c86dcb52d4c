"""StateCheckpointer: writes the state of batches, restores it at a restart, and deletes the files that no restart needs."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kstream import crash_point
from kstream.batch import KeyHash, StateCheckpoint, StateFigures
from kstream.batch.retention import NO_STATES, NeededForStates
from kstream.batch_time import Time
from kstream.checkpoint import LogContents, names
from kstream.checkpoint.settled import Settled
from kstream.checkpoint.state_log import States, StoredStates, forget_gone, read_states, set_aside
from kstream.dstream.graph import DStreamGraph
from kstream.dstream.node import DStreamNode
from kstream.dstream.state_files import StateFiles
from kstream.dstream.stateful_dstream import StatefulDStream, oldest_required_batches
from kstream.errors import CorruptRecordError, MissingFileError, StateLostError, in_a_line, one_line
from kstream.scheduler.changed_windows import of_these_windows, other_window
from kstream.storage import FileStore

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger(__name__)

_LOST = re.compile(rf"Checkpoint block|CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|{MissingFileError.__name__}: .*\b{names.STATE}/")
"""What the line of an error has that tells of a lost block of a local checkpoint (of Spark), or of a state file that a worker misses."""


def is_lost_state(error: BaseException) -> bool:
    """Return whether a job has failed because blocks or files of a state are gone. Pure."""
    return _LOST.search(f"{type(error).__name__}: {error}") is not None


def state_lost(time: Time, repairs: int, error: BaseException, why: str | None = None) -> StateLostError:
    """Return the error of a batch that is repaired no more, with the line of a foreign error that names what is gone. Pure.

    Args:
        time: the batch.
        repairs: how often it was repaired.
        error: what the job has failed with.
        why: why it cannot be repaired, as a clause; None if that was tried often enough.
    """
    lines = (line.strip() for line in str(error).splitlines())
    gone = next((line for line in lines if _LOST.search(line)), in_a_line(error))
    found = StateLostError(
        f"batch {time}: blocks or files of a state are gone, and {why or f'{repairs} repairs did not help'}: {gone}. The next start runs "
        "the batch from the state that was written last",
        time=time.milliseconds,
        repairs=repairs,
    )
    found.__cause__ = error
    return found


class SavedStates(NamedTuple):
    """The states that the record of a batch is to name, and what was measured of all states since the batch that ended before."""

    states: States
    figures: StateFigures = StateFigures()


class StateCheckpointer:
    """The states of one driver's streams. Without a checkpoint directory no state is written, and no restart recovers one.

    Threads: the thread that starts calls `begin` or `restore` first. Then job threads call `compute` and `save`; the thread that stores
    the end of a batch calls `named`; the JobGenerator's thread calls `is_awaited` and `take_loss`; the cleaner's thread calls `clean`.
    `unnamed` may be called from any thread. For a graph without state, no method asks the store while batches run.
    """

    def __init__(self, graph: DStreamGraph) -> None:
        self._graph = graph
        self._begun: dict[str, StateCheckpoint] = {}
        self.write_error: Exception | None = None
        """Why the states that were due last could not be written; None if they were. Any thread may read it."""
        self._lock = threading.Lock()

    @property
    def has_states(self) -> bool:
        """Whether any stream carries state. Any thread."""
        return bool(self._graph.active_states())

    # -- start

    def begin(self, time: Time) -> States:
        """Begin every state stream without state, at a first start.

        Args:
            time: the batch time of the starting point.

        Returns:
            The empty states that the completion of the starting point is to name; pass the result of that to `named`.
        """
        for stream in self._graph.active_states():
            self._begun[stream.state_id] = state = StateCheckpoint(time, ())
            stream.begin(state.time, None, empty_before=True)
        return self.unnamed()

    def restore(self, contents: LogContents, new: Time) -> None:
        """Do nothing: without a checkpoint there is nothing to restore."""

    # -- while it runs

    def compute(self, time: Time) -> Exception | None:
        """Compute the states of a batch whose output failed. Called in a job thread; blocks on a Spark job.

        Returns:
            The error with which a state could not be computed; None if all were.
        """
        for stream in self._graph.active_states():
            try:
                stream.compute_state(time)
            except Exception as e:
                if not is_lost_state(e):
                    logger.error("the state of %r could not be computed for batch %s: %s", stream, time, in_a_line(e))
                return e
        return None

    def is_awaited(self, batches: Iterable[Time]) -> bool:
        """Return whether one of these batches, which have not ended, writes a state at its end. Later batches are made from that state."""
        streams = self._graph.active_states()
        return bool(streams) and any(stream.is_due(time) for time in batches for stream in streams)

    def save(self, time: Time) -> SavedStates:
        """Return the states that the batch's record is to name, after all jobs of a batch have ended. Called in a job thread."""
        return SavedStates(self.unnamed())

    def take_loss(self) -> bool:
        """Return whether a write has found blocks or files of a state gone since the last call. The JobGenerator's thread."""
        return False

    def unnamed(self) -> States:
        """Return the states with which streams have begun and which no durable completion names yet."""
        with self._lock:
            return dict(self._begun)

    def named(self, states: States) -> None:
        """Note that a durable record names these states: a completion, or that of a failure.

        Args:
            states: those that the stored record names, by the id of the state stream.
        """
        for stream_id, state in states.items():
            with self._lock:
                self._take_begun(stream_id, state)

    def _take_begun(self, stream_id: str, state: StateCheckpoint) -> bool:
        """Return whether a stream has begun with this state and no record has named it so far. Now one does. Call it under the lock."""
        if self._begun.get(stream_id) != state:
            return False
        del self._begun[stream_id]
        return True

    def clean(self, up_to: Time, unfinished: Collection[Time]) -> NeededForStates:
        """Remove old RDD checkpoints of Spark. An error is logged, and the next batch tries again. Returns that a restart needs no plan."""
        for stream in self._graph.active_states():
            try:
                stream.remove_outdated_checkpoints()
            except Exception as e:
                logger.warning("an old RDD checkpoint of %r could not be removed, the next batch tries again: %s", stream, one_line(e))
        return NO_STATES


class StoredStateCheckpointer(StateCheckpointer):
    """Writes the states to the checkpoint, restores them at a restart, and deletes the files that no restart needs."""

    def __init__(
        self, graph: DStreamGraph, store: FileStore, epoch: int, probe: Callable[[], None], files: Callable[[], StateFiles]
    ) -> None:
        """
        Args:
            graph: the streams.
            store: the checkpoint.
            epoch: this driver's.
            probe: raises FencedError if another driver has taken over.
            files: makes the StateFiles when state is first written or read.
        """
        super().__init__(graph)
        self._store = store
        self._epoch = epoch
        self._probe = probe
        self._make_files = files
        self._files: StateFiles | None = None
        self._kept: dict[str, list[StateCheckpoint]] = {}
        self._changed_after: Time | None = None
        """The last batch of the former batch interval; None if the interval has never changed. Set by `restore`."""
        self._needed: dict[Time, tuple[dict[str, Time], Time]] = {}
        """Unfinished batch → what `_needs` has found for it. So many unfinished batches cost little at each clean-up."""
        self._is_lost = False
        """Whether a write has found blocks or files of a state gone. The next batch is then made from the states that are written."""

    def _state_files(self) -> StateFiles:
        """Return the StateFiles; make it at the first call."""
        with self._lock:
            if self._files is None:
                self._files = self._make_files()
            return self._files

    # -- start

    def restore(self, contents: LogContents, new: Time) -> None:
        """Set every state stream to its newest stored state, and for each pending batch to the newest one from which it can be made.

        A stream without a stored state begins empty just before the first batch. A stored state whose stream is no longer in the graph is
        kept until the next start. Files that no record names or will name are deleted. Blocks on the store; with keys placed by pyspark's
        hash it runs one Spark task.

        Args:
            contents: of the log.
            new: the first batch that this driver may plan.

        Raises:
            CorruptRecordError: no state that is old enough for a batch is whole.
            StorageError: the store failed.
        """
        streams = self._graph.active_states()
        stored = read_states(self._store, contents, bool(streams))
        self._changed_after = None if contents.meta is None else contents.meta.after
        if self._changed_after is not None:
            stored = of_this_interval(stored, streams, self._changed_after)
        for stream in streams:
            other = other_window(stored.checkpoints.get(stream.state_id, ()), stream)
            if other is not None:
                logger.warning("the window of %r is %s from now on, it was %s: it begins anew", stream, stream.totals_window, other.window)
        stored = of_these_windows(stored, streams)
        chosen = {first: self._chosen(stored, first, contents, tell=first == new) for first in [new, *contents.pending]}
        files = [state for states in chosen.values() for stream, state in states.items() if stream.key_hash is KeyHash.PYSPARK]
        hashing = self._state_files().hashing() if any(state.files for state in files) else None
        for stream in streams:
            self._kept[stream.state_id] = list(stored.checkpoints.get(stream.state_id, []))
            newest = chosen[new][stream]
            self._begin(stream, newest, hashing)
            older: dict[Time, tuple[StateCheckpoint, Time]] = {}
            for first in contents.pending:  # of the batches of one state the newest counts
                state = chosen[first][stream]
                if state.time < newest.time:
                    older[state.time] = state, first
            for state, until in reversed(older.values()):
                stream.begin_older(state.time, self._read(stream, state, hashing), until)
        self._keep_or_forget(stored, {stream.state_id for stream in streams})
        self._remove_unnamed(stored, contents)

    def _chosen(self, stored: StoredStates, first: Time, contents: LogContents, tell: bool) -> dict[StatefulDStream, StateCheckpoint]:
        """Choose the state of each stream from which the batch `first` is made, and later ones if it is new. `tell`: log warnings."""
        chosen: dict[StatefulDStream, StateCheckpoint] = {}
        apart = max((interval.until for interval in contents.settled if interval.until < first), default=Time(0))
        oldest = min(time for time in (*contents.pending, first) if apart < time <= first)  # the plans since then are all kept

        def kept(stream: StatefulDStream, time: Time) -> Time:
            chosen[stream] = self._choice(stream, stored, time, oldest, tell)
            self._check_plans_since(stream, chosen[stream].time, time, contents.settled)
            return chosen[stream].time

        oldest_required_batches(self._graph.in_order(), first, kept)
        return chosen

    def _choice(self, stream: StatefulDStream, stored: StoredStates, time: Time, first: Time, tell: bool) -> StateCheckpoint:
        """Choose the newest state of a stream that is not newer than `time`, or an empty one. CorruptRecordError if all are newer."""
        found = stored.checkpoints.get(stream.state_id, [])
        usable = _newest(found, time if self._changed_after is None else max(time, self._changed_after))
        if usable is not None:
            return usable
        if found:
            raise CorruptRecordError(
                f"the state of {stream!r} is needed as of batch {time}, and the oldest whole one is of batch {found[0].time}. "
                "Restore the files of an older one from a copy, or start with a new checkpoint directory.",
                path=self._store.url,
                reason="no state is old enough",
            )
        before = (first - self._graph.batch_duration).floor(stream.slide_duration, self._graph.zero_time)
        before = max(before, self._changed_after or before)
        gone = stored.gone.get(stream.state_id) if stream.survives_absence else None
        level = logging.WARNING if tell else logging.DEBUG
        if gone is None:
            logger.log(level, "%r has no stored state: it begins without state, before batch %s", stream, first)
            return StateCheckpoint(before, ())
        logger.log(level, "%r is back and continues from its state of batch %s, without the batches since then", stream, gone.time)
        return StateCheckpoint(before, gone.files, gone.hashing)

    def _check_plans_since(self, stream: StatefulDStream, state: Time, time: Time, settled: Collection[Settled]) -> None:
        """Raise CorruptRecordError if plans between a state and the batch that is made from it were removed: a newer state is missing."""
        removed = [interval for interval in settled if interval.until > state and interval.after < time - stream.slide_duration]
        if removed:
            raise CorruptRecordError(
                f"the state of {stream!r} is needed as of batch {time}. The newest whole one that is old enough is of batch {state}, and "
                f"the plans up to batch {removed[-1].until} since then are removed: files of a newer state are missing. Restore them from "
                "a copy, or start with a new checkpoint directory.",
                path=self._store.url,
                reason="the plans since the state are removed",
            )

    def _begin(self, stream: StatefulDStream, state: StateCheckpoint, hashing: int | None) -> None:
        """Set the state with which a stream begins.

        Args:
            stream: the stream.
            state: its stored state, perhaps without files.
            hashing: the workers' hash of a fixed word now. If the writers had another one, the keys are placed again.
        """
        stream.begin(state.time, self._read(stream, state, hashing), empty_before=not state.files)
        if not any(kept.time == state.time for kept in self._kept.get(stream.state_id, [])):
            self._begun[stream.state_id] = state

    def _read(self, stream: StatefulDStream, state: StateCheckpoint, hashing: int | None) -> RDD[Any] | None:
        """Return an RDD of a stored state; None if it has no files. `hashing` as in `_begin`."""
        if not state.files:
            return None
        placed = stream.key_hash
        if placed is KeyHash.PYSPARK and state.hashing != hashing:
            logger.warning("state of %r: the workers hash keys differently from its writers, so it is repartitioned", stream)
            placed = KeyHash.NONE
        return self._state_files().read(state, placed)

    def _keep_or_forget(self, stored: StoredStates, ids: Collection[str]) -> None:
        """Set aside the states whose streams are gone since the last driver, and delete those that were set aside before.

        Nothing is deleted while a stream that is back still needs its state that was set aside.
        """
        newest = {stream: states[-1] for stream, states in stored.checkpoints.items() if states and stream not in ids}
        over = {stream: state for stream, state in stored.gone.items() if stream not in ids}
        gone = {stream: state for stream, state in newest.items() if stream not in over}
        back = [stream for stream in stored.gone if stream in ids and stream not in stored.checkpoints]
        if gone:
            logger.warning(
                "state of streams that the program no longer has (%s): it is kept until the next start without them",
                ", ".join(f"{stream} at {state.time}" for stream, state in gone.items()),
            )
            set_aside(self._store, self._epoch, gone)
        if stored.gone_by and not back:
            forget_gone(self._store, stored.gone_by, over.values())

    def _remove_unnamed(self, stored: StoredStates, contents: LogContents) -> None:
        """Delete the files of older epochs that no record names and none will name: their batch has ended, or its plan is gone.

        Their writers died before they stored the completion. Files of a pending batch stay: a writer that is only suspended may still
        store its completion.
        """
        pending = set(contents.pending)
        newest = max(contents.plans, default=Time(0))
        for file, time, epoch in stored.unnamed:
            if epoch < self._epoch and time not in pending and time <= newest:
                self._store.delete(file)

    # -- while it runs

    def save(self, time: Time) -> SavedStates:
        """Write the states that are due, after all jobs of a batch have ended. Called in a job thread; blocks on a Spark job.

        An error is not raised, so it does not fail the batch. It is logged once, and the next batch tries again.
        """
        states = self._save(time)
        return SavedStates(states, StateFigures() if self._files is None else self._files.take_figures())

    def _save(self, time: Time) -> States:
        """Write the states that are due. Return the states that the batch's record is to name."""
        asked = ((stream, stream.state_to_write(time)) for stream in self._graph.active_states())
        due = [(stream, state) for stream, state in asked if state is not None]
        found = dict(self.unnamed())
        if not due:
            return found
        try:
            written = self._state_files().write(time, {stream.state_id: state for stream, state in due})
            found.update({s.state_id: replace(written[s.state_id], window=s.totals_window) for s, _ in due})
        except Exception as e:
            log = logger.debug if self.write_error is not None else logger.error
            self.write_error = e
            if is_lost_state(e):
                with self._lock:
                    self._is_lost = True
            log("the state of batch %s could not be written, the next batch tries again: %s", time, one_line(e))
            self._remove_parts(time, [stream for stream, _ in due])
            return found
        self.write_error = None
        crash_point.reach(crash_point.STATE_WRITTEN)
        return found

    def _remove_parts(self, time: Time, streams: Iterable[StatefulDStream]) -> None:
        """Delete the files of states of which some partitions could not be written. What cannot be deleted now, the next start deletes."""
        parts = {(time, self._epoch, stream.state_id) for stream in streams}
        try:
            for name in self._store.list(names.STATE):
                if names.parse_state(name) in parts:
                    self._store.delete(f"{names.STATE}/{name}")
        except Exception as e:  # the store is away, for example
            logger.debug("parts of the state of batch %s stay until the next start: %s", time, e)

    def take_loss(self) -> bool:
        with self._lock:
            was_lost, self._is_lost = self._is_lost, False
            return was_lost

    def named(self, states: States) -> None:
        """Note that a durable record names these states: a completion, or that of a failure.

        Later batches continue from them, and `clean` may delete older ones.

        Args:
            states: those that the stored record names, by the id of the state stream.
        """
        by_id = {stream.state_id: stream for stream in self._graph.active_states()}
        for stream_id, state in states.items():
            with self._lock:
                fresh = not self._take_begun(stream_id, state)
                kept = self._kept.setdefault(stream_id, [])
                if state not in kept:  # several completions may name the state with which the stream has begun
                    kept.append(state)
                    kept.sort(key=lambda kept: kept.time)
                    self._needed = {batch: needs for batch, needs in self._needed.items() if batch < state.time}
            stream = by_id.get(stream_id)
            if stream is not None and fresh and state.files:
                stream.written(state.time, partial(self._state_files().read, state, stream.key_hash))

    def clean(self, up_to: Time, unfinished: Collection[Time]) -> NeededForStates:
        """Delete the files of states that neither a restart nor a running batch needs. Blocks on the store.

        A restart plans new batches from the newest state. It runs an unfinished batch from the newest state that is old enough for it. So
        one failed batch keeps one older state of each stream.

        Called before plans are deleted. So while an older state is whole, the plans that are to be made from it exist, too.

        Args:
            up_to: the newest time up to which batches have ended.
            unfinished: the batches that have not succeeded.

        Returns:
            The oldest plans that a restart needs for its states; none without state.

        Raises:
            FencedError: another driver has taken over; nothing was deleted.
            StorageError: the store failed.
        """
        order = self._graph.in_order()
        if not any(isinstance(stream, StatefulDStream) for stream in order):
            return NO_STATES
        with self._lock:
            kept = {stream: list(states) for stream, states in self._kept.items()}
            published = self._needed
        known = {batch: needs for batch, needs in published.items() if batch in unfinished}
        new = up_to + self._graph.batch_duration
        newest, needed_new = self._needs(order, new, kept)
        needed = {stream: {time} for stream, time in newest.items()}
        for_unfinished: dict[Time, Time] = {}
        for batch in unfinished:
            if batch < new:
                if batch not in known:
                    known[batch] = self._needs(order, batch, kept)
                older, for_unfinished[batch] = known[batch]
                for stream, time in older.items():
                    needed[stream].add(time)
        with self._lock:
            if self._needed is published:  # else a newer state was named meanwhile, which may change these needs
                self._needed = known
        for stream in self._graph.active_states():
            needed.setdefault(stream.state_id, set()).update(stream.states_to_read(new, unfinished))
        old = {
            stream: [state for state in states if state.time < newest.get(stream, Time(0)) and state.time not in needed[stream]]
            for stream, states in kept.items()
        }
        if any(old.values()):
            # If no driver has taken over by now, each later one finds the newer states, which completions name already. Without the
            # probe, a driver that took over before that could lose the state from which it continued.
            self._probe()
            self._drop(old)
        return NeededForStates(needed_new, for_unfinished)

    def _needs(
        self, order: Sequence[DStreamNode], first: Time, kept: Mapping[str, Sequence[StateCheckpoint]]
    ) -> tuple[dict[str, Time], Time]:
        """Return, by state id, the batch of the state from which `first` is made; and the oldest batch whose plan is needed for that."""
        chosen: dict[str, Time] = {}

        def newest(stream: StatefulDStream, time: Time) -> Time:
            found = _newest(kept.get(stream.state_id, []), time)
            chosen[stream.state_id] = Time(0) if found is None else found.time
            return chosen[stream.state_id]

        asked = oldest_required_batches(order, first, newest)
        return chosen, min([*chosen.values(), *(asked[stream] for stream in self._graph.active_inputs())])

    def _drop(self, old: Mapping[str, Collection[StateCheckpoint]]) -> None:
        """Delete the files of these states."""
        for stream, states in old.items():
            for state in states:
                for file in state.files:
                    self._store.delete(file)
                with self._lock:
                    self._kept[stream].remove(state)


def of_this_interval(stored: StoredStates, streams: Iterable[StatefulDStream], after: Time) -> StoredStates:
    """Return the states from which streams can continue after a change of the batch interval. Pure.

    States of batches before `after` do not count, because the batches since then cannot be made again. Totals of a window with an inverse
    count only if all their batches are of the new interval: the window begins anew.

    Args:
        stored: the states that completions and records of failures name.
        streams: those of the graph.
        after: the last batch of the former interval.
    """
    found = dict(stored.checkpoints)
    for stream in streams:
        states = found.pop(stream.state_id, [])
        kept = [s for s in states if s.time > after or (s.time == after and (stream.survives_absence or not s.files))]
        if kept:
            found[stream.state_id] = kept
    return replace(stored, checkpoints=found)


def _newest(states: Sequence[StateCheckpoint], time: Time) -> StateCheckpoint | None:
    """Return the newest state that is not newer than `time`; None if there is none.

    If all are newer and the oldest has no files, return the oldest: the stream began there, without state.
    """
    older = [state for state in states if state.time <= time]
    if older:
        return older[-1]
    return states[0] if states and not states[0].files else None
