"""What a new writer found and runs stays what it is, whatever fenced drivers of epochs in between still write."""

from __future__ import annotations

import uuid

import pytest

from kstream.batch import BatchOutcome, BatchPlan
from kstream.batch_time import Time
from kstream.checkpoint import PlanLog, read_log
from kstream.checkpoint.reader import delete_superseded, record_takeover
from kstream.storage import MemoryFileStore
from tests.stores import FaultyStore

ADOPTED_BYTES = (
    b'{"checksum":"b22a973dab19f8ef6e8e64d6a254e63a9ea3108cbdc3769aea32350e5378b3b4","epoch":6,"kind":"adopted",'
    b'"plans":[[1000,4],[2000,4]],"version":1}'
)


@pytest.fixture
def store() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def write(store: MemoryFileStore, time: int, epoch: int, done: bool = False, after: int = 0) -> None:
    log = PlanLog(store, epoch)
    log.write_plan(BatchPlan(Time(time), epoch, f"{time}-{epoch}", {0: {"by": epoch}}, {}, Time(1000), Time(after)))
    if done:
        log.complete(Time(time), epoch, BatchOutcome(0))


def standing(store: MemoryFileStore) -> dict[int, int]:
    return {time.milliseconds: plan.epoch for time, plan in read_log(store).plans.items()}


def test_a_pending_plan_that_was_adopted_stands_against_a_late_one_of_an_epoch_in_between(store: MemoryFileStore) -> None:
    """Epoch 4's plan is found and run by epoch 6; epoch 5, fenced by it, then writes one of its own for the same time."""
    write(store, 1000, 4, done=True)
    write(store, 2000, 4)
    record_takeover(store, read_log(store), 6)
    PlanLog(store, 6).complete(Time(2000), 4, BatchOutcome(0))
    write(store, 2000, 5)
    contents = read_log(store)
    assert standing(store) == {1000: 4, 2000: 4}
    assert contents.pending == [] and contents.superseded == ((Time(2000), 5),)


def test_a_late_plan_for_a_later_time_is_a_stray_too(store: MemoryFileStore) -> None:
    write(store, 2000, 4)
    record_takeover(store, read_log(store), 6)
    write(store, 3000, 5)
    assert standing(store) == {2000: 4}
    write(store, 3000, 6, after=2000)
    assert standing(store) == {2000: 4, 3000: 6}


def test_nothing_is_stored_where_no_epoch_lies_in_between(store: MemoryFileStore) -> None:
    write(store, 1000, 1, done=True)
    write(store, 2000, 5)
    record_takeover(store, read_log(store), 6)
    assert store.list("adopted") == []


def test_nothing_is_stored_where_nothing_is_pending(store: MemoryFileStore) -> None:
    write(store, 1000, 1, done=True)
    record_takeover(store, read_log(store), 6)
    assert store.list("adopted") == []


def test_the_bytes_and_the_name_of_what_was_adopted(store: MemoryFileStore) -> None:
    write(store, 1000, 4, done=True)
    write(store, 2000, 4)
    record_takeover(store, read_log(store), 6)
    assert store.list("adopted") == ["000006"]
    assert store.read("adopted/000006") == ADOPTED_BYTES


def test_the_newest_adoption_counts_and_older_ones_go(store: MemoryFileStore) -> None:
    write(store, 2000, 4)
    record_takeover(store, read_log(store), 6)
    write(store, 2000, 5)
    record_takeover(store, read_log(store), 8)
    write(store, 2000, 7)
    assert store.list("adopted") == ["000008"]
    assert standing(store) == {2000: 4}
    contents = read_log(store)
    delete_superseded(store, contents, 9)
    assert store.list("plans") == ["000000000002000-000004"]


def test_an_adoption_whose_client_tried_twice_is_one(store: MemoryFileStore) -> None:
    write(store, 2000, 4)
    contents = read_log(store)
    record_takeover(store, contents, 6)
    record_takeover(store, contents, 6)
    assert store.list("adopted") == ["000006"]


def test_an_adoption_that_is_not_stored_fails_the_start(store: MemoryFileStore) -> None:
    write(store, 2000, 4)
    faulty = FaultyStore(store)
    faulty.fault = lambda verb, name: "before" if verb == "create" else None
    with pytest.raises(Exception, match="adopted/000006"):
        record_takeover(faulty, read_log(store), 6)


def test_a_log_of_void_plans_has_not_begun(store: MemoryFileStore) -> None:
    assert not read_log(store).has_begun
    PlanLog(store, 1).write_plan(BatchPlan(Time(1000), 1, "n", {}, {}, Time(1000), void=True))
    assert not read_log(store).has_begun
    write(store, 1000, 2)
    assert read_log(store).has_begun
