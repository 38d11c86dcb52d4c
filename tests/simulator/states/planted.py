"""Ways to break the life of states on purpose, each a few lines that a careless change could bring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstream.batch_time import Time
from kstream.dstream.stateful_dstream import Recovery, StatefulDStream
from kstream.scheduler import job_scheduler
from kstream.scheduler.batch_submitter import BatchSubmitter
from kstream.scheduler.state_checkpointer import StateCheckpointer


def files_of_a_state_go_as_soon_as_a_newer_one_is_named(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StatefulDStream, "states_to_read", lambda self, new, unfinished: set())


def a_write_counts_as_having_read_more_than_it_read(patch: pytest.MonkeyPatch) -> None:
    """As if all remembered states were made from the one that was written last."""
    written = StatefulDStream.written

    def noted(self: StatefulDStream, time: Time, read: Callable[[], Any]) -> None:
        written(self, time, read)
        with self._lock:
            bases = self._lineage.bases
            bases.update({t: time for t, base in bases.items() if base < time})

    patch.setattr(StatefulDStream, "written", noted)


def an_rdd_that_a_submitted_batch_of_a_backlog_holds_is_replaced(patch: pytest.MonkeyPatch) -> None:
    """A new batch continues from the written state also if newer states are made already: those are forgotten, and made again.

    While few batches are generated, there are no such states. So all batches of a backlog are generated at once, too.
    """
    all_batches_of_a_backlog_are_generated_at_once(patch)

    def continued(self: StatefulDStream, time: Time) -> None:
        written = self._written
        if written is None or written.read is None or time <= written.time or written.time not in self._generated:
            return
        if self._lineage.bases[written.time] != written.time:
            younger = [t for t in self._generated if t > written.time]
            for made in younger:
                del self._generated[made]
            self._with_blocks.difference_update(younger)
            self._lineage.forget(younger)
            self._replace_by_files(written.time, written.read())

    patch.setattr(StatefulDStream, "_continue_from_written", continued)


def all_batches_of_a_backlog_are_generated_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchSubmitter, "_may_generate", lambda self, time: not self._lifecycle.must_wait(time))


def a_batch_does_not_wait_for_a_state_that_is_being_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StateCheckpointer, "is_awaited", lambda self, batches: False)


def a_repair_goes_back_past_the_plans_that_are_kept(patch: pytest.MonkeyPatch) -> None:
    recovery = StatefulDStream.recovery

    def found(self: StatefulDStream) -> Recovery | None:
        self._cleared = Time(0)
        return recovery(self)

    patch.setattr(StatefulDStream, "recovery", found)


def a_lost_state_is_a_failure_like_any_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(job_scheduler, "is_lost_state", lambda error: False)
