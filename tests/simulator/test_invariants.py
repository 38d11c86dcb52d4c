"""The invariants themselves: each holds of a good history and names what is wrong in a bad one."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import pytest

from kstream.batch import BatchPlan
from kstream.batch_time import Time
from tests.simulator import History
from tests.simulator import invariants as inv
from tests.simulator.history import Attempt, Completed, Look, Moved, Stored


class Told:
    """Builds a history, a line a fact."""

    def __init__(self) -> None:
        self.history = History(1000)

    def plan(self, time: int, epoch: int = 1, data: Any = None, void: bool = False, after: int = 0, records: int = 1) -> Told:
        inputs = {} if void else {0: data or {"of": time}}
        plan = BatchPlan(Time(time), epoch, f"{time}-{epoch}-{void}", inputs, {0: records}, Time(0), Time(after), void)
        self.history.plans.append(Stored(self.history.next_step(), plan))
        return self

    def look(self, driver: int = 1, answer: str = "clear", at: int = 0) -> Told:
        self.history.looks.append(Look(self.history.next_step(), at, driver, answer))
        return self

    def run(
        self,
        time: int,
        driver: int = 1,
        read: tuple[Hashable, ...] | None = (),
        finish: bool = True,
        data: Any = None,
        at: int = 0,
        error: str | None = None,
    ) -> Told:
        step = self.history.next_step()
        attempt = Attempt(step, driver, time, data or {"of": time}, step, at, read)
        attempt.finished_step = self.history.next_step() if finish and error is None else None
        attempt.error = error
        self.history.attempts.append(attempt)
        return self

    def done(self, time: int, driver: int = 1) -> Told:
        self.history.done.append(Completed(self.history.next_step(), driver, time))
        return self

    def reads_log(self, driver: int) -> Told:
        self.history.knew[driver] = self.history.next_step()
        return self

    def move(self, time: int, driver: int = 1, data: Any = None) -> Told:
        self.history.moves.append(Moved(self.history.next_step(), driver, time, data or {"of": time}))
        return self

    def fenced(self, driver: int = 1) -> Told:
        self.history.fenced[driver] = self.history.next_step()
        return self

    def pending(self, *times: int) -> Told:
        self.history.pending = frozenset(times)
        return self

    def holds(self) -> Told:
        self.history.holds = True
        return self

    def stops(self, driver: int, *left: int) -> Told:
        self.history.left[driver] = frozenset(left)
        return self

    def disagrees(self, words: str) -> Told:
        self.history.disagreements.append(words)
        return self

    def given_up(self, time: int) -> Told:
        self.history.given_up.add(time)
        return self


GOOD = {
    "two batches, one after the other": lambda: (
        Told().plan(1).move(1).look().run(1, read=("a",)).done(1).plan(2).move(2).look().run(2, read=("b",)).done(2)
    ),
    "a batch run again by the next driver": lambda: (
        Told().plan(1).move(1).look().run(1, read=("a",), finish=False).reads_log(2).look(2).run(1, 2, ("a",)).done(1, 2)
    ),
    "a batch that could not be read, and is pending": lambda: Told().plan(1).move(1).look().run(1, read=None, finish=False).pending(1),
    "a batch in the ledger": lambda: Told().plan(1).look().run(1, read=None, finish=False).given_up(1),
    "a look that failed": lambda: Told().plan(1).look(answer="error").run(1),
    "a fenced driver's job that had begun": lambda: Told().plan(1).look().run(1).fenced().done(1),
    "a starting point, done by its own driver while another runs it": lambda: (
        Told().plan(1, records=0).look(2).run(1, 2, read=None, finish=False).done(1)
    ),
    "a batch tried again by its driver": lambda: (
        Told().holds().plan(1).move(1).look().run(1, error="away").look().run(1).done(1).plan(2).move(2).look().run(2).done(2)
    ),
    "a later batch beside one that failed, without hold": lambda: (
        Told().plan(1).look().run(1, read=None, error="away").plan(2).look().run(2).done(2).pending(1)
    ),
    "a driver that leaves nothing": lambda: Told().plan(1).look().run(1).done(1).stops(1),
    "a starting point, done without a job": lambda: Told().plan(1).done(1).plan(2).look().run(2).done(2),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_breaks_nothing(name: str) -> None:
    assert inv.violations(GOOD[name]().history) == []


BAD: list[tuple[Callable[[History], list[str]], Callable[[], Told], str]] = [
    (inv.one_content_per_batch_time, lambda: Told().run(1, data={"a": 1}).run(1, 2, data={"a": 2}), "batch 1 ran as {'a': 1} in driver 1"),
    (inv.one_content_per_batch_time, lambda: Told().run(1, read=("a",)).run(1, 2, read=("b",)), "batch 1 read ['a'] in driver 1"),
    (inv.no_record_in_two_batches, lambda: Told().run(1, read=("a", "b")).run(2, read=("b",)), "record 'b' is in batch 1 and in batch 2"),
    (inv.nothing_planned_is_forgotten, lambda: Told().run(1, finish=False).run(2), "batch 1 was begun and never finished"),
    (inv.nothing_planned_is_forgotten, lambda: Told().plan(1).run(1, finish=False).done(1, 2), "batch 1 was begun and never finished"),
    (inv.a_completion_tells_the_truth, lambda: Told().run(1, finish=False).done(1), "batch 1 is noted as done by driver 1"),
    (inv.only_durable_plans_are_run, lambda: Told().run(1).plan(1), "batch 1 ran in driver 1"),
    (inv.only_durable_plans_are_run, lambda: Told().plan(1, void=True).run(1), "no such plan was durable"),
    (inv.only_durable_plans_are_run, lambda: Told().plan(1, data={"of": 9}).run(1), "as {'of': 1}"),
    (inv.cursors_follow_durable_plans, lambda: Told().move(1).plan(1), "driver 1 moved its cursors behind batch 1"),
    (inv.batch_times_rise, lambda: Told().move(2).move(1), "driver 1 went on to batch 1 after 2"),
    (inv.batch_times_rise, lambda: Told().plan(1, epoch=2, after=1), "epoch 2 planned 1 ms, though it had found 1 ms planned"),
    (inv.who_runs_has_looked, lambda: Told().plan(1).run(1), "had not looked"),
    (inv.who_runs_has_looked, lambda: Told().look().plan(1).run(1), "had not looked"),
    (inv.who_runs_has_looked, lambda: Told().plan(1).look(2).run(1), "had not looked"),
    (inv.who_runs_has_looked, lambda: Told().plan(1).look(at=0).run(1, at=1001), "1001 ms after its last look"),
    (inv.who_runs_has_looked, lambda: Told().plan(1).look().fenced().run(1), "knew that it was fenced"),
    (inv.what_is_done_stays_done, lambda: Told().run(1).done(1).reads_log(2).run(1, 2), "after it was done"),
    (inv.what_is_done_stays_done, lambda: Told().run(1).run(1), "ran twice in driver 1"),
    (inv.batches_are_held_in_order, lambda: Told().holds().run(1, error="away").run(2), "batch 2 began in driver 1 before batch 1"),
    (inv.batches_are_held_in_order, lambda: Told().holds().run(1, finish=False).run(2, 2), "batch 2 began in driver 2 before batch 1"),
    (inv.lifecycle_and_log_agree, lambda: Told().disagrees("the log has batch 1"), "the log has batch 1"),
    (
        inv.a_graceful_stop_leaves_nothing,
        lambda: Told().stops(1, 4, 3),
        "driver 1 stopped gracefully with 2 batches pending, the oldest is 3",
    ),
]


@pytest.mark.parametrize(("check", "told", "words"), BAD, ids=lambda value: getattr(value, "__name__", ""))
def test_a_bad_history_is_told_in_words(check: Callable[[History], list[str]], told: Callable[[], Told], words: str) -> None:
    history = told().history
    (line,) = check(history)
    assert words in line
    assert f"{check.__name__}: {line}" in inv.violations(history)


def test_each_invariant_has_a_bad_history_here() -> None:
    assert {check for check, _, _ in BAD} == {*inv.OUTCOME, *inv.ORDER, *inv.PROGRESS}


def test_a_completion_known_only_after_the_log_was_read_may_be_run_again() -> None:
    assert inv.what_is_done_stays_done(Told().run(1).reads_log(2).done(1).run(1, 2).history) == []
