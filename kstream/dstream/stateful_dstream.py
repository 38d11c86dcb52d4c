"""StatefulDStream: a stream whose RDD of a batch is made from its own RDD of the batch before."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.storagelevel import StorageLevel

from kstream.batch import KeyHash
from kstream.batch_time import Duration, Time
from kstream.dstream.dstream import DStream
from kstream.errors import NoRDDError, StorageError

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.dstream.input_dstream import InputDStream

logger = logging.getLogger(__name__)
_WRITTEN_EVERY = Duration(10_000)
_FULL_LINEAGE = 2
_LEAST_GAIN = 4


class StatefulDStream(DStream):
    """Base of the streams that carry state. `compute` of a subclass asks `previous` for the state it goes on from.

    Its RDDs are persisted, for the next batch reads them; once a batch has ended the blocks of the state two batches before it are let go.
    Every `checkpoint_duration` the state is written (`written` is called), and later batches go on from what was written: neither a restart
    nor a task that is repeated goes further back. Batch times that were never planned leave the state as it is.

    Where many batches are made before the first of them has run – after a downtime, or when a stream is behind – every state after so many
    batches (`longest_lineage`) is checkpointed by Spark in the executors' own stores, which cuts the lineage when it has run. An executor
    that is lost takes such blocks with it; `go_back` then makes the batches anew from what was written last.

    Without a checkpoint directory of the StreamingContext (`uses_rdd_checkpoints`) the state is not written for a restart. Every
    `checkpoint_duration` Spark checkpoints its RDD in the directory of the SparkContext, which cuts the lineage.

    `key_hash`: what places the keys of its RDDs; they are read back as such.
    `survives_absence`: state of a stream that was taken out of the program for a while means something when the stream is back.
    """

    key_hash = KeyHash.NONE
    survives_absence = True
    longest_lineage = 30
    """Batches. Each adds three RDDs; with some two hundred the JVM's serializer may run out of stack, in the driver or in a worker."""

    def __init__(self, parent: DStream, slide_duration: Duration) -> None:
        super().__init__(parent.ssc, (parent,), slide_duration)
        self.storage_level = StorageLevel.MEMORY_ONLY
        self._number = self.ssc.graph.add_state_stream(self)
        self._begun: Time | None = None
        self._empty_before = True
        self._lineage_from: Time | None = None
        self._written: Time | None = None
        self._read: Callable[[], RDD[Any]] | None = None
        self._saving: tuple[Time, Time | None] | None = None
        self._unread: dict[Time, Time] = {}
        """States in files that RDDs descend from and that not every task has read yet, with the newest batch made of them."""
        self._marks: list[Time] = []
        self.uses_rdd_checkpoints = False
        """Whether Spark's RDD checkpoints cut the lineage. Set at the start; then nothing is ever `is_due` or `written`."""
        self._rdd_checkpoints: dict[Time, RDD[Any]] = {}
        """RDDs marked for a checkpoint of Spark's, whose files are not removed yet."""
        self._held: set[Time] = set()
        self._inputs: list[InputDStream] | None = None
        self._let_go: list[tuple[Time, RDD[Any]]] = []
        self.kept_back = Duration(0)
        """How far behind the newest batch the windows over this stream look. Set by the graph."""

    @property
    def state_id(self) -> str:
        """What its state is stored under: `s0`, `s1` … in the order in which the streams with state were made. The one place that says."""
        return f"s{self._number}"

    # -- a batch's state

    def previous(self, time: Time) -> RDD[Any] | None:
        """The state as the batches before `time` left it; None before the first batch. For `compute`: never computes anything itself."""
        before = self.previous_time(time)
        return None if before is None else self._generated[before]

    def previous_time(self, time: Time) -> Time | None:
        """Which batch left the state that `previous` gives: one slide duration before `time`, if that was planned."""
        return max((t for t in self._generated if t < time), default=None)

    def getOrCompute(self, time: Time) -> RDD[Any] | None:
        """The state after a batch. Missing ones before it are made first, one after the other: recursion would be as deep as the gap."""
        with self._lock:
            if time not in self._generated and self._is_time_valid(time):
                assert self._begun is not None
                if time <= self._begun:
                    return self._before_the_beginning(time)
                self._shorten_lineage()
                newest = max((t for t in self._generated if t < time), default=self._begun)
                for missing in (newest + self.slide_duration).to(time, self.slide_duration):
                    if self.has_batch(missing):
                        self._mark(missing, super().getOrCompute(missing))
                if self._lineage_from in self._unread:
                    self._unread[self._lineage_from] = time
            return self._generated.get(time)

    def _mark(self, time: Time, state: RDD[Any] | None) -> None:
        """Marks the state of a batch for a checkpoint of Spark's, where the lineage is to be cut.

        Under `uses_rdd_checkpoints` once an interval, by Spark's reliable checkpoint. Else by a local checkpoint, and only if the lineage
        is `longest_lineage` slides long.
        """
        self._held.add(time)
        if state is None:
            return
        base = max([t for t in (*self._marks, *self._rdd_checkpoints, self._lineage_from) if t is not None])
        too_long = time.since(base) >= self.slide_duration * self.longest_lineage
        if self.uses_rdd_checkpoints:
            assert self.checkpoint_duration is not None
            if too_long or time.floor(self.checkpoint_duration, self.zero_time) > base:
                state.checkpoint()
                self._rdd_checkpoints[time] = state
        elif too_long:
            state.localCheckpoint()
            self._marks.append(time)

    def has_batch(self, time: Time) -> bool:
        """Whether any batch since this stream's last one was planned, in any input it is made of."""
        if self._inputs is None:
            self._inputs = self.ssc.graph.inputs_of(self)
        step = self.ssc.graph.batch_duration
        times = (time - self.slide_duration + step).to(time, step)
        return any(stream.has_batch(t) for stream in self._inputs for t in times)

    def _before_the_beginning(self, time: Time) -> None:
        if not self._empty_before:
            raise NoRDDError(
                f"the state of {self!r} at batch {time} is not known any more: this driver went on from the one at {self._begun}",
                time=time.milliseconds,
            )

    # -- life

    def initialize(self, zero_time: Time) -> None:
        if self.zero_time is None:
            if self.checkpoint_duration is None:
                times = -(-_WRITTEN_EVERY.milliseconds // self.slide_duration.milliseconds)
                self.checkpoint_duration = self.slide_duration * times
            self._begun = self._lineage_from = zero_time
        super().initialize(zero_time)

    def begin(self, time: Time, state: RDD[Any] | None, empty_before: bool) -> None:
        """Before the first batch: the state at `time` is `state` (None: there is none yet), and nothing older is ever computed.

        `empty_before`: there was no state then; else there was, and it is an error to ask for it.
        """
        with self._lock:
            self._begun = self._lineage_from = self._written = time
            self._empty_before = empty_before
            if state is not None:
                self._generated[time] = self._persisted(state)
                self._held.add(time)
                self._read = lambda: state
                self._unread[time] = time

    def is_due(self, time: Time) -> bool:
        """Whether the state of a batch that has ended is to be written: at each multiple of the interval, or as soon as can be after it."""
        with self._lock:
            if self.uses_rdd_checkpoints or time not in self._generated or self.checkpoint_duration is None or self.zero_time is None:
                return False
            since = self.zero_time if self._written is None else self._written
            return time.floor(self.checkpoint_duration, self.zero_time) > since

    def state_at(self, time: Time) -> RDD[Any]:
        """The state of a batch that `is_due`."""
        with self._lock:
            self._saving = (time, self._lineage_from)
            return self._generated[time]

    def written(self, time: Time, read: Callable[[], RDD[Any]]) -> None:
        """The state of the batch is durable; `read` makes an RDD of it. From here on batches are made from that. Called by any thread."""
        with self._lock:
            if self._written is None or time > self._written:
                self._written, self._read = time, read
            if self._saving is not None and self._saving[0] == time and self._saving[1] is not None:
                self._unread.pop(self._saving[1], None)  # every partition was made, and is held

    def reads_from(self, unfinished: Time) -> Time | None:
        """The oldest state in files that batches from `unfinished` on, or later ones, may have to read; None for none. An output that
        takes the first records only reads the first partition: the others are read by whoever comes first, batches later."""
        with self._lock:
            limit = unfinished - self.slide_duration
            self._unread = {base: newest for base, newest in self._unread.items() if base == self._lineage_from or newest > limit}
            return min(self._unread, default=None)

    def go_back(self) -> None:
        """Blocks of the state are lost with an executor: the batches after the last state that was written are made anew, when they are
        asked for. Where that cannot be done, only a restart helps. Called by any thread."""
        with self._lock:
            if self._written is None or self._read is None:
                return
            younger = [t for t in self._generated if t > self._written]
            if all(self.has_batch(t) for t in younger):
                self._cut(self._written, self._read, younger)

    def _shorten_lineage(self) -> None:
        """Goes on from the newest state that was written, where that costs nothing, or little against what it saves.

        Batches made while the state was being written descend from the RDD it was written from. Were they kept, the lineage would grow
        with each round; made anew, their data is read again.
        """
        written, base, read = self._written, self._lineage_from, self._read
        if written is None or base is None or read is None or written <= base or written not in self._generated:
            return
        younger = sorted(t for t in self._generated if t > written)
        if younger:
            assert self.checkpoint_duration is not None
            length, again = younger[-1].since(base), younger[-1].since(written)
            if length < self.checkpoint_duration * _FULL_LINEAGE or length < again * _LEAST_GAIN:
                return
            if not all(self.has_batch(t) for t in younger):
                return
        self._cut(written, read, younger)

    def _cut(self, written: Time, read: Callable[[], RDD[Any]], younger: list[Time]) -> None:
        """Puts what was written in the place of the RDD it was written from, and forgets what was made since."""
        try:
            state = self._persisted(read())
        except StorageError as e:  # where the driver itself reads
            logger.warning("the state of %r that was written cannot be read back: %s", self, e)
            return
        if written in self._generated:
            self.stands_in(state, self._generated[written])
        self._let_go += [(t, self._generated.pop(t)) for t in [*younger, written] if t in self._generated]
        self._held.difference_update(younger)
        self._generated[written] = state
        self._held.add(written)
        self._marks = [t for t in self._marks if t < written]
        self._lineage_from = written
        self._unread[written] = written

    def stands_in(self, state: RDD[Any], made: RDD[Any]) -> None:
        """`state` was read back and takes the place of what was `made`. For a subclass whose RDDs carry more than the state."""

    def _persisted(self, rdd: RDD[Any]) -> RDD[Any]:
        return rdd if self.storage_level is None or rdd.is_cached else rdd.persist(self.storage_level)

    # -- clean-up

    def caught_up_to(self) -> Time:
        """The newest batch whose state is made: what is newer must not be forgotten upstream."""
        with self._lock:
            assert self._begun is not None
            return max(self._generated, default=self._begun)

    def clear_metadata(self, time: Time) -> None:
        """Forgets as every stream does, but never the newest state; lets go of blocks sooner, as soon as no batch reads them."""
        with self._lock:
            limit = time - self.slide_duration * 2 - self.kept_back
            unread = [rdd for t, rdd in self._let_go if t <= limit]
            self._let_go = [(t, rdd) for t, rdd in self._let_go if t > limit]
            newest = max(self._generated, default=limit)
            freed = [t for t in self._held if t <= limit and t != newest and not self._anchors(t, limit)]
            self._held.difference_update(freed)
            unread += [self._generated[t] for t in freed if t in self._generated]
        self._unpersist(unread)
        super().clear_metadata(time)

    def remove_outdated_checkpoints(self) -> None:
        """Removes the files of Spark's RDD checkpoints from which no remembered RDD descends. Blocks; called by the cleaner's thread.

        A checkpoint has files once a job has run. Until a newer one has files, the older one stays.
        """
        with self._lock:
            oldest = min(self._generated, default=None)
            marked = {} if oldest is None else {t: rdd for t, rdd in self._rdd_checkpoints.items() if t <= oldest}
        files = {t: file for t, rdd in marked.items() if (file := rdd.getCheckpointFile()) is not None}
        needed = max(files, default=None)
        for time in sorted(marked):
            if needed is not None and time < needed:
                if time in files:
                    self.ssc.state_rdds.remove_checkpoint(files[time])
                with self._lock:
                    del self._rdd_checkpoints[time]

    def _forgettable(self, time: Time) -> list[Time]:
        newest = max(self._generated, default=None)
        return [t for t in super()._forgettable(time) if t != newest and not self._anchors(t, time)]

    def _anchors(self, time: Time, limit: Time) -> bool:
        """Whether later states can be computed again only from the blocks of this one: Spark has cut the lineage there."""
        if time not in self._marks or (self._lineage_from is not None and time < self._lineage_from):
            return False
        return not any(time < mark <= limit for mark in self._marks)
