"""Threads that take turns: the order is what `choose` says, waits are simulated, and the dead unwind without an effect."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from kstream.loop import EventLoop, RecurringTimer, WorkerPool
from tests.simulator import SimulationStuckError, strands
from tests.simulator.runtime import SimulatedClock, SimulatedRuntime, Steps
from tests.simulator.strands import Strand, Strands


class World:
    """Strands in an order that a seed decides; time passes when nobody can go on."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.steps = Steps(Strands(self.choose), lambda: self.rng.random() < 0.5, 1000)
        self.runtime = SimulatedRuntime(self.steps, 1)
        self.clock = SimulatedClock(self.steps)
        self.lines: list[str] = []

    def choose(self) -> Strand:
        living = self.steps.strands.living
        if dead := [s for s in living if s.killed]:
            return dead[0]
        ready = [s for s in living if s.ready is None or s.ready() or (s.deadline is not None and s.deadline <= self.steps.monotonic)]
        if not ready:
            self.steps.monotonic = min(s.deadline for s in living if s.deadline is not None)
            return self.choose()
        return self.rng.choice(ready)

    def note(self, line: str) -> None:
        self.lines.append(f"{self.steps.monotonic} {line}")

    def spawn(self, name: str, target: Callable[[], None], owner: int = 1) -> Strand:
        return self.steps.strands.spawn(name, owner, target)

    def finish(self, *strands_: Strand) -> None:
        self.steps.wait(lambda: all(s.done for s in strands_))


def test_only_one_runs_at_a_time_and_each_gets_its_turn() -> None:
    world, inside = World(), []

    def work(name: str) -> None:
        for n in range(20):
            inside.append(name)
            assert len(inside) == 1
            world.note(f"{name}{n}")
            inside.remove(name)
            world.steps.point()

    world.finish(*(world.spawn(name, lambda name=name: work(name)) for name in "abc"))
    assert len(world.lines) == 60
    assert world.lines != sorted(world.lines, key=lambda line: line.split()[1][0])


def test_a_seed_decides_the_order() -> None:
    def told(seed: int) -> list[str]:
        world = World(seed)

        def work(name: str) -> None:
            for n in range(10):
                world.note(f"{name}{n}")
                world.steps.point()

        world.finish(*(world.spawn(name, lambda name=name: work(name)) for name in "abc"))
        return world.lines

    assert told(1) == told(1) != told(2)


def test_sleeping_takes_simulated_time_only() -> None:
    world = World()
    world.steps.sleep(3_600_000)
    assert world.clock.time_ms() == 3_601_000 and world.runtime.monotonic() == 3600


def test_the_products_loop_timer_and_pool_run_on_it() -> None:
    world = World()
    loop: EventLoop[int] = EventLoop("loop", lambda n: world.note(f"event {n}"), lambda e: world.note(str(e)), world.runtime)
    pool = WorkerPool(2, "pool", world.runtime)
    timer = RecurringTimer(world.clock, 100, loop.post, "timer", lambda e: world.note(str(e)), world.runtime)
    loop.start()
    pool.start()
    timer.start(timer.start_time())
    for n in range(3):
        pool.submit(lambda n=n: world.note(f"task {n}"))
    world.steps.sleep(310)
    timer.stop(interrupt=True)
    loop.stop(drain=True)
    assert pool.stop(1.0) and not loop.is_active
    assert [line for line in world.lines if "event" in line] == ["100 event 1100", "200 event 1200", "300 event 1300"]
    assert sorted(line for line in world.lines if "task" in line) == ["0 task 0", "0 task 1", "0 task 2"]


def test_a_lock_may_be_held_by_one_that_pauses() -> None:
    world = World()
    lock = world.runtime.lock()

    def hold(name: str) -> None:
        with lock:
            world.note(f"{name} in")
            world.steps.sleep(10)
            world.note(f"{name} out")

    world.finish(*(world.spawn(name, lambda name=name: hold(name)) for name in "ab"))
    first, second = world.lines[0][2], world.lines[2].split()[1]
    assert world.lines == [f"0 {first} in", f"10 {first} out", f"10 {second} in", f"20 {second} out"]


def test_waiting_for_an_event_ends_with_it_or_with_time() -> None:
    world = World()
    event = world.runtime.event()
    assert not event.wait(0.5) and world.steps.monotonic == 500
    world.spawn("setter", lambda: (world.steps.sleep(20), event.set()))
    assert event.wait(10) and world.steps.monotonic == 520


def test_who_is_killed_does_nothing_more_but_unwind() -> None:
    world = World()

    def work() -> None:
        try:
            world.steps.sleep(100)
            world.note("never")
        finally:
            world.note("unwound")

    begun, fresh = world.spawn("begun", work), world.spawn("fresh", lambda: world.note("never"), owner=2)
    world.steps.sleep(0)
    while begun.worker is None:
        world.steps.strands.pause()
    fresh_began = fresh.worker is not None
    world.steps.strands.kill(1)
    world.finish(begun)
    assert world.lines[-1] == "0 unwound" and fresh_began == ("0 never" in world.lines)


def test_what_a_strand_raises_reaches_the_world() -> None:
    world = World()

    def work() -> None:
        raise ValueError("boom")

    world.spawn("work", work)
    with pytest.raises(ValueError, match="boom"):
        world.steps.sleep(10)


def test_a_strand_that_blocks_for_real_is_an_error_that_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strands, "PATIENCE_S", 0.2)
    world, gate = World(), threading.Event()

    def block_for_real() -> None:
        gate.wait(60)

    world.spawn("work", block_for_real)
    with pytest.raises(SimulationStuckError, match="block_for_real"):
        world.steps.sleep(10)
    gate.set()
