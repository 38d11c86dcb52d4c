"""Replay: runs past batches again with their stored plans, into the same sink or into files.

One idea: a replay generates and runs jobs as a driver does, and changes nothing in the checkpoint. It takes no epoch, writes no plan and
no completion, commits no offset, and asks no broker for offsets. It can run beside the driver.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kstream.batch import BatchPlan, InputOutcome
from kstream.batch_time import Time
from kstream.checkpoint import read_log
from kstream.checkpoint.binding import mappings, renumbered
from kstream.checkpoint.history import PastBatch, read_history, read_past
from kstream.checkpoint.settings import HISTORY
from kstream.checkpoint.skip_request import by_stream
from kstream.dstream import DStreamGraph
from kstream.dstream.ports import InputServices
from kstream.errors import ConfigurationError, IntervalChangedError, in_a_line
from kstream.output import OutputBatch
from kstream.scheduler.job_scheduler import JobEnvironment
from kstream.storage import FileStore

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CountChange:
    """A part of a stream's plan whose record count differs from the first run.

    Attributes:
        stream: the id of the stream.
        part: the index of the part.
        then: the count in the first run.
        now: the count in the replay.
    """

    stream: int
    part: int
    then: int
    now: int


@dataclass(frozen=True, slots=True)
class ReplayedBatch:
    """The result of one batch.

    Attributes:
        plan: the plan that ran.
        ended_then: whether the batch had ended in the first run.
        changes: the parts with another number of records.
        lost: by stream, the records that no longer exist, as entries of the ledger.
        error: the error of the job that failed, if any.
    """

    plan: BatchPlan
    ended_then: bool
    changes: Sequence[CountChange] = ()
    lost: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict[int, Sequence[Mapping[str, Any]]])
    error: Exception | None = None

    @property
    def time(self) -> Time:
        return self.plan.time

    @property
    def same(self) -> bool:
        """Whether the batch succeeded with the same record counts as before, and without lost records."""
        return self.error is None and not self.changes and not self.lost


def batches_of(store: FileStore, begin: Time, end: Time) -> list[PastBatch]:
    """Return the batches of [begin, end] that the log or its history still holds, oldest first, without tombstones. Blocks on the store."""
    found = {b.plan.time: b for b in read_history(store, begin, end)}
    plans = read_log(store).plans
    found.update({t: read_past(store, p) for t, p in plans.items() if begin <= t <= end and t not in found and not p.void})
    return [found[time] for time in sorted(found)]


class Replayer:
    """Runs past batches on a graph that was not started. Use it once, in one thread: that thread runs the jobs.

    The constructor blocks on the store: it reads the log.

    Args:
        graph: the graph of the job.
        environment: prepares the thread for Spark jobs.
        store: the checkpoint.
        shadow: shadow(output number, time, rdd) is called in place of the functions of the outputs, and lost records are reported. None
            calls the functions of the outputs, and the stream's setting for data loss holds.

    Raises:
        ConfigurationError: there is no checkpoint, or a stream carries state from batch to batch.
        IntervalChangedError: the graph has another batch interval than the checkpoint.
    """

    def __init__(
        self, graph: DStreamGraph, environment: JobEnvironment, store: FileStore, shadow: Callable[[int, Time, RDD[Any]], None] | None
    ) -> None:
        self._graph = graph
        self._environment = environment
        self._store = store
        contents = read_log(store)
        if contents.meta is None:
            raise ConfigurationError(f"there is no checkpoint in {store.url}: no stream has started there", key="path", value=store.url)
        if contents.meta.interval != graph.batch_duration:
            raise IntervalChangedError(
                f"{store.url} was written with a batch interval of {contents.meta.interval}, the job has {graph.batch_duration}",
                path=store.url,
                stored_ms=contents.meta.interval.milliseconds,
                given_ms=graph.batch_duration.milliseconds,
            )
        states = graph.active_states()
        if states:
            raise ConfigurationError(
                f"{states[0]!r} carries state from batch to batch, and the state of past batches is not kept: a replay would begin with an "
                "empty state. Replay a job without that stream",
                key="job",
                value=str(states[0].creation_site),
            )
        outputs = graph.output_names()
        if outputs and shadow is None:
            raise ConfigurationError(
                f"output {outputs[0]} writes each batch exactly once, and a replay would write it again. Let the replay write to files "
                "(--sink shadow)",
                key="job",
                value=outputs[0],
            )
        self._changed_after = contents.meta.after
        graph.initialize(contents.meta.zero_time)
        for number, output in enumerate(graph.output_streams):
            if shadow is not None:
                output.redirect(lambda time, rdd, number=number: shadow(number, time, rdd))
        for stream in graph.active_inputs():
            stream.start_replay(InputServices(tolerate_loss=shadow is not None))

    def run(self, begin: Time, end: Time) -> Iterator[ReplayedBatch]:
        """Run the batches of [begin, end] one after the other, and yield the result of each.

        The streams also get the plans of earlier batches, as far back as they remember, so that windows are complete. A job's error is in
        the result and is not raised. Each step of the iteration blocks until its batch has run.

        Raises:
            ConfigurationError: there is no such batch. Raised at the first step of the iteration.
        """
        known = self._rebound(batches_of(self._store, begin - self._graph.longest_remember(), end))
        wanted = [b for b in known if b.plan.time >= begin]
        if not wanted:
            raise ConfigurationError(
                f"{self._store.url} holds no batch of {begin.milliseconds} to {end.milliseconds} ms: {HISTORY} says "
                "how long plans are kept",
                key="from",
                value=begin.milliseconds,
            )
        if self._changed_after is not None and wanted[0].plan.time <= self._changed_after:
            raise ConfigurationError(
                f"batch {wanted[0].plan.time} is of another batch interval: only batches after {self._changed_after} can be replayed with "
                f"the interval of this job, {self._graph.batch_duration}",
                key="from",
                value=begin.milliseconds,
            )
        for batch in known:
            self._remember(batch)
        for batch in wanted:
            yield self._replay(batch)
            self._graph.clear_metadata(batch.plan.time)

    def _rebound(self, batches: list[PastBatch]) -> list[PastBatch]:
        """Return the batches with the stream numbers of this graph, which may differ from those of the graph that planned them."""
        names = self._graph.input_names()
        now = {stream.id: names.get(stream.id) for stream in self._graph.active_inputs()}
        followed = mappings((batch.plan for batch in batches), now)
        return [
            PastBatch(
                renumbered(batch.plan, mapping, now),
                None if batch.counts is None else {mapping[n]: c for n, c in batch.counts.items() if n in mapping},
                [replace(record, stream=mapping[record.stream]) for record in batch.skipped if record.stream in mapping],
            )
            for batch in batches
            for mapping in (followed.get(batch.plan.epoch, {}),)
        ]

    def _remember(self, batch: PastBatch) -> None:
        """Give the inputs their plans of a batch, without the records that it has left out."""
        skipped = by_stream(batch.skipped, None)
        for stream in self._graph.active_inputs():
            if stream.id in batch.plan.inputs:
                stream.remember_plan(batch.plan.time, stream.decoded(batch.plan))
                if stream.id in skipped:
                    stream.leave_out(batch.plan.time, skipped[stream.id])

    def _replay(self, batch: PastBatch) -> ReplayedBatch:
        """Run the jobs of a batch one after the other, up to the first error, and return the result."""
        time = batch.plan.time
        error: Exception | None = None
        try:
            with self._environment.for_generation(time):
                jobs = self._graph.generate_jobs(OutputBatch(time, batch.plan.nonce, is_first_try=False))
            for job in jobs:
                with self._environment.for_job(job):
                    job.run()
        except Exception as e:
            logger.warning("batch %s failed in the replay: %s", time, in_a_line(e))
            error = e
        outcomes = self._graph.outcomes(time)
        lost = {stream: outcome.lost for stream, outcome in outcomes.items() if outcome.lost}
        changes = [] if error is not None else list(changed(batch.counts or {}, outcomes))
        return ReplayedBatch(batch.plan, batch.counts is not None, changes, lost, error)


def changed(then: Mapping[int, Sequence[int | None]], now: Mapping[int, InputOutcome]) -> Iterator[CountChange]:
    """Yield the parts whose record counts are known for both runs and differ. Pure."""
    for stream, outcome in sorted(now.items()):
        for part, (before, after) in enumerate(zip(then.get(stream, ()), outcome.counts, strict=False)):
            if before is not None and after is not None and before != after:
                yield CountChange(stream, part, before, after)


def text_sink(directory: str) -> Callable[[int, Time, RDD[Any]], None]:
    """Make a shadow that writes the elements of each output as lines to `<directory>/output-<number>/<batch time in ms>/part-…`.

    A line is JSON, or the repr of an element that is not made of JSON values. `directory` is any place that Spark writes to; Spark fails
    if the folder of a batch exists.
    """

    def write(number: int, time: Time, rdd: RDD[Any]) -> None:
        rdd.mapPartitions(_lines).saveAsTextFile(f"{directory}/output-{number}/{time.milliseconds}")

    return write


def _lines(elements: Iterable[Any]) -> Iterator[str]:
    """Yield a line of text for each element. Runs in a task."""
    for element in elements:
        try:
            yield json.dumps(element, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError):
            yield repr(element)
