"""Batch: the states of its life, and which may follow which."""

from __future__ import annotations

import pytest

from kstream.batch import Batch, BatchPlan, BatchState
from kstream.batch_time import Time
from kstream.errors import IllegalStateError
from tests.harness import PATIENCE, World, started

S = BatchState


def batch(*states: BatchState) -> Batch:
    """A batch that has gone through these states."""
    made = Batch(BatchPlan(Time(1000), 1, "n", {}, {}, Time(1000)), {})
    for state in states:
        made.become(state)
    return made


@pytest.mark.parametrize(
    "life",
    [
        (S.DURABLE, S.SUBMITTED, S.RUNNING, S.ENDED),
        (S.DURABLE, S.SUBMITTED, S.RUNNING, S.FAILED),
        (S.DURABLE, S.SUBMITTED, S.FENCED),
        (S.DURABLE, S.FENCED),
        (S.DURABLE, S.ENDED),
        (S.DURABLE, S.FAILED),
        (S.DURABLE, S.FAILED, S.ENDED),
    ],
    ids=["runs", "a job fails", "fenced before a job starts", "fenced before it is submitted", "has no jobs", "has no RDD", "noted late"],
)
def test_a_batch_goes_through_its_states_in_order(life: tuple[BatchState, ...]) -> None:
    assert batch(*life).state is life[-1]


@pytest.mark.parametrize(
    ("life", "then"),
    [
        ((), S.SUBMITTED),
        ((S.DURABLE,), S.RUNNING),
        ((S.DURABLE, S.SUBMITTED), S.ENDED),
        ((S.DURABLE, S.ENDED), S.FAILED),
        ((S.DURABLE, S.ENDED), S.ENDED),
        ((S.DURABLE, S.FAILED), S.FAILED),
    ],
    ids=["not durable", "not submitted", "not run", "ended well", "ended twice", "failed twice"],
)
def test_a_batch_cannot_leave_out_a_state_or_end_twice(life: tuple[BatchState, ...], then: BatchState) -> None:
    made = batch(*life)
    with pytest.raises(IllegalStateError, match="cannot become"):
        made.become(then)


def test_a_fenced_batch_stays_fenced() -> None:
    made = batch(S.DURABLE, S.SUBMITTED, S.FENCED)
    made.become(S.RUNNING)
    assert made.state is S.FENCED


def test_a_batch_that_has_no_outcome_has_failed_and_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With jobs and without: a batch has one way to end."""
    world = World()
    driver = started(world)
    monkeypatch.setattr(driver.input, "outcome", lambda _time, _plan: 1 / 0)
    driver.tick(1)
    monkeypatch.setattr(driver.host.graph, "generate_jobs", lambda _time: [])
    driver.tick_only(1)
    driver.wait_error(ZeroDivisionError, count=2)
    assert [message for message in driver.messages() if "is not known: the next batch asks again" in message] == driver.messages()
    assert driver.engine._generator._unfinished.wait_none_running(PATIENCE)
    monkeypatch.undo()
    driver.kill()
    again = started(world)
    again.stop()
    assert sorted({record for attempt in world.attempts for record in attempt.records}) == [0, 1]
