"""Assignments: what moves, and what is stored before a task starts."""

from __future__ import annotations

import random
import uuid

import pytest

from kstream.checkpoint import format, names
from kstream.continuous.assignment import Assignment, AssignmentLog, assign, changed_tasks
from kstream.errors import CorruptRecordError, FencedError, StorageError
from kstream.offsets.offset_range import Partition
from kstream.storage import MemoryFileStore
from tests.stores import FaultyStore

STORED = (
    b'{"checksum":"63a340acf40203594cbca3c8c1bbf0755902becc5d525d78cc92fb88bd6ae9de","epoch":2,'
    b'"generation":7,"kind":"assignment","positions":[["orders",0,5],["orders",1,0]],'
    b'"tasks":{"0":[["orders",0]],"3":[["orders",1]]},"version":1}'
)
SEVENTH = Assignment(7, 2, {0: (("orders", 0),), 3: (("orders", 1),)}, {("orders", 0): 5, ("orders", 1): 0})


def store() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def partitions(count: int) -> list[Partition]:
    return [("t", number) for number in range(count)]


def sizes(tasks: dict[int, tuple[Partition, ...]]) -> list[int]:
    return sorted(map(len, tasks.values()))


def test_the_first_assignment_is_even_and_a_task_without_partitions_is_left_out() -> None:
    assert sizes(assign(partitions(7), 3, {})) == [2, 2, 3]
    assert assign(partitions(2), 5, {}) == {0: (("t", 0),), 1: (("t", 1),)}
    assert assign([], 3, {}) == {}


def test_what_is_even_enough_stays_as_it_is() -> None:
    before = {0: (("t", 0),), 1: (("t", 4), ("t", 2)), 2: (("t", 1), ("t", 3))}
    assert changed_tasks({task: tuple(sorted(found)) for task, found in before.items()}, assign(partitions(5), 3, before)) == set()


def test_a_new_partition_changes_one_task_only() -> None:
    before = assign(partitions(7), 3, {})
    after = assign(partitions(8), 3, before)
    assert len(changed_tasks(before, after)) == 1
    assert sizes(after) == [2, 3, 3]


def test_of_a_task_that_is_gone_only_its_partitions_move() -> None:
    before = assign(partitions(8), 4, {})
    after = assign(partitions(8), 3, before)
    assert all(set(before[task]) <= set(after[task]) for task in range(3))
    assert sizes(after) == [2, 3, 3]


def test_a_new_task_gets_its_share_and_no_other_partition_moves() -> None:
    before = assign(partitions(8), 2, {})
    after = assign(partitions(8), 3, before)
    assert sizes(after) == [2, 3, 3]
    assert all(set(after[task]) <= set(before[task]) for task in before)


def test_whatever_changes_each_partition_has_one_task_and_the_least_is_moved() -> None:
    rng, before = random.Random(1), dict[int, tuple[Partition, ...]]()
    for _ in range(300):
        wanted, tasks = rng.sample(partitions(12), rng.randrange(13)), rng.randrange(1, 7)
        after = assign(wanted, tasks, before)
        assert sorted(partition for found in after.values() for partition in found) == sorted(wanted)
        found = [len(after.get(task, ())) for task in range(tasks)]
        assert max(found) - min(found) <= 1
        assert assign(wanted, tasks, after) == after
        before = after


def test_the_bytes_and_the_name_of_an_assignment() -> None:
    files = store()
    assert AssignmentLog(files, 2).store(SEVENTH) is None
    assert files.list("assignments") == ["0000000007"]
    assert files.read("assignments/0000000007") == STORED
    assert AssignmentLog(files, 3).newest() == SEVENTH


def test_the_newest_is_found_by_listing() -> None:
    files = store()
    log = AssignmentLog(files, 1)
    assert log.newest() is None
    for generation in (1, 2, 10, 9):
        log.store(Assignment(generation, 1, {}, {}))
    found = log.newest()
    assert found is not None and found.generation == 10


def test_the_assignment_of_a_later_driver_fences_and_that_of_an_earlier_one_is_told() -> None:
    files = store()
    AssignmentLog(files, 2).store(SEVENTH)
    ours = Assignment(7, 3, {}, {})
    assert AssignmentLog(files, 3).store(ours) == SEVENTH
    with pytest.raises(FencedError) as caught:
        AssignmentLog(files, 1).store(Assignment(7, 1, {}, {}))
    assert (caught.value.facts["epoch"], caught.value.facts["newer_epoch"]) == (1, 2)


def test_a_try_whose_outcome_was_unknown_meets_the_next_one() -> None:
    files = FaultyStore(store())
    log = AssignmentLog(files, 2)
    files.fault = lambda _verb, _name: "after"
    with pytest.raises(StorageError):
        log.store(SEVENTH)
    files.fault = lambda _verb, _name: None
    assert log.store(SEVENTH) is None, "the same one is stored"
    assert log.store(Assignment(7, 2, {}, {})) == SEVENTH, "a changed mind learns of the earlier try"


def test_a_copied_or_damaged_assignment_is_refused() -> None:
    files = store()
    files.create(names.assignment(8), STORED)
    with pytest.raises(CorruptRecordError):
        AssignmentLog(files, 2).newest()
    files.create(names.assignment(9), format.encode("assignment", {"generation": 9, "epoch": 2, "tasks": {"0": 5}, "positions": []}))
    with pytest.raises(CorruptRecordError):
        AssignmentLog(files, 2).newest()
