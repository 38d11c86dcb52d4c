"""BatchPlanner: collects the plans of the inputs, makes the plan of the batch durable, generates the jobs and submits them.

InputInfoTracker: record counts and facts of each input stream, for each batch. The functions at the end are pure: they select the missed
batches that are planned late, after a restart, and after a clock jumped or planning was held up.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kstream import crash_point
from kstream.batch import Batch, BatchPlan, BatchState, JobSet, PlannedInput, StreamInputInfo
from kstream.batch_time import Duration, Time
from kstream.clock import SettableClock
from kstream.dstream import InputDStream
from kstream.errors import FencedError, IllegalStateError, PlanFailedError, StorageError
from kstream.scheduler.completions import Failure
from kstream.scheduler.job_scheduler import JobScheduler, SchedulerParts
from kstream.scheduler.planning_outage import PlanningOutage

logger = logging.getLogger(__name__)
MOST = 1000
"""The number of missed batches above which batches of a downtime are coalesced."""
OVERDUE = 10
"""The number of overdue ticks above which they are handled as missed batches. A slow answer of a broker or a long pause of the process
leaves fewer. A suspended machine or a clock that jumped leaves more."""


class InputInfoTracker:
    """Keeps a StreamInputInfo per batch and input: added when a batch is planned, read when it is submitted, removed with its metadata.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._infos: dict[Time, dict[int, StreamInputInfo]] = {}
        self._lock = threading.Lock()

    def reportInfo(self, time: Time, info: StreamInputInfo) -> None:
        """Add the info of one input to a batch.

        Raises:
            IllegalStateError: the batch has an info of this input already.
        """
        with self._lock:
            infos = self._infos.setdefault(time, {})
            if info.stream_id in infos:
                raise IllegalStateError(f"input stream {info.stream_id} has already reported for batch {time}", state="reported")
            infos[info.stream_id] = info

    def getInfo(self, time: Time) -> dict[int, StreamInputInfo]:
        """Return the infos of a batch by stream id; empty if there are none."""
        with self._lock:
            return dict(self._infos.get(time, {}))

    def cleanup(self, threshold: Time) -> None:
        """Remove the infos of batches strictly older than `threshold`."""
        with self._lock:
            for old in [t for t in self._infos if t < threshold]:
                del self._infos[old]


class BatchPlanner:
    """Plans, generates and submits the batches of one start of a context.

    Threads: the thread that starts calls `begin` and `store_starting_point` before the first batch, and `missed` at a restart. After that
    the JobGenerator's thread calls everything else. When this thread has ended, the thread that stops makes the last calls.
    """

    def __init__(
        self, parts: SchedulerParts, scheduler: JobScheduler, on_fenced: Callable[[FencedError], None], outage: PlanningOutage
    ) -> None:
        """
        Args:
            parts: those of the JobGenerator.
            scheduler: runs the jobs.
            on_fenced: on_fenced(error) is called once, when this driver finds that another one has taken over.
            outage: how long the driver waits for brokers or a store that are away.
        """
        self._parts = parts
        self._graph = parts.graph
        self._log = parts.log
        self._scheduler = scheduler
        self._on_fenced = on_fenced
        self._outage = outage
        self._unfinished = parts.unfinished
        self._input_info = InputInfoTracker()
        self.inputs: Sequence[InputDStream[Any]] = ()
        self.is_fenced = False
        """Whether another driver is known to have taken over. Any thread may read it."""
        self._after = Time(0)
        self._last_made: Batch | None = None
        """The batch of the newest write of a plan, whether the write succeeded or failed."""
        self._overdue: tuple[Time, frozenset[Time]] = (Time(0), frozenset())
        """The last overdue tick that was decided on, and the overdue ticks that make a batch."""

    def begin(self, zero_time: Time, last_planned: Time | None) -> None:
        """Initialize the graph.

        Args:
            zero_time: the zero time of the stream.
            last_planned: the newest batch that an earlier driver planned; None at a first start.
        """
        self.inputs = self._graph.active_inputs()
        self._graph.initialize(zero_time)
        self._after = last_planned or Time(0)

    def store_starting_point(self, time: Time) -> None:
        """Store the starting point: a plan without records, and its completion. Blocks on the store.

        Without it, a driver that is killed before its first plan would restart at a later `latest`, and skip the records in between.

        Args:
            time: one interval before the first batch.

        Raises:
            StorageError: the store failed.
        """
        plan = self._make(time, {stream.id: stream.starting_point() for stream in self.inputs}).plan
        self._log.write_plan(plan)
        states = self._parts.states
        states.named(self._log.complete(time, plan.epoch, self._parts.clock.time_ms(), {}, states.begin(time)))

    @property
    def exhausted(self) -> bool:
        """Whether all inputs are bounded and have planned all of their data. False without inputs."""
        return bool(self.inputs) and all(stream.exhausted for stream in self.inputs)

    # -- which ticks make a batch

    def missed(self, times: Sequence[Time]) -> list[Time]:
        """Pass the missed batch times to all inputs, and select those that are planned late.

        May block on the inputs' systems. An error of an input is raised. If all inputs are exhausted, no input is called.

        Args:
            times: rising, without gaps.

        Returns:
            The times to plan, oldest first; see `batches_during_downtime`.
        """
        if not times or self.exhausted:
            return []
        busy = [stream.missed(times) for stream in self.inputs]
        return batches_during_downtime(times, self._graph.batch_duration, self._graph.longest_remember(), busy)

    def tick(self, time: Time, now_ms: Callable[[], int]) -> None:
        """Make the batch of a tick. If many ticks are overdue, leave out those that a restart would leave out.

        An error is reported to the JobScheduler and not raised.

        Args:
            time: the batch time of the tick.
            now_ms: reads the clock of the batch times, in milliseconds since the Unix epoch.
        """
        try:
            left_out = not self.is_fenced and self._is_left_out(time, now_ms)
        except Exception as e:  # an input failed in `missed`: the next tick asks it again
            self._not_planned(time, e)
        else:
            if not left_out:
                self.generate(time)

    def _is_left_out(self, time: Time, now_ms: Callable[[], int]) -> bool:
        """Return whether the tick is one of many overdue ticks and makes no batch. With a settable clock no tick is left out."""
        last, kept = self._overdue
        if time > last:
            late = [] if isinstance(self._parts.clock, SettableClock) else overdue(time, now_ms(), self._graph.batch_duration)
            if not late:
                return False
            kept = frozenset(self.missed(late))
            self._overdue = late[-1], kept
            logger.warning(
                "%d batches are overdue, %s to %s: the clock jumped, or planning was held up. They are treated as after a downtime: %d "
                "of them are planned",
                len(late),
                late[0],
                late[-1],
                len(kept),
            )
        return time not in kept

    # -- a batch

    def generate(self, time: Time) -> None:
        """Plan a batch, make its plan durable, generate its jobs and submit them. Blocks on the store and on the inputs' systems.

        First it resolves an in-doubt plan, and stores completions that were refused before. An error is reported to the JobScheduler and
        not raised; the stream continues. Does nothing if this driver is fenced, or if all inputs are exhausted.
        """
        if self.is_fenced or self.exhausted:
            return
        try:
            settled = self._log.resolve_in_doubt_plan()
            if settled is not None:  # its write was reported as failed, but the plan was stored: its batch runs first
                assert self._last_made is not None and settled is self._last_made.plan
                self._go_on(self._last_made)
            self.retry_completions()
            if self.is_fenced:
                return
            crash_point.reach(crash_point.BEFORE_PLAN)
            batch = self._last_made = self._make(time, {stream.id: stream.plan(time) for stream in self.inputs})
            self._log.write_plan(batch.plan)
        except Exception as e:
            self._not_planned(time, e)
        else:
            crash_point.reach(crash_point.PLAN_DURABLE)
            self._outage.ended(time)
            self._go_on(batch)

    def _not_planned(self, time: Time, error: Exception) -> None:
        """Report the error of a batch that was not planned, unless the driver waits for a system that is away."""
        if self._outage.waits(time, error):
            return
        if isinstance(error, StorageError):
            self._scheduler.report_error(f"batch {time} was not planned", unplanned(time, error))
        else:
            self._scheduler.report_error(f"Error generating jobs for time {time}", error)

    def retry_completions(self) -> None:
        """Store the completions that the store refused when their batches ended, and report the data that these batches lost.

        Blocks on the store. A FencedError fences this driver and is not raised; a StorageError is logged, and the completions are kept.
        """
        if self.is_fenced:  # the successor runs those batches again
            return
        try:
            written = self._scheduler.completions.retry()
        except FencedError as e:
            self._fence(e)
            return
        for completion in written:
            self._scheduler.tell_lost(completion)

    def _make(self, time: Time, inputs: Mapping[int, PlannedInput]) -> Batch:
        """Make a batch from the plans of its inputs, by stream id. Each plan is encoded here, once."""
        data = {stream_id: plan.encode() for stream_id, plan in inputs.items()}
        records = {stream_id: plan.num_records for stream_id, plan in inputs.items()}
        floor = min(self._unfinished.all() | {time})
        names = self._graph.input_names()
        return Batch(BatchPlan(time, self._log.epoch, uuid.uuid4().hex, data, records, floor, self._after, names=names), inputs)

    def _go_on(self, batch: Batch) -> None:
        """Move the cursors past a durable plan and submit its batch, unless another driver has taken over."""
        batch.become(BatchState.DURABLE)
        self._unfinished.planned(batch.time)
        try:
            for stream in self.inputs:
                plan = batch.inputs.get(stream.id)
                if plan is not None:
                    stream.remember_plan(batch.time, plan)
                    stream.planned(batch.time, plan)
            self._report_records(batch)
        except Exception as e:
            self._fail(batch, e)
        else:
            self._submit(batch)

    def run_again(self, batch: Batch) -> None:
        """Submit a pending batch of an earlier driver with its own plan. Blocks on the store.

        An error is reported and not raised: the batch fails and stays pending.
        """
        try:
            self._report_records(batch)
        except Exception as e:
            self._fail(batch, e)
        else:
            self._submit(batch)

    def _report_records(self, batch: Batch) -> None:
        """Note the record counts and the metadata of a batch's inputs, for listeners."""
        for stream in self.inputs:
            plan = batch.inputs.get(stream.id)
            if plan is not None and stream.reports_input_info:
                records = batch.plan.num_records[stream.id]  # a decoded plan may lack the count
                self._input_info.reportInfo(batch.time, StreamInputInfo(stream.id, records, stream.metadata(batch.time, plan)))

    def _submit(self, batch: Batch) -> None:
        """Probe for a newer epoch, generate the jobs of a batch, and submit them. An error ends the batch and is not raised."""
        try:
            self._log.probe()
            with self._parts.environment.for_generation(batch.time):
                jobs = self._graph.generate_jobs(batch.time)
        except FencedError as e:
            batch.become(BatchState.FENCED)
            self._fence(e)
        except Exception as e:  # also a StorageError of the probe: another driver may have taken over, so nothing may be submitted
            self._fail(batch, e)
        else:
            at_ms = self._parts.clock.time_ms()
            if jobs:
                self._scheduler.submit_job_set(batch, JobSet(batch.time, jobs, self._input_info.getInfo(batch.time), at_ms))
            else:
                self._end_without_jobs(batch, at_ms)

    def _end_without_jobs(self, batch: Batch, at_ms: int) -> None:
        """Store the completion of a batch for which no output has a job."""
        ended = self._scheduler.completions.end(batch, at_ms, self._parts.states.unnamed())
        if ended.trouble is not None:
            self._scheduler.report_error(*ended.trouble)
        if ended.completion is not None:
            self._scheduler.tell_lost(ended.completion)

    def _fail(self, batch: Batch, error: Exception) -> None:
        """Report the error of a batch that was not submitted, and end the batch. It gets no completion, so a restart runs it again."""
        self._scheduler.report_error(f"Error generating jobs for time {batch.time}", error)
        ended = self._scheduler.completions.end(batch, self._parts.clock.time_ms(), failure=Failure(str(error)))
        if ended.trouble is not None:  # the batch is pending also without the failure record
            logger.warning("%s: %s", *ended.trouble)

    def _fence(self, error: FencedError) -> None:
        """Plan and submit nothing from now on, start no queued job, and call `on_fenced`."""
        self.is_fenced = True
        self._scheduler.refuse_jobs()
        self._on_fenced(error)

    # -- after a batch

    def tell_unfinished(self) -> None:
        """Pass the unfinished batches to the inputs, which may then commit ended ones. A fenced driver leaves this to its successor."""
        if not self.is_fenced:
            unfinished = self._unfinished.all()
            for stream in self.inputs:
                stream.batches_ended(unfinished)

    def clear_metadata(self) -> Time | None:
        """Forget the RDDs, plans and counts that no batch needs any more.

        Returns:
            The time up to which batches have ended; None before the first end.
        """
        up_to = self._unfinished.clean_up_to()
        if up_to is not None:
            self._graph.clear_metadata(up_to)
            self._input_info.cleanup(up_to - self._graph.longest_remember())
        return up_to


# -- which missed batches are planned


def batches_during_downtime(
    missed: Sequence[Time], interval: Duration, remember: Duration, busy: Sequence[Collection[Time] | None] = (), most: int = MOST
) -> list[Time]:
    """Select the missed batch times that are planned: all of them, if they are no more than `most`.

    Of a longer downtime, coalesce the batches that could only be empty and that no window needs. No record is lost. Three groups are
    planned:

    - The last batches, as far back as `remember` reaches: they fill the windows of the first batch that is on time.
    - The first batches, if an input catches up: they take its backlog under the rate limit, and later batches take the rest.
    - For an input with by-timestamp, each batch that has records. So are the batches after it within `remember`, because their windows
      still show these records.

    Args:
        missed: batch times, rising, without gaps.
        interval: the batch interval.
        remember: how far back a batch may look.
        busy: for each input the times at which it has records (by-timestamp), or None (catch-up).
        most: the number of batches that are always planned.

    Returns:
        The selected times, oldest first.
    """
    if len(missed) <= most:
        return list(missed)
    reach = -(-remember.milliseconds // interval.milliseconds)
    tail = min(most - 1, reach)
    kept = set(missed[len(missed) - tail :])
    if not busy or any(times is None for times in busy):
        kept.update(missed[: most - tail])
    for times in busy:
        for time in times or ():
            kept.update(time + interval * i for i in range(reach + 1))
    return [time for time in missed if time in kept]


def overdue(tick: Time, now_ms: int, interval: Duration, most: int = OVERDUE) -> list[Time]:
    """Return the batch times from `tick` up to now if there are more than `most`, else an empty list.

    Args:
        tick: the oldest tick that has not made its batch.
        now_ms: milliseconds since the Unix epoch.
        interval: the batch interval.
        most: the number of ticks that may be late without counting as missed.
    """
    count = (now_ms - tick.milliseconds) // interval.milliseconds + 1
    return [tick + interval * n for n in range(count)] if count > most else []


def unplanned(time: Time, error: StorageError) -> PlanFailedError:
    """Return the error about a batch that was not planned: the store refused its plan, or an earlier plan is in doubt."""
    return PlanFailedError(f"batch {time} was not planned: {error}. Its records go to the next batch.", time=time.milliseconds)
