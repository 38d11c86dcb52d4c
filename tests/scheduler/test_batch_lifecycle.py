"""Where a batch stands, which step it may take from there, and what follows for the other batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kstream.batch import Batch, BatchOutcome, BatchPlan, JobSet
from kstream.batch_time import Time
from kstream.errors import IllegalStateError
from kstream.scheduler.batch_lifecycle import BatchLifecycle, Try
from kstream.scheduler.batch_steps import TABLE, End, Execution, Retry, Standing, Step
from kstream.scheduler.retry_policy import LONGEST_MS, RetryPolicy
from tests.clocks import NotedCondition

T = Time(1000)


def batch(ms: int) -> Batch:
    return Batch(BatchPlan(Time(ms), 1, "n", {}, {}, Time(ms)), {})


def jobs(ms: int) -> JobSet:
    return JobSet(Time(ms), [], {}, 0)


def times(tries: list[Try]) -> list[int]:
    return [each.time.milliseconds for each in tries]


@dataclass
class Lives:
    """The lifecycle of a driver, with a clock that the test moves."""

    policy: RetryPolicy = field(default_factory=RetryPolicy)
    now: int = 0

    def __post_init__(self) -> None:
        self.lifecycle = BatchLifecycle(self.policy, lambda: self.now)

    def plan(self, *ms: int) -> None:
        for each in ms:
            self.lifecycle.plan(batch(each))

    def run(self, *ms: int) -> None:
        """These planned batches run."""
        for each in ms:
            job_set = jobs(each)
            self.lifecycle.generated(Time(each))
            self.lifecycle.submitted(Time(each), job_set)
            assert self.lifecycle.begin(job_set)

    def fail(self, ms: int, state_failed: bool = False, may_stay: bool = True) -> Retry:
        """A batch that is planned runs and fails."""
        self.run(ms)
        return self.lifecycle.fail(Time(ms), state_failed, may_stay)

    def planned_and_failed(self, *ms: int) -> None:
        for each in ms:
            self.plan(each)
            self.fail(each)

    def due(self) -> list[int]:
        return times(self.lifecycle.take_due())

    def standing(self, ms: int = 1000) -> Standing | None:
        return self.lifecycle.standing(Time(ms))


# -- the table


def begin(lives: Lives) -> None:
    assert lives.lifecycle.begin(lives.lifecycle.try_of(T).job_set or jobs(1000))


def take_due(lives: Lives) -> None:
    lives.now += 2 * LONGEST_MS
    assert lives.due() == [1000]


WAYS: dict[Step, list[Callable[[Lives], object]]] = {
    Step.PLAN: [lambda lives: lives.plan(1000)],
    Step.HOLD: [lambda lives: lives.lifecycle.hold(T)],
    Step.TAKE: [lambda lives: lives.lifecycle.take_held()],
    Step.GENERATE: [lambda lives: lives.lifecycle.generated(T)],
    Step.SUBMIT: [lambda lives: lives.lifecycle.submitted(T, jobs(1000))],
    Step.BEGIN: [begin],
    Step.WITHDRAW: [lambda lives: lives.lifecycle.withdraw(by=Time(0))],
    Step.LOSE: [lambda lives: lives.lifecycle.lose(T)],
    Step.REPAIR: [lambda lives: lives.lifecycle.repair(T), lambda lives: lives.lifecycle.repair(Time(0))],
    Step.PUT_BACK: [lambda lives: lives.lifecycle.put_back(T, 5)],
    Step.FAIL: [lambda lives, kept=kept: lives.lifecycle.fail(T, False, kept) for kept in (True, False)]
    + [lambda lives: lives.lifecycle.fail(T, False, True, stopped=True)],
    Step.RETRY: [take_due],
    Step.FORGET: [lambda lives: lives.lifecycle.forget(T)],
    Step.COMPLETE: [lambda lives: lives.lifecycle.complete(T)],
    Step.REFUSE: [lambda lives: lives.lifecycle.refuse(T, BatchOutcome(0))],
    Step.NOT_KNOWN: [lambda lives: lives.lifecycle.not_known(T, BatchOutcome(0))],
    Step.LEAVE: [lambda lives: lives.lifecycle.leave(T)],
    Step.FENCE: [lambda lives: lives.lifecycle.fence(T)],
}
"""How each step is taken. A step that depends on more has several ways."""
Way = tuple[Step, int]


def lived(ways: tuple[Way, ...]) -> Lives | None:
    """The lives after these ways were taken, one after another; None if one cannot be taken."""
    lives = Lives(RetryPolicy(retries=1))
    for step, number in ways:
        try:
            WAYS[step][number](lives)
        except (IllegalStateError, KeyError, AssertionError, IndexError):
            return None
    return lives


def walks() -> Iterator[tuple[Step, Standing | None, Standing]]:
    """Walk along all ways, up to those whose end is known already. Yield each step with where it begins and where it ends."""
    known: set[object] = set()
    waiting: deque[tuple[Way, ...]] = deque([()])
    while waiting:
        before = waiting.popleft()
        for step, ways in WAYS.items():
            for number in range(len(ways)):
                lives, after = lived(before), lived((*before, (step, number)))
                if lives is None or after is None:
                    continue
                source, target = lives.standing(), after.standing() or Standing(Execution.ENDED, End.WRITTEN)
                if (source == target and (step, source) not in TABLE) or (source is None and T not in after.lifecycle):
                    continue  # the method had nothing to do
                yield step, source, target
                mark = target, min(2, after.lifecycle.failures(T)), T in after.lifecycle and after.lifecycle.try_of(T).job_set is not None
                if mark not in known and target.end is not End.WRITTEN:
                    known.add(mark)
                    waiting.append((*before, (step, number)))


def test_each_step_of_the_table_is_taken_by_a_method_and_no_method_takes_another_one() -> None:
    rows = {(step, source, target) for (step, source), targets in TABLE.items() for target in targets}
    assert set(walks()) == rows


@pytest.mark.parametrize("step", Step)
def test_a_step_that_the_table_does_not_have_is_an_error_and_changes_nothing(step: Step) -> None:
    """Except in a fenced batch, which stays where it is without an error."""
    for source in (Standing(execution, end, retry) for execution in Execution for end in End for retry in Retry):
        if (step, source) in TABLE or source.end is End.WRITTEN:
            continue
        lives = Lives()
        lives.plan(1000)
        lifecycle: Any = lives.lifecycle
        lifecycle._unindex(T, Standing(Execution.PLANNED))
        lifecycle._records[T].standing = source
        lifecycle._index(T, source)
        if source.end is End.LEFT and source.execution is not Execution.ENDED:
            assert lifecycle._move(T, step) is None
        else:
            with pytest.raises(IllegalStateError, match="cannot"):
                lifecycle._move(T, step)
        assert lives.standing() == source


def test_a_batch_is_planned_once() -> None:
    lives = Lives()
    lives.plan(1000)
    with pytest.raises(IllegalStateError, match="planned already"):
        lives.plan(1000)


def test_no_job_of_a_fenced_or_of_a_withdrawn_batch_or_of_an_earlier_try_starts() -> None:
    lives, first = Lives(RetryPolicy(retries=1)), jobs(1000)
    lives.plan(1000, 2000, 3000)
    for job_set in first, jobs(2000), jobs(3000):
        lives.lifecycle.generated(job_set.time)
        lives.lifecycle.submitted(job_set.time, job_set)
    assert lives.lifecycle.begin(first) and lives.lifecycle.begin(first), "a batch may have several jobs"
    lives.lifecycle.withdraw(by=T)
    assert not lives.lifecycle.begin(lives.lifecycle.try_of(Time(2000)).job_set or first)
    lives.lifecycle.fence(T)
    assert not lives.lifecycle.begin(first)
    assert lives.lifecycle.open() == {Time(1000), Time(2000), Time(3000)}, "the driver that has taken over ends them"


# -- which batches have not succeeded


def test_nothing_may_be_cleaned_before_a_batch_has_ended() -> None:
    lives = Lives()
    lives.plan(1)
    assert lives.lifecycle.clean_up_to() is None


def test_memory_may_be_cleaned_up_to_the_oldest_running_batch() -> None:
    lives = Lives()
    lives.plan(1, 2, 3)
    for ended, up_to in (3, 1), (1, 2), (2, 3):
        lives.lifecycle.complete(Time(ended))
        assert lives.lifecycle.clean_up_to() == Time(up_to)


def test_a_failed_batch_holds_the_log_but_not_the_memory() -> None:
    lives = Lives()
    lives.planned_and_failed(1)
    lives.plan(2)
    lives.lifecycle.complete(Time(2))
    assert lives.lifecycle.clean_up_to() == Time(2)
    assert lives.lifecycle.unfinished() == {Time(1)}


def test_a_batch_between_two_tries_holds_the_memory() -> None:
    lives = Lives(RetryPolicy(retries=1))
    lives.planned_and_failed(1)
    lives.plan(2)
    lives.lifecycle.complete(Time(2))
    assert lives.lifecycle.clean_up_to() == Time(1)


def test_a_batch_is_unfinished_wherever_it_stands_until_its_completion_is_stored() -> None:
    lives = Lives(RetryPolicy(retries=1))
    assert T not in lives.lifecycle
    lives.planned_and_failed(1000)
    assert T in lives.lifecycle
    lives.now = LONGEST_MS
    lives.due()
    lives.run(1000)
    lives.lifecycle.refuse(T, BatchOutcome(0))
    assert T in lives.lifecycle and lives.lifecycle.failed() == {T}
    lives.lifecycle.complete(T)
    assert T not in lives.lifecycle and not lives.lifecycle.pending().all()


def test_waiting_ends_when_nothing_runs_and_says_whether_it_did() -> None:
    lives = Lives()
    lives.plan(1)
    assert lives.lifecycle.wait_none_running(0.01) is False
    event: Any = lives.lifecycle._none_running
    event._cond = condition = NotedCondition()
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(lives.lifecycle.wait_none_running(60)))
    waiter.start()
    assert condition.waits.wait(20)
    lives.fail(1)
    waiter.join(20)
    assert answers == [True]


def test_a_batch_that_waits_is_open_and_does_not_run() -> None:
    lives = Lives(RetryPolicy(retries=1))
    lives.planned_and_failed(1)
    lives.plan(2)
    lives.lifecycle.hold(Time(2))
    assert lives.lifecycle.wait_none_running(0) and not lives.lifecycle.wait_none_open(0)
    assert lives.lifecycle.open() == {Time(1), Time(2)} and lives.lifecycle.in_line() == {Time(2)}
    assert lives.lifecycle.num_in_line() == 1


@pytest.mark.parametrize("retries", [0, 1])
def test_a_retry_that_could_not_start_is_taken_back(retries: int) -> None:
    lives = Lives(RetryPolicy(retries=retries))
    lives.planned_and_failed(1000)
    before, standing = lives.lifecycle.pending(), lives.standing()
    lives.now = LONGEST_MS
    assert lives.due() == [1000] and lives.lifecycle.retries == 1
    lives.lifecycle.put_back(T, LONGEST_MS + 500)
    assert (lives.lifecycle.retries, lives.lifecycle.pending(), lives.standing()) == (0, before, standing)
    assert lives.lifecycle.next_due_ms() == LONGEST_MS + 500


def test_the_oldest_outcome_is_written_first_and_one_that_is_refused_again_goes_to_the_end() -> None:
    lives = Lives()
    lives.plan(1, 2)
    for ms in 2, 1:
        lives.lifecycle.refuse(Time(ms), BatchOutcome(ms))
    assert [outcome.at_ms for _, outcome in lives.lifecycle.kept()] == [2, 1]
    lives.lifecycle.refuse(Time(2), BatchOutcome(3))
    assert [outcome.at_ms for _, outcome in lives.lifecycle.kept()] == [1, 3]
    assert lives.lifecycle.not_known(Time(1), BatchOutcome(1)) == 1
    assert lives.lifecycle.not_known(Time(1), BatchOutcome(1)) == 2, "how often it was asked in vain"
    lives.lifecycle.leave(Time(1))
    assert [each.time for each, _ in lives.lifecycle.kept()] == [Time(2)]
    assert lives.lifecycle.to_come() == {Time(2)}


# -- retries


def test_each_batch_with_retries_left_has_a_back_off_of_its_own() -> None:
    lives = Lives(RetryPolicy(retries=3), now=10_000)
    lives.planned_and_failed(2000)
    lives.now = 11_000
    assert lives.due() == [2000]
    lives.fail(2000)
    lives.planned_and_failed(1000)
    assert lives.lifecycle.next_due_ms() == 12_000
    assert lives.due() == []
    lives.now = 12_000
    assert lives.due() == [1000]
    lives.now = 13_000
    assert lives.due() == [2000] and lives.lifecycle.next_due_ms() is None


def test_a_sink_that_is_away_meets_one_try_a_minute_whatever_the_number_of_failed_batches() -> None:
    lives = Lives()
    for n in range(1, 6):
        lives.now = n * 1000
        lives.planned_and_failed(n * 1000)
    assert lives.lifecycle.next_due_ms() == 1000 + LONGEST_MS
    lives.now = 1000 + LONGEST_MS
    assert lives.due() == [1000]
    lives.now = 2 * LONGEST_MS
    assert lives.due() == [], "the others wait for the one that is tried"
    lives.fail(1000)
    assert lives.lifecycle.next_due_ms() == 3 * LONGEST_MS
    lives.now = 3 * LONGEST_MS
    assert lives.due() == [1000]


def test_after_a_success_the_rest_follow_at_once_oldest_first() -> None:
    lives, followed = Lives(), list[int]()
    for n in 3, 1, 2:
        lives.planned_and_failed(n * 1000)
    lives.now = LONGEST_MS
    while taken := lives.due():
        followed += taken
        lives.run(taken[0])
        lives.lifecycle.complete(Time(taken[0]))
    assert followed == [1000, 2000, 3000]


def test_a_batch_that_is_tried_in_turn_stays_so_and_one_beyond_the_bound_is_left_to_a_restart() -> None:
    lives = Lives(RetryPolicy(max_held=1))
    lives.planned_and_failed(1000)
    lives.now = LONGEST_MS
    assert lives.due() == [1000]
    lives.plan(2000)
    assert lives.fail(2000) is Retry.EXHAUSTED, "also while the first one is being tried"
    assert lives.lifecycle.in_memory() == {T} and lives.lifecycle.unfinished() == {T, Time(2000)}
    assert lives.fail(1000) is Retry.IN_TURN
    lives.now = 2 * LONGEST_MS
    assert lives.due() == [1000]


def test_a_batch_that_may_not_be_kept_is_left_to_a_restart_once_its_retries_are_used_up() -> None:
    lives = Lives(RetryPolicy(retries=1))
    lives.plan(1000)
    assert lives.fail(1000, may_stay=False) is Retry.BACK_OFF
    lives.now = LONGEST_MS
    lives.due()
    assert lives.fail(1000, may_stay=False) is Retry.EXHAUSTED


def test_a_try_whose_completion_is_refused_holds_up_no_other_batch() -> None:
    lives = Lives()
    lives.planned_and_failed(1000, 2000)
    lives.now = LONGEST_MS
    assert lives.due() == [1000]
    assert lives.lifecycle.next_due_ms() is None, "it runs"
    lives.run(1000)
    lives.lifecycle.refuse(T, BatchOutcome(0))
    assert lives.due() == [], "the store is away"
    lives.now = 2 * LONGEST_MS
    assert lives.due() == [2000]


# -- batches that wait for others


@pytest.mark.parametrize("retries", [0, 1])
def test_a_batch_whose_state_failed_holds_later_ones_until_it_has_succeeded(retries: int) -> None:
    lives = Lives(RetryPolicy(retries=retries))
    lives.plan(1000)
    lives.fail(1000, state_failed=True, may_stay=False)
    assert lives.lifecycle.must_wait(Time(2000)) and not lives.lifecycle.must_wait(Time(500))
    lives.now = LONGEST_MS
    assert lives.due() == [1000]
    assert lives.lifecycle.must_wait(Time(2000)), "also while it is tried"
    lives.run(1000)
    lives.lifecycle.complete(T)
    assert not lives.lifecycle.must_wait(Time(2000))


def test_a_batch_whose_state_a_later_try_has_computed_holds_no_other_any_more() -> None:
    lives = Lives(RetryPolicy(retries=1))
    lives.plan(1000)
    lives.fail(1000, state_failed=True)
    lives.now = LONGEST_MS
    lives.due()
    assert lives.fail(1000, may_stay=False) is Retry.EXHAUSTED, "only the output failed, and the batch is left to a restart"
    assert not lives.lifecycle.must_wait(Time(2000))


def test_under_hold_a_batch_starts_when_all_older_ones_have_succeeded() -> None:
    lives = Lives(RetryPolicy(hold=True))
    lives.plan(2000, 3000)
    assert not lives.lifecycle.must_wait(Time(2000)) and lives.lifecycle.must_wait(Time(3000))
    lives.lifecycle.complete(Time(2000))
    assert not lives.lifecycle.must_wait(Time(3000))


def test_under_hold_no_batch_waits_for_one_whose_jobs_have_succeeded_and_that_is_left_to_a_restart() -> None:
    lives = Lives(RetryPolicy(hold=True))
    lives.plan(1000)
    lives.run(1000)
    lives.lifecycle.refuse(T, BatchOutcome(0))
    assert lives.lifecycle.must_wait(Time(2000))
    lives.lifecycle.leave(T)
    assert not lives.lifecycle.must_wait(Time(2000))


def test_under_continue_only_a_batch_without_its_state_is_waited_for() -> None:
    lives = Lives()
    lives.planned_and_failed(1000)
    assert not lives.lifecycle.must_wait(Time(2000))


def test_held_batches_leave_in_their_order_also_those_that_are_put_back() -> None:
    lives = Lives()
    lives.plan(2000, 3000, 4000)
    for time in 2000, 3000, 4000:
        lives.lifecycle.hold(Time(time))
    first, second = lives.lifecycle.take_held(), lives.lifecycle.take_held()
    lives.lifecycle.put_back(second.time, 0)
    lives.lifecycle.put_back(first.time, 0)
    taken = [lives.lifecycle.take_held().time.milliseconds for _ in range(3)]
    assert taken == [2000, 3000, 4000] and lives.lifecycle.oldest_held is None


def test_as_many_as_may_be_held_are_too_many_only_behind_a_failed_batch() -> None:
    lives = Lives(RetryPolicy(hold=True, max_held=2))
    lives.plan(1000, 2000, 3000)
    lives.lifecycle.hold(Time(2000))
    lives.lifecycle.hold(Time(3000))
    assert not lives.lifecycle.is_full() and len(lives.lifecycle.pending().running) == 3, "they wait for their turn only"
    lives.fail(1000)
    assert lives.lifecycle.is_full() and (len(lives.lifecycle.pending().held), len(lives.lifecycle.pending().failed)) == (2, 1)
    lives.now = LONGEST_MS
    assert lives.due() == [1000]
    assert lives.lifecycle.is_full() and len(lives.lifecycle.pending().held) == 2, "also while the failed one is tried again"
    lives.run(1000)
    lives.lifecycle.complete(T)
    assert not lives.lifecycle.is_full()


def test_a_repaired_batch_that_meets_a_store_that_is_away_keeps_its_jobs_and_has_a_time_of_its_own() -> None:
    lives = Lives()
    lives.plan(1000)
    lives.run(1000)
    lives.lifecycle.lose(T)
    assert lives.lifecycle.awaits_repair
    (again,) = lives.lifecycle.repair(T)
    assert again.job_set is not None and not lives.lifecycle.awaits_repair
    lives.lifecycle.put_back(T, 500)
    assert lives.lifecycle.oldest_held is None and lives.lifecycle.next_due_ms() == 500
    lives.now = 500
    assert lives.lifecycle.take_due() == [again] and lives.lifecycle.retries == 0


# -- the page


def test_the_page_of_the_scheduler_has_the_table() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "internals" / "scheduler.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    told = {
        (step, source, target)
        for step, _, sources, targets in (row for row in rows if len(row) == 4)
        for source in sources.split("; ")
        for target in targets.split("; ")
    }
    table = {(step.value, str(source or "–"), str(target)) for (step, source), targets in TABLE.items() for target in targets}
    assert {row for row in told if row[0] in {step.value for step in Step}} == table
