"""One writer: a driver that was stopped and comes back submits nothing once another has taken over."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kstream import crash_point
from kstream.batch import Batch, JobSet
from kstream.batch_time import Time
from kstream.checkpoint import read_log
from kstream.errors import FencedError, IntervalChangedError
from tests.harness import INTERVAL, START, Driver, Stopper, World, started

FIRST, SECOND, THIRD = (START + n * INTERVAL for n in (1, 2, 3))


@pytest.mark.parametrize("point", [crash_point.BEFORE_PLAN, crash_point.PLAN_DURABLE])
@pytest.mark.parametrize("clean_rounds", [0, 6])
def test_a_driver_stopped_around_its_plan_submits_no_job_after_a_takeover(point: str, clean_rounds: int) -> None:
    world = World()
    a = started(world)
    a.tick(2)
    stopper = Stopper(point)
    a.tick_only(3)
    assert stopper.reached.wait(20)
    b = started(world)
    b.tick(4)
    for _ in range(clean_rounds):
        b.tick(1)
    plans_of_b = {t: p for t, p in read_log(world.store).plans.items() if p.epoch == 2}
    stopper.go_on()
    world.wait(lambda: a.fenced)
    assert isinstance(a.fenced[0], FencedError)
    assert a.input.services.is_fenced() and not b.input.services.is_fenced()
    stands = read_log(world.store).plans
    assert all(stands.get(t, plan) == plan for t, plan in plans_of_b.items())
    b.tick(1)
    a.kill()
    b.stop()
    assert {attempt.time for attempt in world.attempts if attempt.driver == a.number} == {FIRST}
    c = started(world)
    c.tick(1)
    c.stop()
    world.assert_exact()
    assert len(world.times()) == len(set(world.times()))


def test_a_fenced_driver_plans_and_submits_nothing_more() -> None:
    world = World()
    a = started(world)
    a.tick(1)
    b = started(world)
    world.produce(2)
    a.tick_only()
    world.wait(lambda: a.fenced and SECOND in b.listener.completed())
    mine = plans_of(world, 1)
    for _ in range(3):
        world.produce(1)
        a.tick_only()
        world.wait(lambda: world.clock.time_ms() in b.listener.completed())
    assert plans_of(world, 1) <= mine
    assert len(a.fenced) == 1
    a.kill()
    b.stop()
    world.assert_exact()
    assert {x.time for x in world.attempts if x.driver == a.number} == {FIRST}


def plans_of(world: World, epoch: int) -> set[str]:
    return {name for name in world.store.list("plans") if name.endswith(f"-{epoch:06d}")}


def test_two_drivers_that_start_at_once_take_different_epochs_and_only_one_goes_on() -> None:
    world = World()
    world.produce(5)
    drivers = [Driver(world) for _ in range(2)]
    barrier = threading.Barrier(2)

    def start(driver: Driver) -> None:
        barrier.wait(20)
        driver.start()

    threads = [threading.Thread(target=start, args=(driver,)) for driver in drivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert world.store.list() == ["epoch-1", "epoch-2", "meta"]
    drivers[0].tick_only()
    world.wait(lambda: sum(bool(d.fenced) for d in drivers) == 1 and any(d.listener.completed() for d in drivers))
    (winner,) = (d for d in drivers if not d.fenced)
    (loser,) = (d for d in drivers if d.fenced)
    assert loser.listener.completed() == []
    loser.kill()
    winner.tick(2)
    winner.stop()
    world.assert_exact()
    last = started(world)
    last.tick(1)
    last.stop()
    world.assert_exact()


def another_takes_over_and_the_first_runs_nothing_more(world: World, a: Driver, waited: int, gate: threading.Event) -> None:
    """While driver `a` stands still before its second batch, another one runs this batch; then `gate` lets `a` go on."""
    assert a.engine._generator._timer.stop(interrupt=True) == SECOND
    b = started(world)
    world.clock.wait_for_waiters()
    world.clock.advance(waited)
    world.wait(lambda: SECOND in b.listener.completed())
    gate.set()
    a.wait_error(FencedError)
    a.stop(graceful=False, timeout=1)
    assert [x.time for x in world.attempts if x.driver == a.number] == [FIRST]
    b.stop()
    world.assert_exact()


@pytest.mark.parametrize("waited", [INTERVAL + 1, 10 * INTERVAL])
def test_a_queued_job_of_a_stopped_driver_does_not_start_after_a_takeover(waited: int) -> None:
    world = World()
    a = Driver(world)
    gate = threading.Event()
    a.before_job = lambda time: gate.wait(30) if time == FIRST else None
    a.start()
    a.tick_only(1)
    a.tick_only(1)
    world.wait(lambda: len(a.listener.named("onBatchSubmitted")) == 2)
    world.clock.wait_for_waiters()
    another_takes_over_and_the_first_runs_nothing_more(world, a, waited, gate)


def test_a_job_of_a_driver_that_was_stopped_between_its_probe_and_its_submission_does_not_start_after_a_takeover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    a = started(world)
    a.tick(1)
    submitter, reached, gate = a.engine._generator._submitter, threading.Event(), threading.Event()
    leave_out = submitter._leave_out

    def stopped(batch: Batch, failed: JobSet | None) -> None:
        reached.set()
        assert gate.wait(30)
        leave_out(batch, failed)

    monkeypatch.setattr(submitter, "_leave_out", stopped)
    a.tick_only(1)
    assert reached.wait(20)
    another_takes_over_and_the_first_runs_nothing_more(world, a, INTERVAL + 1, gate)


def test_a_fenced_driver_that_comes_back_much_later_disturbs_nobody() -> None:
    """Its stray plan is for a time whose real plan has been cleaned away meanwhile."""
    world = World()
    a = started(world)
    a.tick(1)
    stopper = Stopper(crash_point.BEFORE_PLAN)
    a.tick_only(2)
    assert stopper.reached.wait(20)
    b = started(world)
    for _ in range(8):
        b.tick(1)
    world.wait(lambda: not any(name.startswith(f"{SECOND:015d}") for name in world.store.list("plans")))
    stopper.go_on()
    world.wait(lambda: a.fenced)
    stray = f"plans/{SECOND:015d}-000001"
    assert world.store.exists(stray)
    a.kill()
    b.kill()
    c = started(world)
    assert not world.store.exists(stray)
    c.tick(1)
    c.stop()
    world.assert_exact()


def test_a_stray_plan_is_ignored_when_its_successors_failed_to_plan_that_time() -> None:
    """B is pending on the first batch and could not plan the second; A's stray for the second must not run."""
    world = World()
    a = Driver(world)
    gate = threading.Event()
    a.before_job = lambda _time: gate.wait(30)
    a.start()
    a.tick_only(1)
    world.wait(lambda: world.attempts)
    stopper = Stopper(crash_point.BEFORE_PLAN)
    a.tick_only(2)
    assert stopper.reached.wait(20)
    b = Driver(world)
    b.before_job = lambda _time: gate.wait(30)
    b.input.before_plan = failing_at(SECOND)
    b.start()
    b.wait_error(ConnectionError)
    b.tick_only(1)
    world.wait(lambda: Time(THIRD) in read_log(world.store).plans)
    stopper.go_on()
    world.wait(lambda: a.fenced)
    a.die()
    b.die()
    gate.set()
    a.kill()
    b.kill()
    assert world.store.exists(f"plans/{SECOND:015d}-000001")
    c = started(world)
    c.tick(1)
    c.stop()
    world.assert_exact()


def failing_at(time_ms: int) -> Callable[[Time], None]:
    def before_plan(time: Time) -> None:
        if time.milliseconds == time_ms:
            raise ConnectionError("no broker")

    return before_plan


def test_a_driver_with_another_interval_is_refused_and_fences_nobody() -> None:
    world = World()
    a = started(world)
    a.tick(1)
    with pytest.raises(IntervalChangedError) as caught:
        Driver(world, interval_ms=2000).start()
    assert (caught.value.facts["stored_ms"], caught.value.facts["given_ms"]) == (1000, 2000)
    assert world.store.list() == ["epoch-1", "meta"]
    a.tick(1)
    assert a.fenced == []
