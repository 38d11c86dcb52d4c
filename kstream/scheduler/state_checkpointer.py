"""StateCheckpointer: writes the state of batches, restores it at a restart, and deletes the files that no restart needs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from kstream import crash_point
from kstream.batch import KeyHash, StateCheckpoint
from kstream.batch_time import Time
from kstream.checkpoint import LogContents
from kstream.checkpoint.state_log import States, StoredStates, forget_gone, read_states, set_aside
from kstream.dstream.graph import DStreamGraph
from kstream.dstream.state_files import StateFiles
from kstream.dstream.stateful_dstream import StatefulDStream, oldest_required_batches
from kstream.errors import CorruptRecordError
from kstream.storage import FileStore

logger = logging.getLogger(__name__)

_LOST_BLOCK = "Checkpoint block"
"""A text in Spark's error about lost blocks of a local checkpoint."""


class StateCheckpointer:
    """Checkpoints the state of one driver's streams.

    Threads: the thread that starts calls `begin` or `restore` first. Then job threads call `save`; the thread that stores the completion
    of a batch calls `named`; the JobScheduler's event thread calls `failed`; the cleaner's thread calls `clean`. `unnamed` may be called
    from any thread. For a graph without state, no method asks the store while batches run.
    """

    def __init__(
        self, graph: DStreamGraph, store: FileStore | None, epoch: int, probe: Callable[[], None], files: Callable[[], StateFiles]
    ) -> None:
        """
        Args:
            graph: the streams.
            store: the checkpoint; None without a checkpoint directory, then nothing is restored.
            epoch: this driver's.
            probe: raises FencedError if another driver has taken over.
            files: makes the StateFiles when state is first written or read.
        """
        self._graph = graph
        self._store = store
        self._epoch = epoch
        self._probe = probe
        self._make_files = files
        self._files: StateFiles | None = None
        self._kept: dict[str, list[StateCheckpoint]] = {}
        self._begun: dict[str, StateCheckpoint] = {}
        self._told = False
        self._lock = threading.Lock()

    def _state_files(self) -> StateFiles:
        """Return the StateFiles; make it at the first call."""
        with self._lock:
            if self._files is None:
                self._files = self._make_files()
            return self._files

    # -- start

    def begin(self, time: Time) -> States:
        """Begin every state stream without state, at a first start.

        Args:
            time: the batch time of the starting point.

        Returns:
            The empty states that the completion of the starting point is to name; pass the result of that to `named`.
        """
        for stream in self._graph.active_states():
            self._begin(stream, StateCheckpoint(time, ()), None)
        return self.unnamed()

    def restore(self, contents: LogContents, first: Time) -> None:
        """Set every state stream to the newest stored state from which all batches from `first` on can be made.

        A stream without a stored state begins empty just before `first`. A stored state whose stream is no longer in the graph is kept
        until the next start. Files that no completion names or will name are deleted. Blocks on the store; with keys placed by pyspark's
        hash it runs one Spark task. Does nothing without a store.

        Args:
            contents: of the log.
            first: the oldest batch that runs again or is planned.

        Raises:
            CorruptRecordError: no state that is old enough for `first` is whole.
            StorageError: the store failed.
        """
        streams = self._graph.active_states()
        if self._store is None:
            return
        stored = read_states(self._store, contents, bool(streams))
        hashing: int | None = None
        for stream, state in self._chosen(stored, first).items():
            if state.files and stream.key_hash is KeyHash.PYSPARK and hashing is None:
                hashing = self._state_files().hashing()
            self._kept[stream.state_id] = list(stored.checkpoints.get(stream.state_id, []))
            self._begin(stream, state, hashing)
        self._keep_or_forget(stored, {stream.state_id for stream in streams})
        self._remove_unnamed(stored, contents)

    def _chosen(self, stored: StoredStates, first: Time) -> dict[StatefulDStream, StateCheckpoint]:
        """Choose the state from which each stream continues."""
        chosen: dict[StatefulDStream, StateCheckpoint] = {}

        def kept(stream: StatefulDStream, time: Time) -> Time:
            chosen[stream] = self._choice(stream, stored, time, first)
            return chosen[stream].time

        oldest_required_batches(self._graph.in_order(), first, kept)
        return chosen

    def _choice(self, stream: StatefulDStream, stored: StoredStates, time: Time, first: Time) -> StateCheckpoint:
        """Choose the newest state of a stream that is not newer than `time`, or an empty one. CorruptRecordError if all are newer."""
        found = stored.checkpoints.get(stream.state_id, [])
        usable = _newest(found, time)
        if usable is not None:
            return usable
        if found:
            raise CorruptRecordError(
                f"the state of {stream!r} is needed as of batch {time}, and the oldest whole one is of batch {found[0].time}. "
                "Restore the files of an older one from a copy, or start with a new checkpoint directory.",
                path="" if self._store is None else self._store.url,
                reason="no state is old enough",
            )
        assert self._graph.zero_time is not None
        before = (first - self._graph.batch_duration).floor(stream.slide_duration, self._graph.zero_time)
        gone = stored.gone.get(stream.state_id) if stream.survives_absence else None
        if gone is None:
            logger.warning("%r has no stored state: it begins without state, before batch %s", stream, first)
            return StateCheckpoint(before, ())
        logger.warning("%r is back and continues from its state of batch %s, without the batches since then", stream, gone.time)
        return StateCheckpoint(before, gone.files, gone.hashing)

    def _begin(self, stream: StatefulDStream, state: StateCheckpoint, hashing: int | None) -> None:
        """Set the state with which a stream begins.

        Args:
            stream: the stream.
            state: its stored state, perhaps without files.
            hashing: the workers' hash of a fixed word now. If the writers had another one, the keys are placed again.
        """
        rdd = None
        if state.files:
            placed = stream.key_hash
            if placed is KeyHash.PYSPARK and state.hashing != hashing:
                logger.warning("state of %r: the workers hash keys differently from its writers, so it is repartitioned", stream)
                placed = KeyHash.NONE
            rdd = self._state_files().read(state, placed)
        stream.begin(state.time, rdd, empty_before=not state.files)
        if not any(kept.time == state.time for kept in self._kept.get(stream.state_id, [])):
            self._begun[stream.state_id] = state

    def _keep_or_forget(self, stored: StoredStates, ids: Collection[str]) -> None:
        """Set aside the states whose streams are gone since the last driver, and delete those that were set aside before.

        Nothing is deleted while a stream that is back still needs its state that was set aside.
        """
        assert self._store is not None
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
        """Delete the files of older epochs that no completion names and none will name: their batch has ended, or its plan is gone.

        Their writers died before they stored the completion. Files of a pending batch stay: a writer that is only suspended may still
        store its completion.
        """
        assert self._store is not None
        oldest = min(contents.plans, default=Time(0))
        over = contents.done | contents.given_up
        for file, time, epoch in stored.unnamed:
            if epoch < self._epoch and (time in over or time < oldest):
                self._store.delete(file)

    # -- while it runs

    def save(self, time: Time) -> States:
        """Write the states that are due, after all jobs of a batch have succeeded. Called in a job thread; blocks on a Spark job.

        An error is not raised, so it does not fail the batch. It is logged once, and the next batch tries again.

        Args:
            time: the batch.

        Returns:
            The states that the batch's completion record is to name.
        """
        due = [stream for stream in self._graph.active_states() if stream.is_due(time)]
        found = dict(self.unnamed())
        if not due:
            return found
        try:
            found.update(self._state_files().write(time, {stream.state_id: stream.state_at(time) for stream in due}))
        except Exception as e:
            log = logger.debug if self._told else logger.error
            self._told = True
            log("the state of batch %s could not be written, the next batch tries again: %s", time, e)
            return found
        self._told = False
        crash_point.reach(crash_point.STATE_WRITTEN)
        return found

    def unnamed(self) -> States:
        """Return the states with which streams have begun and which no durable completion names yet."""
        with self._lock:
            return dict(self._begun)

    def named(self, states: States) -> None:
        """Note that a durable completion names these states. Later batches continue from them, and `clean` may delete older ones.

        Args:
            states: those that the stored completion names, by the id of the state stream.
        """
        by_id = {stream.state_id: stream for stream in self._graph.active_states()}
        for stream_id, state in states.items():
            with self._lock:
                if self._begun.get(stream_id) == state:
                    del self._begun[stream_id]
                    fresh = False
                else:
                    fresh = True
                kept = self._kept.setdefault(stream_id, [])
                if state not in kept:  # several completions may name the state with which the stream has begun
                    kept.append(state)
                    kept.sort(key=lambda kept: kept.time)
            stream = by_id.get(stream_id)
            if stream is not None and fresh and state.files:
                stream.written(state.time, partial(self._state_files().read, state, stream.key_hash))

    def failed(self, error: BaseException) -> None:
        """Set the states back to those written last, if a job failed because blocks of state were lost with an executor.

        Args:
            error: the error of the failed job. Any other cause changes nothing.
        """
        if _LOST_BLOCK in str(error):
            logger.warning("state: blocks were lost with an executor; the streams continue from the state that was written last")
            for stream in self._graph.active_states():
                stream.go_back()

    def clean(self, up_to: Time, unfinished: Collection[Time]) -> Time | None:
        """Delete the files of states that neither a restart nor a running batch needs. Blocks on the store.

        Called before plans are deleted. So while an older state is whole, the plans of the batches after it exist, too. Without a
        store, old RDD checkpoints of Spark are removed instead.

        Args:
            up_to: the newest time up to which batches have ended.
            unfinished: the batches that have not succeeded.

        Returns:
            The time from which on a restart needs plans; None without state or without a store.

        Raises:
            FencedError: another driver has taken over; nothing was deleted.
            StorageError: the store failed.
        """
        if self._store is None:
            self._remove_rdd_checkpoints()
            return None
        order = self._graph.in_order()
        if not any(isinstance(stream, StatefulDStream) for stream in order):
            return None
        first = min([*unfinished, up_to + self._graph.batch_duration])
        chosen: dict[str, Time] = {}
        with self._lock:
            kept = {stream: list(states) for stream, states in self._kept.items()}

        def newest(stream: StatefulDStream, time: Time) -> Time:
            found = _newest(kept.get(stream.state_id, []), time)
            chosen[stream.state_id] = Time(0) if found is None else found.time
            return chosen[stream.state_id]

        asked = oldest_required_batches(order, first, newest)
        limits = self._limits(chosen, first)
        old = {stream: [s for s in states if s.time < limits.get(stream, Time(0))] for stream, states in kept.items()}
        if any(old.values()):
            # If no driver has taken over by now, each later one finds the newer states, which completions name already. Without the
            # probe, a driver that took over before that could lose the state from which it continued.
            self._probe()
            self._drop(old)
        return min([*chosen.values(), *(asked[stream] for stream in self._graph.active_inputs())])

    def _remove_rdd_checkpoints(self) -> None:
        """Remove the outdated RDD checkpoints of Spark. An error is logged, and the next batch tries again."""
        for stream in self._graph.active_states():
            try:
                stream.remove_outdated_checkpoints()
            except Exception as e:
                logger.warning("an old RDD checkpoint of %r could not be removed, the next batch tries again: %s", stream, e)

    def _limits(self, chosen: Mapping[str, Time], first: Time) -> dict[str, Time]:
        """Return, by state id, the oldest state that must be kept: for a restart, or for a task of this driver that may still read it."""
        read = {stream.state_id: stream.reads_from(first) for stream in self._graph.active_states()}
        return {stream: time if (older := read.get(stream)) is None else min(time, older) for stream, time in chosen.items()}

    def _drop(self, old: Mapping[str, Collection[StateCheckpoint]]) -> None:
        """Delete the files of these states."""
        assert self._store is not None
        for stream, states in old.items():
            for state in states:
                for file in state.files:
                    self._store.delete(file)
                with self._lock:
                    self._kept[stream].remove(state)


def _newest(states: Sequence[StateCheckpoint], time: Time) -> StateCheckpoint | None:
    """Return the newest state that is not newer than `time`; None if there is none.

    If all are newer and the oldest has no files, return the oldest: the stream began there, without state.
    """
    older = [state for state in states if state.time <= time]
    if older:
        return older[-1]
    return states[0] if states and not states[0].files else None
