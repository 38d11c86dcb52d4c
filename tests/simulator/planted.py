"""Ways to break the product on purpose, each a few lines that a careless change could bring."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from kstream.batch import Batch, BatchOutcome, PlannedInput
from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Duration, Time
from kstream.checkpoint import PlanLog, plan_log
from kstream.checkpoint.reader import PlanKey
from kstream.checkpoint.settled import Settled
from kstream.context import checkpoint_opener
from kstream.scheduler import batch_lifecycle, job_generator
from kstream.scheduler.batch_lifecycle import BatchLifecycle, Try
from kstream.scheduler.batch_planner import BatchPlanner
from kstream.scheduler.batch_steps import End, Execution, Retry, Standing, Step
from kstream.scheduler.batch_submitter import BatchSubmitter
from kstream.scheduler.completions import Completions


def cursor_moves_before_the_plan_is_durable(patch: pytest.MonkeyPatch) -> None:
    make = BatchPlanner._make

    def moving(self: BatchPlanner, time: Time, inputs: Mapping[int, PlannedInput]) -> Batch:
        for stream in self.inputs:
            stream.planned(time, inputs[stream.id])
        return make(self, time, inputs)

    patch.setattr(BatchPlanner, "_make", moving)


def epoch_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Neither before a batch is submitted nor before a late job starts."""
    patch.setattr(PlanLog, "probe", lambda self: None)


def clean_up_goes_past_a_pending_batch(patch: pytest.MonkeyPatch) -> None:
    """Neither `required_batches` nor the floor that backs it up knows of unfinished batches."""

    def removable(self: PlanLog, required: RequiredBatches) -> tuple[list[PlanKey], list[PlanKey]]:
        return [key for key in self._written if key[0] <= required.line and len(self._newest) == 2 and key[0] < self._newest[0][0]], []

    patch.setattr(job_generator, "required_batches", lambda unfinished, ended, remember, states: RequiredBatches(ended - remember))
    patch.setattr(PlanLog, "_removable", removable)


def a_batch_between_two_tries_counts_as_ended(patch: pytest.MonkeyPatch) -> None:
    fail = BatchLifecycle.fail

    def ended(self: BatchLifecycle, time: Time, *args: Any) -> Retry:
        retry = fail(self, time, *args)
        if retry is Retry.BACK_OFF:
            with self._lock:
                self._unindex(time, self._records.pop(time).standing)
                self._tell()
        return retry

    patch.setattr(BatchLifecycle, "fail", ended)


def only_running_batches_hold_later_ones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchLifecycle, "unfinished", BatchLifecycle._running)
    patch.setattr(BatchLifecycle, "must_wait", lambda self, time: min(self._running(), default=time) < time)


def a_batch_that_could_not_start_waits_behind_all_others(patch: pytest.MonkeyPatch) -> None:
    """Under hold each of them waits for it."""
    patch.setattr(batch_lifecycle, "insort", lambda held, time: held.append(time))
    patch.setattr(batch_lifecycle, "bisect_left", lambda held, time: held.index(time))


def a_retry_does_not_look_for_a_newer_writer(patch: pytest.MonkeyPatch) -> None:
    submit = BatchSubmitter._submit

    def submitting(self: BatchSubmitter, begun: Try) -> bool:
        probe = self._log.probe
        if self._lifecycle.failures(begun.time):
            self._log.probe = lambda: None
        try:
            return submit(self, begun)
        finally:
            self._log.probe = probe

    patch.setattr(BatchSubmitter, "_submit", submitting)


def a_new_writer_does_not_say_what_it_found(patch: pytest.MonkeyPatch) -> None:
    """The bug that the simulator found in its first hour."""
    patch.setattr(checkpoint_opener, "record_takeover", lambda store, contents, epoch: None)


def plans_go_before_their_interval_is_stored(patch: pytest.MonkeyPatch) -> None:
    """The settled interval is stored when the plans above an unfinished batch are removed already."""
    remove, write = PlanLog._remove, plan_log.write_settled
    late: dict[PlanLog, list[Settled]] = {}
    writing: list[PlanLog] = []

    def settle(self: PlanLog, plans: Collection[PlanKey], settle: Any = PlanLog._settle) -> None:
        writing.append(self)
        settle(self, plans)

    def removing(self: PlanLog, plans: Collection[PlanKey]) -> None:
        remove(self, plans)
        for interval in late.pop(self, []):
            write(self._store, interval)

    patch.setattr(plan_log, "write_settled", lambda _store, interval: late.setdefault(writing[-1], []).append(interval))
    patch.setattr(PlanLog, "_settle", settle)
    patch.setattr(PlanLog, "_remove", removing)


def a_stray_plan_counts_for_clean_up(patch: pytest.MonkeyPatch) -> None:
    """A fenced driver removes plans by the low watermark of a plan after which it did not probe. The simulator found this."""
    patch.setattr(PlanLog, "_mark_durable", lambda self, plan: self._newest.append((plan.time, plan.floor)))


def an_interval_is_one_batch_too_long(patch: pytest.MonkeyPatch) -> None:
    """It covers the plan behind it, whose batch may be pending."""
    write = plan_log.write_settled
    patch.setattr(plan_log, "write_settled", lambda store, s: write(store, replace(s, until=s.until + Duration(1000))))


# -- the steps of a batch


def a_completed_batch_stays_in_a_view(patch: pytest.MonkeyPatch) -> None:
    note_end = BatchLifecycle._note_end

    def late(self: BatchLifecycle, time: Time, source: Standing, target: Standing) -> None:
        note_end(self, time, source, target)
        if target.end is End.WRITTEN:
            self._by[Execution.ENDED].add(time)

    patch.setattr(BatchLifecycle, "_note_end", late)


def a_refused_completion_counts_as_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchLifecycle, "refuse", lambda self, time, outcome: self.complete(time))


def a_batch_that_could_not_start_is_left_to_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchLifecycle, "put_back", lambda self, time, due_ms: self.forget(time))


def the_newest_held_batch_goes_first(patch: pytest.MonkeyPatch) -> None:
    def take(self: BatchLifecycle) -> Batch:
        with self._lock:
            record = self._move(self._held[-1], Step.TAKE)
            assert record is not None
            return record.batch

    patch.setattr(BatchLifecycle, "take_held", take)
    patch.setattr(BatchLifecycle, "oldest_held", property(lambda self: self._held[-1] if self._held else None))


def failed_batches_hold_no_later_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchLifecycle, "must_wait", lambda self, time: False)


def a_batch_whose_end_is_being_stored_is_left_already(patch: pytest.MonkeyPatch) -> None:
    """Its completion is refused, and nobody writes it again."""
    patch.setattr(BatchLifecycle, "refuse", lambda self, time, outcome: self.leave(time))


def a_failed_batch_without_retries_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    fail = BatchLifecycle.fail

    def forgotten(self: BatchLifecycle, time: Time, *args: Any) -> Retry:
        retry = fail(self, time, *args)
        if retry is not Retry.BACK_OFF and (record := self._records.pop(time, None)) is not None:
            self._unindex(time, record.standing)
        return retry

    patch.setattr(BatchLifecycle, "fail", forgotten)


def a_batch_without_retries_left_holds_nothing(patch: pytest.MonkeyPatch) -> None:
    """Only a batch that runs or waits holds later ones."""
    patch.setattr(BatchLifecycle, "must_wait", lambda self, time: self._policy.hold and min(self.open(), default=time) < time)


def a_batch_is_completed_before_its_completion_is_stored(patch: pytest.MonkeyPatch) -> None:
    write = Completions._write

    def early(self: Completions, batch: Batch, outcome: BatchOutcome) -> None:
        if (standing := self._lifecycle.standing(batch.time)) is not None and standing.execution is not Execution.ENDED:
            self._lifecycle.complete(batch.time)
        with suppress(KeyError):
            write(self, batch, outcome)

    patch.setattr(Completions, "_write", early)


def a_batch_whose_completion_was_refused_is_not_unfinished(patch: pytest.MonkeyPatch) -> None:
    """A commit and clean-up pass it."""
    unfinished = BatchLifecycle.unfinished
    patch.setattr(BatchLifecycle, "unfinished", lambda self: unfinished(self) - self._by[End.REFUSED])


TRANSITIONS = (
    a_completed_batch_stays_in_a_view,
    a_refused_completion_counts_as_stored,
    a_batch_that_could_not_start_is_left_to_a_restart,
    the_newest_held_batch_goes_first,
    failed_batches_hold_no_later_one,
    a_batch_whose_end_is_being_stored_is_left_already,
    a_failed_batch_without_retries_is_forgotten,
    a_batch_without_retries_left_holds_nothing,
    a_batch_is_completed_before_its_completion_is_stored,
    a_batch_whose_completion_was_refused_is_not_unfinished,
)
