"""Nothing that the engine holds grows with the number of batches: five thousand on the manual clock, without a JVM."""

from __future__ import annotations

import gc
import threading

from tests.harness import Driver, World, stop_everything

EACH = 500
KEPT = 4  # the newest two plans always stay, each with its completion


def stored(world: World) -> int:
    """The number of records in the checkpoint of all kinds that a batch leaves."""
    return sum(len(world.store.list(folder)) for folder in ("plans", "done", "failed", "lost", "history", "settled"))


def test_after_five_thousand_batches_an_engine_holds_what_it_held_after_a_thousand() -> None:
    gc.collect()
    gc.freeze()  # what earlier tests have left behind is not counted
    try:
        held = held_after_each()
    finally:
        gc.unfreeze()
    objects, threads = zip(*held[1:], strict=True)
    assert min(objects[4:]) - min(objects[:4]) < 4 * EACH / 100, objects
    assert len(set(threads)) == 1, threads


def held_after_each() -> list[tuple[int, int]]:
    """The number of objects and threads after each EACH batches, when the cleaner's thread has deleted all but KEPT records."""
    world = World()
    driver = Driver(world).start()
    held: list[tuple[int, int]] = []
    for number in range(1, 10 * EACH + 1):
        driver.tick(1)
        if number % EACH == 0:
            driver.settle()
            world.wait(lambda: stored(world) == KEPT)
            world.attempts.clear()  # what the harness itself keeps of each batch
            driver.listener.events.clear()
            gc.collect()
            held.append((len(gc.get_objects()), threading.active_count()))
    stop_everything()
    return held
