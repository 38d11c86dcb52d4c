"""`kstream skip` in a job with state: a state that could not be computed is made again, and one that has the record keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstream.batch_time import Duration
from kstream.checkpoint.history import read_ledger
from tests.fakes import FakeStateDStream
from tests.harness import INTERVAL, START, Driver, World
from tests.scheduler.retries import fails, passes
from tests.skipping import PoisonError, SkippingInput, left_out, skip

RETRIES = {"spark.streaming.kstream.batch.retries": "5"}
FIRST, SECOND = START + INTERVAL, START + 2 * INTERVAL
BAD = 2


class Totals(FakeStateDStream):
    """As the totals of a window with an inverse: a later batch takes out what an earlier one has taken in."""

    takes_out = True


def with_state(world: World, kind: type[FakeStateDStream], conf: dict[str, str] | None = None) -> Driver:
    """A driver, not started, with an output of its input and one of a state, which is written after each batch."""

    def build(host: Any, driver: Driver) -> None:
        host.graph._inputs.remove(driver.input)
        driver.input = SkippingInput(host, world.log)
        state = kind(driver.input, Duration(INTERVAL))
        state.set_checkpoint_interval(Duration(INTERVAL))
        driver.output(driver.input)
        driver.output(state)

    return Driver(world, conf or RETRIES, build=build)


def once(driver: Driver) -> Callable[[int], None]:
    """An output that fails in its first attempt only: the state has nothing to do with it."""
    calls: list[int] = []

    def fail(time: int) -> None:
        calls.append(time)
        if len(calls) == 1:
            raise PoisonError(f"batch {time}")

    driver.before_job = fail
    return fail


def records(world: World, time: int) -> list[tuple[Any, ...]]:
    return [a.records for a in world.attempts if a.time == time and a.finished]


def test_a_state_that_fails_on_the_record_is_made_again_without_it_and_later_batches_go_on_from_that() -> None:
    world = World()
    driver = with_state(world, FakeStateDStream)

    def meet(state: Any) -> None:
        if BAD in state.records:
            raise PoisonError("in the state")

    driver.host.state_rdds.compute = meet  # pyright: ignore[reportAttributeAccessIssue]
    driver.before_job = lambda time: meet(world.attempts[-1])
    driver.start()
    fails(driver, 4)
    driver.tick_only(1)
    driver.settle()
    skip(world.store, BAD)
    passes(driver, 2_000)
    world.wait(lambda: len(records(world, SECOND)) == 2)
    assert records(world, FIRST) == [(0, 1, 3), (0, 1, 3)]
    assert records(world, SECOND) == [(4,), (0, 1, 3, 4)]
    assert left_out(world.store) == [(FIRST, BAD)]


def test_a_state_that_was_computed_with_the_record_keeps_it() -> None:
    world = World()
    driver = with_state(world, FakeStateDStream)
    once(driver)
    driver.start()
    fails(driver, 4)
    skip(world.store, BAD)
    passes(driver, 1_000)
    assert records(world, FIRST) == [(0, 1, 2, 3), (0, 1, 3)], "the state's output, and then that of the input"
    world.wait(lambda: len(records(world, SECOND)) == 2)
    assert records(world, SECOND)[1] == (0, 1, 2, 3)
    assert left_out(world.store) == [(FIRST, BAD)]


def test_totals_that_have_taken_the_record_in_take_it_out_so_the_batch_runs_with_it(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    driver = with_state(world, Totals)
    once(driver)
    driver.start()
    fails(driver, 4)
    skip(world.store, BAD)
    passes(driver, 1_000)
    assert records(world, FIRST) == [(0, 1, 2, 3), (0, 1, 2, 3)] and left_out(world.store) == []
    assert [entry.kind for entry in read_ledger(world.store)] == ["not-skipped"]
    assert "the totals of a window have it already" in caplog.text


def test_so_do_totals_that_a_restart_begins_with() -> None:
    world = World()
    driver = with_state(world, Totals, {"spark.streaming.kstream.history": "1h"})
    once(driver)
    driver.start()
    driver.tick(4)
    driver.wait_error(PoisonError)
    driver.tick(1)
    driver.kill()
    skip(world.store, BAD)
    again = with_state(world, Totals, {"spark.streaming.kstream.history": "1h"}).start()
    again.settle()
    assert (0, 1, 2, 3) in records(world, FIRST) and (0, 1, 3) not in records(world, FIRST)
    assert left_out(world.store) == []
