"""When a failed batch is tried again, which batches wait for it, and in which order they follow. Pure."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kstream.batch import Batch, BatchPlan, BatchState, JobSet
from kstream.batch_time import Time
from kstream.conf import Settings
from kstream.errors import ConfigurationError
from kstream.scheduler.failed_batches import FailedBatches, FailedTry, HeldBatches
from kstream.scheduler.retry_policy import RetryPolicy, retry_policy

MINUTE = 60_000


def batch(ms: int, failures: int = 0) -> Batch:
    made = Batch(BatchPlan(Time(ms), 1, "n", {}, {}, Time(ms)), {}, BatchState.DURABLE)
    for _ in range(failures):
        made.become(BatchState.FAILED)
        made.become(BatchState.DURABLE)
    return made


def failed(ms: int, failures: int, state_error: BaseException | None = None) -> FailedTry:
    jobs = JobSet(Time(ms), [], {}, 0)
    jobs.state_error = state_error
    return FailedTry(batch(ms, failures), jobs)


def times(tries: list[FailedTry]) -> list[int]:
    return [each.batch.time.milliseconds for each in tries]


def test_by_default_a_failure_is_reported_at_once_as_in_spark() -> None:
    policy = retry_policy(Settings({}))
    assert policy.is_used_up(1)
    assert not policy.hold


def test_the_back_off_doubles_from_a_second_to_a_minute() -> None:
    policy = RetryPolicy(retries=9)
    assert [policy.delay_ms(n) for n in range(1, 10)] == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]


def test_without_retries_left_a_batch_is_tried_once_a_minute() -> None:
    assert [RetryPolicy(retries=1).delay_ms(n) for n in (1, 2, 3)] == [1000, MINUTE, MINUTE]


@pytest.mark.parametrize(
    ("key", "value"),
    [("batch.retries", "-1"), ("failedBatch", "stop"), ("maxHeldBatches", "0")],
)
def test_a_setting_without_a_meaning_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"spark.streaming.kstream.{key} is '?{value}"):
        retry_policy(Settings({f"spark.streaming.kstream.{key}": value}))


def test_an_output_that_needs_order_holds() -> None:
    assert RetryPolicy().with_order().hold


def test_each_batch_with_retries_left_has_a_back_off_of_its_own() -> None:
    waiting = FailedBatches(RetryPolicy(retries=3))
    waiting.add(failed(2000, failures=2), 10_000, True)
    waiting.add(failed(1000, failures=1), 10_500, True)
    assert waiting.next_due_ms() == 11_500
    assert times(waiting.take_due(11_499)) == []
    assert times(waiting.take_due(11_500)) == [1000]
    assert times(waiting.take_due(12_000)) == [2000]
    assert waiting.next_due_ms() is None


def test_a_sink_that_is_away_meets_one_try_a_minute_whatever_the_number_of_failed_batches() -> None:
    waiting = FailedBatches(RetryPolicy())
    for n in range(1, 6):
        waiting.add(failed(n * 1000, failures=1), n * 1000, True)
    assert waiting.next_due_ms() == 1000 + MINUTE
    taken = waiting.take_due(1000 + MINUTE)
    assert times(taken) == [1000]
    assert waiting.take_due(2 * MINUTE) == [], "the others wait for the one that is tried"
    waiting.add(failed(1000, failures=2), 62_000, True)
    assert waiting.next_due_ms() == 62_000 + MINUTE
    assert times(waiting.take_due(62_000 + MINUTE)) == [1000]


def test_after_a_success_the_rest_follow_at_once_oldest_first() -> None:
    waiting = FailedBatches(RetryPolicy())
    for n in (3, 1, 2):
        waiting.add(failed(n * 1000, failures=1), 0, True)
    followed = []
    now = MINUTE
    unfinished = {Time(1000), Time(2000), Time(3000)}
    while taken := waiting.take_due(now):
        followed += times(taken)
        unfinished -= {taken[0].batch.time}
        waiting.ended(unfinished, (), now)
    assert followed == [1000, 2000, 3000]


def test_a_batch_that_is_admitted_stays_so_and_one_beyond_the_bound_is_left_to_a_restart() -> None:
    waiting = FailedBatches(RetryPolicy(max_held=1))
    assert waiting.add(failed(1000, 1), 0, True)
    taken = waiting.take_due(MINUTE)
    assert not waiting.add(failed(2000, 1), MINUTE, True), "also while the first one is being tried"
    assert waiting.left_to_a_restart == {Time(2000)}
    assert waiting.add(failed(1000, 2), MINUTE, True)
    assert times(taken) == [1000] and times(waiting.take_due(2 * MINUTE)) == [1000]


def test_a_batch_that_may_not_be_kept_is_left_to_a_restart_once_its_retries_are_used_up() -> None:
    waiting = FailedBatches(RetryPolicy(retries=1))
    assert waiting.add(failed(1000, 1), 0, False)
    assert not waiting.add(failed(1000, 2), 1000, False)


def test_a_try_that_ends_without_success_or_failure_holds_up_no_other_batch() -> None:
    """Its jobs have succeeded, and its completion was refused."""
    waiting = FailedBatches(RetryPolicy())
    waiting.add(failed(1000, 1), 0, True)
    waiting.add(failed(2000, 1), 0, True)
    waiting.take_due(MINUTE)
    waiting.ended({Time(1000), Time(2000)}, {Time(1000)}, MINUTE)
    assert waiting.next_due_ms() is None, "it runs"
    waiting.ended({Time(1000), Time(2000)}, (), MINUTE)
    assert times(waiting.take_due(2 * MINUTE)) == [2000]


def test_a_batch_whose_state_failed_holds_later_ones_until_it_has_succeeded() -> None:
    waiting = FailedBatches(RetryPolicy(retries=1))
    waiting.add(failed(1000, 1, state_error=ValueError("update")), 0, True)
    assert waiting.holding == {Time(1000)}
    waiting.take_due(1000)
    assert waiting.holding == {Time(1000)}, "also while it is tried"
    waiting.ended((), (), 1000)
    assert waiting.holding == frozenset()


def test_a_batch_whose_state_a_later_try_has_computed_holds_no_other_any_more() -> None:
    waiting = FailedBatches(RetryPolicy(retries=1))
    waiting.add(failed(1000, 1, state_error=ValueError("update")), 0, False)
    waiting.take_due(1000)
    assert not waiting.add(failed(1000, 2), 2000, False), "only the output failed, and the batch is left to a restart"
    assert waiting.holding == frozenset()


def these(*times: int) -> Callable[[], set[Time]]:
    return lambda: {Time(time) for time in times}


def test_under_hold_a_batch_starts_when_all_older_ones_have_succeeded() -> None:
    held = HeldBatches(RetryPolicy(hold=True))
    assert not held.must_wait(Time(2000), these(2000, 3000), ())
    assert held.must_wait(Time(2000), these(1000, 2000), ())


def test_under_continue_only_a_holding_batch_is_waited_for() -> None:
    held = HeldBatches(RetryPolicy())
    assert not held.must_wait(Time(2000), these(1000, 2000), ())
    assert held.must_wait(Time(2000), these(1000, 2000), {Time(1000)})


def test_held_batches_leave_in_their_order_also_those_that_are_added_again() -> None:
    held = HeldBatches(RetryPolicy())
    for time in (2000, 3000, 4000):
        held.add(batch(time))
    first, second = held.take(), held.take()
    held.add(second)
    held.add(first)
    assert [held.take().time for _ in range(3)] == [Time(2000), Time(3000), Time(4000)] and held.oldest is None


def test_as_many_as_may_be_held_are_too_many_only_behind_a_failed_batch() -> None:
    held = HeldBatches(RetryPolicy(hold=True, max_held=2))
    held.add(batch(2000))
    assert not held.is_full(these(1000))
    held.add(batch(3000))
    assert held.is_full(these(1000)) and not held.is_full(these())
