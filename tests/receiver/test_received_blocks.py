"""What a receiver stores, in blocks, until nobody needs it."""

from __future__ import annotations

import threading

import pytest

from kstream.errors import IllegalStateError
from kstream.receiver import ReceivedBlocks
from kstream.testing import ManualClock


def test_ten_threads_that_store_a_thousand_records_each_lose_none() -> None:
    """IS7."""
    blocks = ReceivedBlocks(0, ManualClock(0), 200)
    together = threading.Barrier(11)

    def store(thread: int) -> None:
        together.wait(30)
        for number in range(1000):
            blocks.add((thread, number))

    threads = [threading.Thread(target=store, args=(thread,)) for thread in range(10)]
    for thread in threads:
        thread.start()
    together.wait(30)
    counted = 0
    while any(thread.is_alive() for thread in threads):  # batches are planned meanwhile
        taken = blocks.waiting()
        blocks.take(name for name, _ in taken)
        counted += sum(count for _, count in taken)
    counted += sum(count for _, count in blocks.waiting())
    assert counted == 10_000
    records = {record for block in blocks._blocks.values() for record in block}
    assert len(records) == 10_000


def test_a_block_is_what_came_in_one_interval_of_the_clock() -> None:
    clock = ManualClock(1000)
    blocks = ReceivedBlocks(0, clock, 200)
    for step in (0, 50, 149, 1, 600):
        clock.advance(step)
        blocks.add(clock.time_ms())
    assert [blocks.get(name) for name, _ in blocks.waiting()] == [[1000, 1050, 1199], [1200], [1800]]


def test_many_records_stored_at_once_are_a_block_of_their_own_in_their_place() -> None:
    blocks = ReceivedBlocks(0, ManualClock(0), 200)
    blocks.add(1)
    blocks.add_all(iter([2, 3]))
    blocks.add_all([])
    blocks.add(4)
    assert [blocks.get(name) for name, _ in blocks.waiting()] == [[1], [2, 3], [4]]


def test_a_block_is_taken_once_and_kept_until_it_is_removed() -> None:
    blocks = ReceivedBlocks(0, ManualClock(0), 200)
    blocks.add("a")
    ((name, count),) = blocks.waiting()
    assert count == 1 and blocks.waiting() == [(name, 1)]
    blocks.take([name])
    assert blocks.waiting() == [] and blocks.get(name) == ["a"] and len(blocks) == 1
    blocks.remove([name])
    assert blocks.get(name) is None and len(blocks) == 0


def test_blocks_of_two_drivers_never_have_the_same_name() -> None:
    names: set[str] = set()
    for _ in range(3):
        blocks = ReceivedBlocks(7, ManualClock(0), 200)
        blocks.add(1)
        names.update(name for name, _ in blocks.waiting())
    assert len(names) == 3 and all(name.startswith("input-7-") for name in names)


def test_nothing_is_stored_after_the_end() -> None:
    blocks = ReceivedBlocks(0, ManualClock(0), 200)
    blocks.add(1)
    blocks.close()
    for call in (lambda: blocks.add(2), lambda: blocks.add_all([2])):
        with pytest.raises(IllegalStateError, match="has stopped"):
            call()
    assert [count for _, count in blocks.waiting()] == [1]
