"""Ways to break the product on purpose, each a few lines that a careless change could bring."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kstream.batch import Batch, PlannedInput
from kstream.batch_time import Time
from kstream.checkpoint import PlanLog
from kstream.context import checkpoint_opener
from kstream.scheduler import job_generator
from kstream.scheduler.batch_planner import BatchPlanner


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
    """Neither `removable_up_to` nor the floor that backs it up knows of unfinished batches."""

    def removable(self: PlanLog, limit: Time) -> list[tuple[Time, int]]:
        return [(time, epoch) for time, epoch in self._written if time <= limit and len(self._newest) == 2 and time < self._newest[0]]

    patch.setattr(job_generator, "removable_up_to", lambda unfinished, done_up_to, remember, needed_from: done_up_to - remember)
    patch.setattr(PlanLog, "_removable", removable)


def a_new_writer_does_not_say_what_it_found(patch: pytest.MonkeyPatch) -> None:
    """The bug that the simulator found in its first hour."""
    patch.setattr(checkpoint_opener, "record_takeover", lambda store, contents, epoch: None)
