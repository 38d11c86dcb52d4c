"""CheckpointOpener: makes a driver that starts the writer of its checkpoint, and finds out where its streams continue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kstream.batch import BatchInfo, BatchPlan
from kstream.batch.plan import with_kind
from kstream.batch_time import Duration, Time
from kstream.checkpoint import BatchLog, LogContents, Meta, PlanLog, read_log, take_epoch
from kstream.checkpoint.binding import (
    DROPPED,
    INTERVAL,
    OUTPUT,
    TOPICS,
    Binding,
    Names,
    bind,
    binding_of,
    called,
    not_allowed,
    rebound,
    renumbered,
)
from kstream.checkpoint.input_records import KeptOffsets, write_kept
from kstream.checkpoint.interval_change import write_change
from kstream.checkpoint.measured import MeasuredBatches
from kstream.checkpoint.missing_plans import check_no_plan_is_missing, has_gap
from kstream.checkpoint.reader import check_meta, delete_superseded, existing_meta, newest_plan, read_meta, record_takeover, write_meta
from kstream.checkpoint.settings import HISTORY
from kstream.clock import Clock
from kstream.conf import Settings
from kstream.context.changed_durations import check_windows, may_have_changed, with_interval_of
from kstream.context.settings import RECOVERY_ALLOW
from kstream.dstream import DStreamGraph
from kstream.dstream.stored_stream import StoredStream
from kstream.errors import (
    AlreadyExistsError,
    CorruptRecordError,
    MissingPlanError,
    NotRecoverableError,
    OutputVanishedError,
    StreamVanishedError,
    TopicsChangedError,
)
from kstream.storage import FileStore

logger = logging.getLogger(__name__)
MEASURED = 10
"""The number of stored batches by which a stream knows its speed at a restart."""
StoredStreams: TypeAlias = Mapping[int, StoredStream[Any]]
"""The inputs of a job with their stored plans, by stream id."""


@dataclass(frozen=True, slots=True)
class OpenedCheckpoint:
    """A checkpoint whose writer this driver is.

    Attributes:
        log: writes to it.
        contents: those of its log, rebound; None without a checkpoint directory.
        streams: the inputs of this job with their stored plans, by stream id; empty without a checkpoint directory.
        last_batches: as of `InputServices.last_batches`.
        zero_time: zero_time(zero) returns the zero time of a stream without plans; see `CheckpointOpener.zero_time`.
    """

    log: BatchLog
    contents: LogContents | None
    streams: StoredStreams = field(default_factory=dict[int, "StoredStream[Any]"])
    last_batches: Callable[[int], Sequence[BatchInfo]] = lambda _: ()
    zero_time: Callable[[Time], Time] = lambda zero: zero

    def stream_now(self, epoch: int, stream: int) -> int | None:
        """Return the number that a stream of an earlier driver has now; None if it is gone.

        A driver that died before its first plan has stored no graph. Its streams keep their numbers.
        """
        numbers = {} if self.contents is None else self.contents.numbers
        return numbers[epoch].get(stream) if epoch in numbers else stream


@dataclass(frozen=True, slots=True)
class _BoundLog:
    """A log whose streams are bound to those of this job.

    Attributes:
        binding: of the streams.
        contents: those of the log, rebound.
        streams: the inputs of this job with their stored plans, by stream id.
        other_topics: the inputs that read nothing of their stored plans: number → the reason, in words.
    """

    binding: Binding
    contents: LogContents
    streams: StoredStreams
    other_topics: Mapping[int, str]


class CheckpointOpener:
    """Opens the checkpoint of a graph. Called by the thread that starts.

    Args:
        store: the checkpoint.
        graph: the streams.
        settings: those of the context.
        clock: the clock of batch times.
    """

    def __init__(self, store: FileStore, graph: DStreamGraph, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._graph = graph
        self._settings = settings
        self._clock = clock
        self._begun_anew: set[str] = set()
        """The words of `recovery.allow` that let windows of this start begin anew."""

    def open(self) -> OpenedCheckpoint:
        """Become the writer of the checkpoint, then read its log. Blocks on the store.

        The epoch is taken before the log is read. So no older driver can submit a batch whose plan is not in the log that was read. The
        newest plan is checked before that, so that a job that cannot continue from this checkpoint fences no running driver.

        Raises:
            CheckpointError: the stored data cannot be used; see its subclasses.
            StorageError: the store failed.
        """
        newest = newest_plan(self._store)  # check first: a start that fails must not fence a running driver
        meta = read_meta(self._store)
        check_meta(self._store, meta, None if newest is None else newest.time)
        changed = meta is not None and meta.interval != self._graph.batch_duration
        doubtful = meta is not None and (has_gap(self._store, meta.interval) or may_have_changed(self._graph, self._store))
        # The newest plan or state may be stray; the whole log shows that.
        if changed or (newest is not None and (doubtful or not self._goes_on_from(newest))):
            self._check_log()
        epoch = take_epoch(self._store, self._clock.time_ms())
        contents = read_log(self._store)
        check_meta(self._store, contents.meta, contents.last_planned)
        now = self._with_interval(contents)
        bound = self._bound(contents)
        self._check_holes(bound)
        record_takeover(self._store, contents, epoch)
        self._record_change(epoch, contents.meta, now.meta)
        kept, streams = self._keep_left_behind(epoch, bound)
        delete_superseded(self._store, contents, epoch)
        log = PlanLog(self._store, epoch, replace(contents, numbers=bound.contents.numbers), self._history())
        if contents.has_begun:
            unchanged = bound.binding.unchanged
            level, report = (logging.INFO, "") if unchanged else (logging.WARNING, f":\n{bound.binding.report()}")
            text = "checkpoint %s: the job continues after batch %s, as epoch %d%s"
            logger.log(level, text, self._store.url, contents.last_planned, epoch, report)
        self._warn_of_unneeded(bound, now.meta)
        found = replace(bound.contents, meta=now.meta, kept_offsets=kept)
        return OpenedCheckpoint(log, found, streams, MeasuredBatches(self._store, found, MEASURED).of, self.zero_time)

    def _check_log(self) -> None:
        """Check interval, streams, windows and holes of the log, before the epoch is taken. Blocks on the store; raises as `open`.

        A running driver may remove plans while they are read. So a hole counts only if a second reading finds one, too.
        """
        try:
            self._check_holes(self._read_bound())
        except MissingPlanError:
            self._check_holes(self._read_bound())

    def _read_bound(self) -> _BoundLog:
        """Read the log, check its interval, its streams and their windows, and return it bound."""
        found = read_log(self._store)
        now = self._with_interval(found)
        bound = self._bound(found)
        self._begun_anew = check_windows(self._graph, self._store, now, self._allowed())
        return bound

    def _check_holes(self, bound: _BoundLog) -> None:
        """Raise MissingPlanError if a plan is missing whose records are in no other plan."""
        skipped = {number: stored.skipped_between for number, stored in bound.streams.items()}
        meta = bound.contents.meta
        check_no_plan_is_missing(self._store, bound.contents, self._graph.batch_duration if meta is None else meta.interval, skipped)

    def _streams(self) -> Names:
        """Return the inputs of this job that an output needs: number → name, None without a name."""
        names = self._graph.input_names()
        return {stream.id: names.get(stream.id) for stream in self._graph.active_inputs()}

    def _allowed(self) -> list[str]:
        """Return the words of `spark.streaming.kstream.recovery.allow`."""
        return [word.strip() for word in self._settings[RECOVERY_ALLOW].split(",")]

    def _goes_on_from(self, newest: BatchPlan) -> bool:
        """Return whether the newest plan alone shows that this job may continue from the checkpoint."""
        now = self._streams()
        binding = bind(newest.streams, now)
        plan = renumbered(newest, binding.matched, now)
        streams = [stream for stream in self._graph.active_inputs() if stream.id in plan.inputs]
        if set(newest.outputs) - set(self._graph.output_names()):
            return False
        try:
            return not not_allowed(binding, self._allowed()) and not any(s.reads_nothing_of(s.decoded(plan), None) for s in streams)
        except (NotRecoverableError, CorruptRecordError):  # `_bound` raises it again, unless this is a stray plan
            return False

    def _bound(self, contents: LogContents) -> _BoundLog:
        """Bind the stored streams to those of this job, decode their plans, and check the outputs of the job.

        Words of `recovery.allow` prevent the first three errors.

        Raises:
            OutputVanishedError: a pending batch needs an output that the job lacks.
            StreamVanishedError: the job lacks a stream whose offsets are stored.
            TopicsChangedError: a stream reads none of the topics whose offsets are stored for it.
            CorruptRecordError: a stream cannot read its data in a record.
            NotRecoverableError: the stored data of a stream belongs to another kind of input.
        """
        binding = binding_of(contents, self._streams())
        lost = not_allowed(binding, self._allowed())
        if lost:
            option = " ".join(f"--allow dropped:{name}" for name in lost)
            raise StreamVanishedError(
                f"{self._store.url} has offsets of streams that feed no output of this job: {', '.join(lost)} (a number is the position of "
                "a stream without a name). Put them back, under the name they had (DStream.setName). Or, to forget their offsets: "
                f"`kstream run {option}`, or {RECOVERY_ALLOW}={','.join('dropped:' + name for name in lost)}. "
                f"The streams now:\n{binding.report()}",
                path=self._store.url,
                streams=lost,
            )
        now = rebound(contents, binding.now)
        streams = {stream.id: StoredStream.of(stream, now) for stream in self._graph.active_inputs()}
        bound = _BoundLog(binding, now, streams, {number: why for number, stored in streams.items() if (why := stored.reads_nothing())})
        self._check_topics(bound)
        self._check_outputs(contents)
        return bound

    def _check_outputs(self, contents: LogContents) -> None:
        """Raise OutputVanishedError if a pending batch needs an output that this job lacks, unless `recovery.allow` permits it."""
        refused = [name for name in self._vanished_outputs(contents) if OUTPUT + name not in self._allowed()]
        if refused:
            option = " ".join(f"--allow {OUTPUT}{name}" for name in refused)
            raise OutputVanishedError(
                f"{self._store.url} has pending batches for outputs that this job lacks: {', '.join(refused)}. Put them back, under the "
                "name they had. Or, if these batches shall not be written there: "
                f"`kstream run {option}`, or {RECOVERY_ALLOW}={','.join(OUTPUT + name for name in refused)}.",
                path=self._store.url,
                outputs=refused,
            )

    def _vanished_outputs(self, contents: LogContents) -> list[str]:
        """Return the names of outputs for which a pending batch was planned, and which this job lacks."""
        planned = {name for time in contents.pending for name in contents.plans[time].outputs}
        return sorted(planned - set(self._graph.output_names()))

    def _check_topics(self, bound: _BoundLog) -> None:
        """Raise TopicsChangedError if a stream reads nothing of its stored data, unless `recovery.allow` permits it."""
        names = {number: called(bound.binding.now, number) for number in bound.other_topics}
        words = {TOPICS + names[number]: f"stream {names[number]} {why}" for number, why in bound.other_topics.items()}
        refused = [word for word in words if word not in self._allowed()]
        if refused:
            option = " ".join(f"--allow {word}" for word in refused)
            raise TopicsChangedError(
                f"{self._store.url} seems to be the checkpoint of another job: {'; '.join(words[word] for word in refused)}. Start the job "
                f"with its own checkpoint directory. Or, if it shall read other topics from now on: `kstream run {option}`, or "
                f"{RECOVERY_ALLOW}={','.join(refused)} (the stored offsets are kept for later).",
                path=self._store.url,
                streams=[word.removeprefix(TOPICS) for word in refused],
            )

    def _warn_of_unneeded(self, bound: _BoundLog, meta: Meta | None) -> None:
        """Warn of words of `recovery.allow` that this start does not need: the name may be misspelt. `meta`: with the interval of now."""
        needed = {DROPPED + called(bound.binding.stored, number) for number in bound.binding.vanished}
        needed |= self._begun_anew
        needed |= {OUTPUT + name for name in self._vanished_outputs(bound.contents)}
        needed |= {TOPICS + called(bound.binding.now, number) for number in bound.other_topics}
        if meta is not None and meta.after is not None:
            needed.add(f"{INTERVAL}{meta.after.milliseconds}")
        unneeded = [word for word in self._allowed() if word and word not in needed]
        if unneeded:
            logger.warning(
                "recovery.allow contains %s, which this start does not need: check the name, or remove the word", ", ".join(unneeded)
            )

    def _keep_left_behind(self, epoch: int, bound: _BoundLog) -> tuple[KeptOffsets, StoredStreams]:
        """Store the kept offsets: those of partitions that the stored plans have and the next plans will not have. Blocks on the store.

        Returns:
            The new kept offsets, and the streams with them.
        """
        left = {number: stored.left_behind() for number, stored in bound.streams.items()}
        inputs = {number: with_kind(plan.encode()) for number, plan in left.items() if plan is not None}
        kept = KeptOffsets(epoch, self._streams(), inputs)
        if inputs or bound.contents.kept_offsets is not None:
            write_kept(self._store, kept)
        return kept, {number: replace(stored, kept=left[number]) for number, stored in bound.streams.items()}

    def _history(self) -> Duration:
        """Return how long plans that no restart needs are kept."""
        return Duration(self._settings[HISTORY])

    def _with_interval(self, contents: LogContents) -> LogContents:
        """Return the contents with the batch interval of this job. IntervalChangedError if it differs and is not to be changed."""
        return with_interval_of(self._graph, self._store, contents, self._allowed())

    def _record_change(self, epoch: int, before: Meta | None, now: Meta | None) -> None:
        """Store the batch interval of this job, if the interval has ever changed. Blocks on the store."""
        change = None if now is None else now.change
        if change is None:
            return
        write_change(self._store, epoch, change)
        if before != now and before is not None:
            logger.warning(
                "the batch interval is %s from now on, it was %s up to batch %s: windows begin anew, with the batches of %s",
                change.interval,
                before.interval,
                change.after,
                change.interval,
            )

    def zero_time(self, zero: Time) -> Time:
        """Return the zero time of a stream without plans, and store it before the first plan. So all drivers have the same zero time.

        Args:
            zero: the zero time of a stream that starts for the first time now.

        Raises:
            IntervalChangedError: another driver has stored a different batch interval.
            StorageError: the store failed.
        """
        try:
            write_meta(self._store, Meta(zero, self._graph.batch_duration))
            return zero
        except AlreadyExistsError:  # an earlier or concurrent driver stored it and has planned nothing: its zero time holds
            meta = existing_meta(self._store)
            self._with_interval(LogContents(meta, {}, frozenset(), frozenset(), {}, ()))
            return meta.zero_time
