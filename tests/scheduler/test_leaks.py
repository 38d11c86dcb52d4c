"""Nothing that the engine holds grows with the number of batches: five thousand on the manual clock, without a JVM."""

from __future__ import annotations

import gc
import threading

from tests.harness import Driver, World, stop_everything

EACH = 500


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
    objects, threads, records = zip(*held[1:], strict=True)
    assert min(objects[4:]) - min(objects[:4]) < 4 * EACH / 100, objects
    assert len(set(threads)) == 1 and max(records) - min(records) <= 2, (threads, records)


def held_after_each() -> list[tuple[int, int, int]]:
    """The number of objects, threads and stored records after each EACH batches."""
    world = World()
    driver = Driver(world).start()
    held: list[tuple[int, int, int]] = []
    for number in range(1, 10 * EACH + 1):
        driver.tick(1)
        if number % EACH == 0:
            driver.settle()
            world.attempts.clear()  # what the harness itself keeps of each batch
            driver.listener.events.clear()
            gc.collect()
            held.append((len(gc.get_objects()), threading.active_count(), stored(world)))
    stop_everything()
    return held
