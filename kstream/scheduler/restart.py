"""Restart: continues from the log of earlier drivers. It restores the inputs and states, and runs the batches that are left."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstream.batch import Batch, PlannedInput
from kstream.batch_time import Time, listed
from kstream.checkpoint import LogContents
from kstream.checkpoint.settings import HISTORY
from kstream.dstream.ports import InputServices
from kstream.dstream.stored_stream import StoredStream
from kstream.errors import StorageError
from kstream.loop import Event
from kstream.scheduler.batch_planner import BatchPlanner
from kstream.scheduler.batch_submitter import BatchSubmitter
from kstream.scheduler.due_batches import DueBatches
from kstream.scheduler.job_scheduler import JobScheduler, SchedulerParts
from kstream.scheduler.settings import MAX_BATCH_FAILURES

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Resume:
    """The work of a restart before its first tick: run the pending batches again, and plan the first missed ones.

    Attributes:
        pending: the pending batches of earlier drivers, oldest first.
        failures: how often each batch has failed, by batch time.
        ended: set when the work is done, also after an error.
    """

    pending: Sequence[Batch]
    failures: Mapping[Time, int]
    ended: Event


class Restart:
    """Runs the pending batches again with their plans, and plans the missed batches.

    Threads: the thread that starts calls `restore`, then `left`. The JobGenerator's thread calls `resume`.
    """

    def __init__(
        self,
        parts: SchedulerParts,
        planner: BatchPlanner,
        submitter: BatchSubmitter,
        due: DueBatches,
        scheduler: JobScheduler,
        services: InputServices,
        max_batch_failures: int,
    ) -> None:
        self._parts = parts
        self._planner = planner
        self._submitter = submitter
        self._lifecycle = parts.lifecycle
        self._due = due
        self._scheduler = scheduler
        self._services = services
        self._max_batch_failures = max_batch_failures
        self._stored: dict[int, Mapping[Time, PlannedInput]] = {}

    def restore(self, contents: LogContents, streams: Mapping[int, StoredStream[Any]], new: Time) -> None:
        """Restore inputs and states from the log, and start the inputs. Blocks on the store and on the inputs' systems.

        Args:
            contents: of the log.
            streams: the inputs with their stored plans, by stream id.
            new: the first batch that this driver may plan.

        Raises:
            CorruptRecordError: no stored state from which the batches can be made is whole.
            NotRecoverableError: an input cannot continue from its newest plan.
            Exception: an input could not start.
        """
        for stream in self._planner.inputs:
            streams[stream.id].restore()
            self._stored[stream.id] = streams[stream.id].plans
            stream.start(self._services)
        self._parts.states.restore(contents, new)
        self._leave_out(contents)

    def _leave_out(self, contents: LogContents) -> None:
        """Leave out of ended batches what they have left out, for windows and states. A pending batch does so when it runs."""
        for time in (contents.done | contents.given_up) & contents.skipped.keys():
            for stream in self._planner.inputs:
                records = contents.skipped_of(time, stream.id)
                if records:
                    stream.leave_out(time, records)

    def left(self, contents: LogContents, new: Time, next_tick: Time) -> Resume:
        """Return the event with all work that comes before the tick at `next_tick`. Passes the missed times to the inputs; may block."""
        pending = contents.pending
        failing = [time for time in pending if contents.failures.get(time, 0) > 0 and not self._is_over(contents.failures[time])]
        missed = self._due.begin_missed(new, next_tick, failing)
        if to_run := pending + missed:
            text = "batches to reschedule: %d, %d pending processing and %d during down time: %s"
            logger.info(text, len(to_run), len(pending), len(missed), listed(to_run))
        batches = [
            Batch(contents.plans[time], {number: plans[time] for number, plans in self._stored.items() if time in plans})
            for time in pending
        ]
        self._stored.clear()
        return Resume(batches, contents.failures, self._parts.runtime.event())

    def resume(self, event: Resume) -> None:
        """Submit the pending batches in turn and plan the first missed ones, then set `event.ended`. Blocks on the store and the inputs.

        An error that `BatchSubmitter.run_again` raises ends this method: `event.ended` is set, and the other batches do not run.
        """
        try:
            for batch in event.pending:  # mark all before any runs: the plan of a pending batch must be kept until the batch has run
                self._lifecycle.plan(batch)
            for batch in event.pending:
                self._run_again(batch, event.failures.get(batch.time, 0))
            self._due.plan_missed()
        finally:
            event.ended.set()

    def _run_again(self, batch: Batch, failures: int) -> None:
        """Submit a pending batch. A batch that failed too often is given up instead."""
        if self._submitter.is_fenced:
            return
        if self._is_over(failures):
            self._give_up(batch, failures)
        else:
            self._submitter.run_again(batch)

    def _is_over(self, failures: int) -> bool:
        """Return whether a batch that failed in so many starts is given up."""
        return failures > self._max_batch_failures > 0

    def _give_up(self, batch: Batch, failures: int) -> None:
        """Put the batch into the ledger and log a warning. The stream continues.

        If the store refuses the entry, the error is reported to the JobScheduler, and the next restart tries again.
        """
        try:
            command = self._parts.log.give_up(batch.plan, self._parts.clock.time_ms(), failures)
        except StorageError as e:  # not in the ledger: the next restart tries again
            self._lifecycle.forget(batch.time)
            self._scheduler.report_error(f"batch {batch.time} could not be given up", e)
            return
        self._lifecycle.complete(batch.time)
        logger.warning(
            "batch %s failed %d times and is given up (%s=%d). It is in the ledger, no restart runs "
            "it again, and the stream continues. When its cause is repaired, run it again while its plan is kept "
            "(%s): %s",
            batch.time,
            failures,
            MAX_BATCH_FAILURES,
            self._max_batch_failures,
            HISTORY,
            command,
        )
