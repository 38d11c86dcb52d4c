"""Ways to break the product on purpose, each a few lines that a careless change could bring."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kstream.batch import Batch, BatchState, JobSet, PlannedInput
from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Duration, Time
from kstream.checkpoint import PlanLog, plan_log
from kstream.checkpoint.reader import PlanKey
from kstream.checkpoint.settled import Settled
from kstream.context import checkpoint_opener
from kstream.scheduler import job_generator
from kstream.scheduler.batch_planner import BatchPlanner
from kstream.scheduler.completions import Completions, UnfinishedBatches
from kstream.scheduler.failed_batches import HeldBatches


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
    def ended(self: Completions, batch: Batch) -> None:
        batch.become(BatchState.FAILED)
        self._unfinished.ended(batch.time, succeeded=True)
        self._on_end(batch.time)

    patch.setattr(Completions, "wait_for_retry", ended)


def only_running_batches_hold_later_ones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnfinishedBatches, "all", lambda self: set(self._running))


def a_batch_that_could_not_start_waits_behind_all_others(patch: pytest.MonkeyPatch) -> None:
    """Under hold each of them waits for it."""
    patch.setattr(HeldBatches, "add", lambda self, batch: self._held.append(batch))


def a_retry_does_not_look_for_a_newer_writer(patch: pytest.MonkeyPatch) -> None:
    submit = BatchPlanner._submit

    def submitting(self: BatchPlanner, batch: Batch, failed: JobSet | None = None) -> None:
        probe = self._log.probe
        if batch.failures:
            self._log.probe = lambda: None
        try:
            submit(self, batch, failed)
        finally:
            self._log.probe = probe

    patch.setattr(BatchPlanner, "_submit", submitting)


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
