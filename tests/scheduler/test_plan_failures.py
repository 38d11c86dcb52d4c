"""When the store fails: nothing is lost, nothing overlaps, no plan comes back as a ghost."""

from __future__ import annotations

import pytest

from kstream.batch_time import Time
from kstream.checkpoint import names, read_log
from kstream.dstream import TransformedDStream
from kstream.errors import PlanFailedError, StorageError
from kstream.scheduler import missed_batches
from tests.harness import INTERVAL, START, Driver, World, faulty_world, started
from tests.stores import LateStore

FIRST, SECOND, THIRD = (START + n * INTERVAL for n in (1, 2, 3))


def once(verb: str, prefix: str, fault: str) -> object:
    """A fault for the first matching call."""
    left = [fault]
    return lambda v, name: left.pop() if left and v == verb and name.startswith(prefix) else None


def finish(world: World, driver: Driver) -> None:
    driver.stop()
    world.assert_exact()


def test_a_plan_that_could_not_be_stored_moves_no_cursor() -> None:
    world, faulty = faulty_world()
    driver = started(world)
    driver.tick(2)
    faulty.fault = once("create", "plans/", "before")
    driver.tick_only(3)
    driver.wait_error(PlanFailedError)
    assert read_log(faulty.inner).plans[Time(SECOND)].void
    time = driver.tick(1)
    assert world.records_by_time() == {FIRST: (0, 1), time: (2, 3, 4, 5)}
    finish(world, driver)


def test_a_plan_that_was_stored_and_then_raised_stands() -> None:
    world, faulty = faulty_world()
    driver = started(world)
    faulty.fault = once("create", "plans/", "after")
    driver.tick(2)
    driver.tick(1)
    assert world.records_by_time() == {FIRST: (0, 1), SECOND: (2,)}
    assert driver.errors == []
    finish(world, driver)


def test_a_stored_plan_whose_fate_is_learnt_late_runs_first_and_does_not_overlap() -> None:
    world, faulty = faulty_world()
    driver = started(world)
    faults = iter(["after", "before"])
    faulty.fault = lambda verb, name: next(faults, None) if verb == "create" and name.startswith("plans/") else None
    driver.tick_only(2)
    driver.wait_error(PlanFailedError)
    driver.tick(3)
    world.wait(lambda: driver.listener.completed() == [FIRST, SECOND])
    assert world.records_by_time() == {FIRST: (0, 1), SECOND: (2, 3, 4)}
    finish(world, driver)


def test_while_the_fate_of_a_plan_is_unknown_nothing_else_is_planned() -> None:
    world, faulty = faulty_world()
    driver = started(world)
    faulty.fault = lambda verb, name: "before" if verb == "create" else None
    for n in range(4):
        driver.tick_only(1)
        driver.wait_error(PlanFailedError, n + 1)
    assert world.attempts == [] and driver.input.cursor == 0
    faulty.fault = lambda _verb, _name: None
    time = driver.tick(1)
    assert world.records_by_time() == {time: (0, 1, 2, 3, 4)}
    finish(world, driver)


@pytest.mark.parametrize("moment", ["before the next plan", "after the next plan", "long after"])
def test_a_ghost_write_is_void_or_honoured_and_never_both(moment: str) -> None:
    world = World()
    late = LateStore(world.store)
    world.store = late
    driver = started(world)
    driver.tick(1)
    late.down = True
    driver.tick_only(2)
    driver.wait_error(PlanFailedError)
    late.down = False
    if moment == "before the next plan":
        assert late.arrive() == ["stored", "refused"]
        driver.tick(3)
        world.wait(lambda: len(driver.listener.completed()) == 3)
        assert world.records_by_time() == {FIRST: (0,), SECOND: (1, 2), THIRD: (3, 4, 5)}
    else:
        driver.tick(3)
        assert world.records_by_time() == {FIRST: (0,), THIRD: (1, 2, 3, 4, 5)}
        if moment == "long after":  # the void that took its name has been cleaned away, so the ghost finds room
            driver.tick(1)
            world.wait(lambda: not late.exists(names.plan(Time(SECOND), 1)))
            assert late.arrive() == ["stored", "refused"]
        else:
            late.arrive()
    driver.kill()
    again = started(world)
    again.tick(1)
    finish(world, again)
    assert len(world.records_by_time()) == len(world.attempts)


def test_a_ghost_write_that_arrives_after_the_driver_died_is_void_or_honoured() -> None:
    for arrives in ("before the restart", "after the restart"):
        world = World()
        late = LateStore(world.store)
        world.store = late
        driver = started(world)
        late.down = True
        driver.tick_only(2)
        driver.wait_error(PlanFailedError)
        driver.kill()
        late.down = False
        if arrives == "before the restart":
            late.arrive()
        again = started(world)
        again.tick(1)
        late.arrive()
        again.kill()
        last = started(world)
        last.tick(1)
        finish(world, last)


def test_a_full_disk_loses_nothing_and_the_stream_goes_on_by_itself() -> None:
    world, faulty = faulty_world()
    driver = started(world)
    driver.tick(1)
    faulty.fault = lambda verb, _name: "before" if verb in ("create", "replace") else None
    for n in range(3):
        driver.tick_only(2)
        driver.wait_error(PlanFailedError, n + 1)
    assert "No space left" in str(driver.errors[0][1])
    faulty.fault = lambda _verb, _name: None
    driver.tick(1)
    finish(world, driver)
    assert len(driver.errors) == 3


def test_a_completion_that_could_not_be_stored_is_told_and_the_batch_of_a_driver_killed_then_runs_again() -> None:
    """A driver that lives writes it with the next batch: test_completions.py."""
    world, faulty = faulty_world()
    driver = started(world)
    faulty.fault = once("create", "done/", "before")
    driver.tick(2)
    driver.wait_error(StorageError)
    driver.kill()
    again = started(world)
    again.tick(1)
    finish(world, again)
    assert world.times().count(FIRST) == 2


def test_a_probe_that_fails_submits_nothing_and_the_batch_runs_at_a_restart() -> None:
    world, faulty = faulty_world()
    driver = started(world)
    faulty.fault = once("exists", "epoch-", "before")
    driver.tick_only(2)
    driver.wait_error(StorageError)
    assert world.attempts == []
    driver.tick(1)
    driver.stop()
    again = started(world)
    again.tick(1)
    finish(world, again)


def test_a_store_that_dies_while_nothing_can_be_noted_leaves_no_batch_running() -> None:
    """Probe and failure note both fail; a graceful stop must not wait for that batch."""
    world, faulty = faulty_world()
    driver = started(world)
    faulty.fault = lambda verb, name: "before" if verb == "exists" or name.startswith(("failed/", "done/")) else None
    driver.tick_only(2)
    driver.wait_error(StorageError)
    faulty.fault = lambda _verb, _name: None
    driver.tick(1)
    driver.stop(timeout=5)
    again = started(world)
    again.tick(1)
    finish(world, again)


def test_a_tick_without_jobs_whose_completion_is_not_stored_is_told_and_leaves_nothing_running() -> None:
    world, faulty = faulty_world()
    driver = started(world, build=lambda _h, d: d.output(d.input.window(2, 2)))
    faulty.fault = once("create", "done/", "before")
    driver.tick_only(1)
    driver.wait_error(StorageError)
    assert f"batch {FIRST} ms" in driver.messages()[0]
    driver.tick(1)
    assert driver.engine._generator._lifecycle.wait_none_running(5)
    driver.stop()
    again = started(world, build=lambda _h, d: d.output(d.input.window(2, 2)))
    again.stop()
    assert read_log(faulty.inner).pending == [] and world.records_by_time() == {SECOND: (0, 1)}


def test_a_pending_batch_that_fails_again_unnoted_does_not_hold_up_the_missed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed_batches, "GRACE_MS", INTERVAL // 2)
    world, faulty = faulty_world()
    driver = Driver(world)
    driver.before_job = lambda _time: (_ for _ in ()).throw(ValueError("boom"))
    driver.start()
    driver.tick(1)
    driver.stop()
    world.clock.advance(2 * INTERVAL)
    world.produce(1)

    def build(_host: object, driver: Driver) -> None:
        def fail_first(time: Time, rdd: object) -> object:
            if time == Time(FIRST):
                raise ValueError("no graph today")
            return rdd

        driver.output(TransformedDStream([driver.input], fail_first))

    faulty.fault = lambda verb, name: "before" if name.startswith("failed/") else None
    again = started(world, build=build)
    again.settle()
    again.tick(1)
    world.wait(lambda: again.listener.completed() == [SECOND, THIRD, THIRD + INTERVAL])
    assert read_log(faulty.inner).pending == [Time(FIRST)]


def test_old_plans_that_cannot_be_removed_are_removed_later() -> None:
    world, faulty = faulty_world()
    driver = started(world)
    faulty.fault = lambda verb, _name: "before" if verb == "delete" else None
    for _ in range(5):
        driver.tick(1)
    assert len(faulty.inner.list("plans")) == 6
    faulty.fault = lambda _verb, _name: None
    driver.tick(1)
    world.wait(lambda: len(faulty.inner.list("plans")) <= 3)
    assert driver.errors == []


def test_a_first_plan_that_cannot_be_stored_fails_the_start() -> None:
    world, faulty = faulty_world()
    faulty.fault = lambda verb, name: "before" if name.startswith("plans/") else None
    driver = Driver(world)
    with pytest.raises(PlanFailedError):
        driver.start()
    assert faulty.inner.list("plans") == []
    faulty.fault = lambda _verb, _name: None
    again = started(world)
    again.tick(3)
    finish(world, again)


def test_a_pending_batch_whose_rerun_finds_the_store_down_keeps_its_plan_and_lets_the_others_run() -> None:
    """Three batches pending, the first to be given up; the ledger cannot be written: the others run all the same."""
    world, faulty = faulty_world()
    conf = {"spark.streaming.kstream.maxBatchFailures": "1"}
    for _ in range(2):
        driver = Driver(world, conf)
        driver.before_job = lambda time: (_ for _ in ()).throw(ValueError("boom")) if time == FIRST else None
        driver.start()
        if not world.log:
            driver.tick_only(1)
        world.wait(lambda driver=driver: FIRST in driver.listener.completed())
        driver.stop()
    pending = Time(FIRST)
    faulty.fault = lambda verb, name: "before" if name.startswith("given-up/") else None
    world.produce(2)
    world.clock.advance(3 * INTERVAL)
    again = started(world, conf)
    world.wait(lambda: len(again.listener.completed()) == 3)
    again.wait_error(StorageError)
    for _ in range(4):
        again.tick(1)
    again.stop()
    assert read_log(faulty.inner).pending == [pending]
    assert faulty.inner.exists(names.plan(pending, 1))
