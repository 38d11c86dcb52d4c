"""StateCheckpointer: when state is written, which of it a driver goes on from, and which may go."""

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
from kstream.dstream.stateful_dstream import StatefulDStream, oldest_required_batches
from kstream.errors import CorruptRecordError
from kstream.scheduler.ports import StatePort
from kstream.storage import FileStore

logger = logging.getLogger(__name__)

_LOST_BLOCK = "Checkpoint block"
"""How Spark's error begins when blocks of a local checkpoint are gone."""


class StateCheckpointer:
    """For one driver. `begin` or `restore` comes first, from the thread that starts; then `save` from job threads, `named` from whoever
    noted the end of the batch, `clean` from the cleaner. Of a graph without state nothing here costs anything.
    """

    def __init__(
        self, graph: DStreamGraph, store: FileStore | None, epoch: int, probe: Callable[[], None], files: Callable[[], StatePort]
    ) -> None:
        """`probe` raises FencedError when another driver has taken over. `files` makes what writes and reads state, when it is needed."""
        self._graph = graph
        self._store = store
        self._epoch = epoch
        self._probe = probe
        self._make_files = files
        self._files: StatePort | None = None
        self._kept: dict[str, list[StateCheckpoint]] = {}
        self._begun: dict[str, StateCheckpoint] = {}
        self._told = False
        self._lock = threading.Lock()

    def _port(self) -> StatePort:
        with self._lock:
            if self._files is None:
                self._files = self._make_files()
            return self._files

    # -- start

    def begin(self, time: Time) -> States:
        """A stream that starts for the first time, with the batch after `time`: what its starting point says of states, to be `named`."""
        for stream in self._graph.active_states():
            self._begin(stream, StateCheckpoint(time, ()), None)
        return self.unnamed()

    def restore(self, contents: LogContents, first: Time) -> None:
        """Puts the streams to the newest states from which every batch from `first` on can be made. Reads what completion records say.

        Streams without a state that was stored begin empty just before `first`; states without a stream are kept until the next start.
        CorruptRecordError if the only state that would do is not whole.
        """
        streams = self._graph.active_states()
        if self._store is None:
            return
        stored = read_states(self._store, contents, bool(streams))
        hashing: int | None = None
        for stream, state in self._chosen(stored, first).items():
            if state.files and stream.key_hash is KeyHash.PYSPARK and hashing is None:
                hashing = self._port().hashing()
            self._kept[stream.state_id] = list(stored.checkpoints.get(stream.state_id, []))
            self._begin(stream, state, hashing)
        self._keep_or_forget(stored, {stream.state_id for stream in streams})
        self._remove_unnamed(stored, contents)

    def _chosen(self, stored: StoredStates, first: Time) -> dict[StatefulDStream, StateCheckpoint]:
        """The state that each stream goes on from."""
        chosen: dict[StatefulDStream, StateCheckpoint] = {}

        def kept(stream: StatefulDStream, time: Time) -> Time:
            chosen[stream] = self._choice(stream, stored, time, first)
            return chosen[stream].time

        oldest_required_batches(self._graph.in_order(), first, kept)
        return chosen

    def _choice(self, stream: StatefulDStream, stored: StoredStates, time: Time, first: Time) -> StateCheckpoint:
        found = stored.checkpoints.get(stream.state_id, [])
        usable = _newest(found, time)
        if usable is not None:
            return usable
        if found:
            raise CorruptRecordError(
                f"the state of {stream!r} is needed as batch {time} left it, and the oldest one that is whole is of {found[0].time}. "
                "Restore the files of an older one from a copy, or start with a new checkpoint directory.",
                path="" if self._store is None else self._store.url, reason="no state is old enough",
            )  # fmt: skip
        assert self._graph.zero_time is not None
        before = (first - self._graph.batch_duration).floor(stream.slide_duration, self._graph.zero_time)
        gone = stored.gone.get(stream.state_id) if stream.survives_absence else None
        if gone is None:
            logger.warning("no state of %r was stored: it begins without any, before batch %s", stream, first)
            return StateCheckpoint(before, ())
        logger.warning("%r is back and goes on from its state of batch %s; what came in between is not in it", stream, gone.time)
        return StateCheckpoint(before, gone.files, gone.hashing)

    def _begin(self, stream: StatefulDStream, state: StateCheckpoint, hashing: int | None) -> None:
        rdd = None
        if state.files:
            placed = stream.key_hash
            if placed is KeyHash.PYSPARK and state.hashing != hashing:
                logger.warning("the workers hash keys otherwise than those that wrote the state of %r: it is placed anew", stream)
                placed = KeyHash.NONE
            rdd = self._port().read(state, placed)
        stream.begin(state.time, rdd, empty_before=not state.files)
        if not any(kept.time == state.time for kept in self._kept.get(stream.state_id, [])):
            self._begun[stream.state_id] = state

    def _keep_or_forget(self, stored: StoredStates, ids: Collection[str]) -> None:
        assert self._store is not None
        newest = {stream: states[-1] for stream, states in stored.checkpoints.items() if states and stream not in ids}
        over = {stream: state for stream, state in stored.gone.items() if stream not in ids}
        gone = {stream: state for stream, state in newest.items() if stream not in over}
        back = [stream for stream in stored.gone if stream in ids and stream not in stored.checkpoints]
        if gone:
            logger.warning(
                "state is stored of streams that the program no longer has (%s); it is kept until the next start without them",
                ", ".join(f"{stream} at {state.time}" for stream, state in gone.items()),
            )
            set_aside(self._store, self._epoch, gone)
        if stored.gone_by and not back:
            forget_gone(self._store, stored.gone_by, over.values())

    def _remove_unnamed(self, stored: StoredStates, contents: LogContents) -> None:
        """Removes files that no record names and none will: the end of their batch is noted, or its plan is gone. They are of drivers that
        died before they could; one that is only frozen may yet note the end of a batch that is still pending."""
        assert self._store is not None
        oldest = min(contents.plans, default=Time(0))
        over = contents.done | contents.given_up
        for file, time, epoch in stored.unnamed:
            if epoch < self._epoch and (time in over or time < oldest):
                self._store.delete(file)

    # -- while it runs

    def save(self, time: Time) -> States:
        """The batch's jobs have all succeeded: writes the states that are due, in this thread. Never fails the batch: a failure is told
        once, and tried again with the next batch. Returns what the completion record is to name.
        """
        due = [stream for stream in self._graph.active_states() if stream.is_due(time)]
        found = dict(self.unnamed())
        if not due:
            return found
        try:
            found.update(self._port().write(time, {stream.state_id: stream.state_at(time) for stream in due}))
        except Exception as e:
            log = logger.debug if self._told else logger.error
            self._told = True
            log("the state of batch %s could not be written, the next batch tries again: %s", time, e)
            return found
        self._told = False
        crash_point.reach(crash_point.STATE_WRITTEN)
        return found

    def unnamed(self) -> States:
        """How streams have begun, as long as no completion record says so."""
        with self._lock:
            return dict(self._begun)

    def named(self, states: States) -> None:
        """A completion record that names these states is durable: batches go on from them from now on, and older ones may go."""
        by_id = {stream.state_id: stream for stream in self._graph.active_states()}
        for stream_id, state in states.items():
            with self._lock:
                if self._begun.get(stream_id) == state:
                    del self._begun[stream_id]
                    fresh = False
                else:
                    fresh = True
                kept = self._kept.setdefault(stream_id, [])
                if state not in kept:  # several records may say how the stream has begun
                    kept.append(state)
                    kept.sort(key=lambda kept: kept.time)
            stream = by_id.get(stream_id)
            if stream is not None and fresh and state.files:
                stream.written(state.time, partial(self._port().read, state, stream.key_hash))

    def failed(self, error: BaseException) -> None:
        """A job has failed. If that is for lost blocks, which only executors had, the states go back to what was written."""
        if _LOST_BLOCK in str(error):
            logger.warning("blocks of state were lost with an executor: going on from the state that was written last")
            for stream in self._graph.active_states():
                stream.go_back()

    def clean(self, up_to: Time, unfinished: Collection[Time]) -> Time | None:
        """Removes the files of states that no restart would go on from. Returns from when on plans are needed; None without state.

        The files go before the plans: while an older state is whole, so are the plans of what came after it.
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
            # Unfenced now, with the newer states named: whoever takes over later finds those. Without this look a driver that took over
            # before they were named could lose the state it went on from.
            self._probe()
            self._drop(old)
        return min([*chosen.values(), *(asked[stream] for stream in self._graph.active_inputs())])

    def _remove_rdd_checkpoints(self) -> None:
        for stream in self._graph.active_states():
            try:
                stream.remove_outdated_checkpoints()
            except Exception as e:
                logger.warning("an old RDD checkpoint of %r could not be removed, the next batch tries again: %s", stream, e)

    def _limits(self, chosen: Mapping[str, Time], first: Time) -> dict[str, Time]:
        """From when on states are needed: by a restart, or by this driver's own tasks, which may have to read an older one yet."""
        read = {stream.state_id: stream.reads_from(first) for stream in self._graph.active_states()}
        return {stream: time if (older := read.get(stream)) is None else min(time, older) for stream, time in chosen.items()}

    def _drop(self, old: Mapping[str, Collection[StateCheckpoint]]) -> None:
        assert self._store is not None
        for stream, states in old.items():
            for state in states:
                for file in state.files:
                    self._store.delete(file)
                with self._lock:
                    self._kept[stream].remove(state)


def _newest(states: Sequence[StateCheckpoint], time: Time) -> StateCheckpoint | None:
    """The newest state not after `time`; the oldest, if that is where the stream began: before it there was none."""
    older = [state for state in states if state.time <= time]
    if older:
        return older[-1]
    return states[0] if states and not states[0].files else None
