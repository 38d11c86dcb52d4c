"""A skip under kill -9, of the driver and of the command, at every moment: that record and no other is left out, and the ledger is right.

Kills are items of the input: before and after each write to the store, and at each crash point.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kstream import crash_point
from kstream.batch_time import Time
from kstream.checkpoint import read_log
from kstream.errors import StorageError
from tests.harness import INTERVAL, START, Driver, Killed, World
from tests.skipping import left_out, poisoned, skip, written
from tests.stores import SteppingStore

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

FIRST = START + INTERVAL
BAD = 2
"""The record that is skipped: one of the four of the first batch."""
LIVES = 12


class Story:
    """A batch with a record that is skipped at a moment; the driver is killed at another, and started again until the batch has ended."""

    def __init__(self, kill: Callable[[str], bool], asked: str, poison: tuple[int, ...]) -> None:
        self.world = World()
        self.store = SteppingStore(self.world.store, lambda verb, name, done: self.reach(f"{'after' if done else 'before'} {verb} {name}"))
        self.kill, self.asked, self.poison = kill, asked, poison
        self.deaths = 0
        self.is_asked = False
        self.driver: Driver | None = None
        crash_point.install(self.reach)

    def reach(self, moment: str) -> None:
        driver = self.driver
        if driver is None or not driver.alive:
            return
        if self.asked in moment and not self.is_asked and self.bad_batch() is not None:
            self.is_asked = True
            skip(self.world.store, BAD)
        if self.kill(moment):
            self.deaths += 1
            driver.die()
            raise Killed(moment)

    def start(self) -> None:
        self.driver = poisoned(self.world, *self.poison, conf={"spark.streaming.kstream.history": "1h"}, store=self.store)
        try:
            self.driver.start()
        except Killed:
            return
        except Exception:
            assert not self.driver.alive

    def run(self) -> World:
        """Lives of the driver, until both batches have ended."""
        self.world.produce(4)
        for _ in range(LIVES):
            self.start()
            driver = self.driver
            assert driver is not None
            if driver.alive and self.bad_batch() is None:
                driver.tick_only(0)
            self.world.wait(lambda driver=driver: not driver.alive or self.is_over() or driver.errors)
            driver.kill()
            if self.is_over():
                return self.world
            self.world.clock.advance(INTERVAL * (self.deaths % 2))
        raise AssertionError(f"not over after {LIVES} lives")

    def bad_batch(self) -> Time | None:
        """The batch that has the record; None before it is planned."""
        plans = read_log(self.world.store).plans.values()
        return next((plan.time for plan in plans if 0 in plan.inputs and plan.inputs[0]["from"] <= BAD < plan.inputs[0]["until"]), None)

    def is_over(self) -> bool:
        contents = read_log(self.world.store)
        return self.bad_batch() in contents.done and contents.pending == []


def check(story: Story) -> None:
    """That record and no other is left out, by the outputs as by the ledger."""
    world = story.run()
    found = [record for time in sorted(written(world)) for record in written(world)[time]]
    batch = story.bad_batch()
    assert batch is not None
    asked_in_time = [(batch.milliseconds, BAD)] if BAD not in found else []
    assert left_out(world.store) == asked_in_time
    assert sorted(found) == [record for record in world.log if record != BAD or not asked_in_time]
    assert len(found) == len(set(found))
    contents = read_log(world.store)
    assert contents.plans[batch].inputs[0] == {"kind": "json", "from": 0, "until": 4}, "the ranges have not moved"
    if story.poison:
        assert asked_in_time


ASKED = ["after create plans", "running", "after create failed"]
"""Before the batch runs, while it runs, after it has failed."""


@pytest.mark.parametrize("asked", ASKED)
def test_a_driver_killed_at_every_single_moment_leaves_out_the_poison_record_and_no_other(asked: str) -> None:
    for target in range(1, 100):
        seen = iter(range(1, 1_000_000))
        story = Story(lambda _moment, seen=seen, target=target: next(seen) == target, asked, (BAD,))
        check(story)
        if story.deaths == 0:
            break
    # How many moments a life has depends on which of its threads is first, by a few.
    assert story.deaths == 0 and target > 20, f"{target - 1} kills"


@pytest.mark.parametrize("asked", ["after create plans", "running", "job-done", "before create done", "after create done"])
def test_a_record_that_is_no_poison_is_left_out_or_not_and_the_ledger_says_which(asked: str) -> None:
    """The batch may end with the record before the driver hears of the request. After a kill it does not."""
    for target in range(1, 26):
        seen = iter(range(1, 1_000_000))
        check(Story(lambda _moment, seen=seen, target=target: next(seen) == target, asked, ()))


def test_kills_again_and_again_around_the_end_of_the_batch() -> None:
    moments = ["running", "job-done", "before create lost", "after create lost", "before create done", "after create done"]
    left = list(moments)

    def kill(moment: str) -> bool:
        if left and left[0] in moment:
            left.pop(0)
            return True
        return False

    story = Story(kill, "running", (BAD,))
    check(story)
    assert story.deaths == len(moments) and left == []


@pytest.mark.parametrize("after", [False, True])
def test_a_command_that_is_killed_has_asked_or_has_not_and_may_ask_again(after: bool) -> None:
    world = World()
    driver = poisoned(world, BAD).start()
    driver.tick(4)
    driver.kill()

    def die(_verb: str, _name: str, done: bool) -> None:
        if done is after:
            raise StorageError("killed", path="")

    with pytest.raises(StorageError):
        skip(SteppingStore(world.store, die), BAD)  # pyright: ignore[reportArgumentType]
    assert len(world.store.list("skipped")) == int(after)
    first = skip(world.store, BAD, at_ms=6)
    assert first.at_ms == (5 if after else 6) and len(world.store.list("skipped")) == 1
    again = poisoned(world, BAD).start()
    again.settle()
    assert written(world)[FIRST] == (0, 1, 3) and left_out(world.store) == [(FIRST, BAD)]
