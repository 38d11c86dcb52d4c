"""The history: what is kept of plans that no restart needs any more."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kstream.batch import BatchOutcome, BatchPlan, InputOutcome
from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Duration, Time
from kstream.checkpoint import PlanLog, history, read_log
from kstream.checkpoint.history import PastBatch, find_past, read_history
from kstream.storage import MemoryFileStore
from tests.harness import World, started
from tests.stores import CountingStore, WrappedStore

LONG = Duration(1_000_000)


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SEGMENT", 3)


@pytest.fixture
def store() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def plan(number: int, epoch: int = 1, void: bool = False) -> BatchPlan:
    at = Time(number * 1000)
    return BatchPlan(at, epoch, f"n{number}", {} if void else {0: {"ranges": [["t", 0, number, number + 1]]}}, {}, at, void=void)


def run(log: PlanLog, numbers: range, counts: bool = True) -> None:
    """Plans and ends these batches, then cleans up."""
    for number in numbers:
        log.write_plan(plan(number, log.epoch))
        log.complete(Time(number * 1000), log.epoch, BatchOutcome(0, {0: InputOutcome([number])} if counts else {}))
    log.clean(RequiredBatches(Time(numbers[-2] * 1000)))


def times(batches: list[PastBatch]) -> list[int]:
    return [b.plan.time.milliseconds // 1000 for b in batches]


def test_old_plans_go_into_the_history_many_to_a_file_and_are_found_there_with_their_counts(store: MemoryFileStore) -> None:
    run(PlanLog(store, 1, keep_history=LONG), range(1, 12))
    assert store.list("history") == [f"{a * 1000:015d}-{(a + 2) * 1000:015d}-000001" for a in (1, 4, 7)]
    assert times(read_history(store)) == list(range(1, 10))
    assert sorted(t.milliseconds // 1000 for t in read_log(store).plans) == [10, 11]
    assert len(store.list("done")) == 2
    [batch] = read_history(store, Time(5000), Time(5000))
    assert batch == PastBatch(plan(5), {0: [5]})


def test_fewer_plans_than_a_segment_wait(store: MemoryFileStore) -> None:
    run(PlanLog(store, 1, keep_history=LONG), range(1, 5))
    assert store.list("history") == [] and len(store.list("plans")) == 4


@pytest.mark.parametrize(("seconds", "oldest"), [(5, 13), (4, 13), (3, 13), (2, 16)])
def test_what_is_older_than_the_history_is_to_reach_back_is_deleted(store: MemoryFileStore, seconds: int, oldest: int) -> None:
    """18 is the newest packed. A segment stays as long as its last batch is to be kept: 13 to 15 up to three seconds."""
    run(PlanLog(store, 1, keep_history=Duration(seconds * 1000)), range(1, 21))
    assert times(read_history(store))[0] == oldest


def test_without_a_history_old_plans_are_gone(store: MemoryFileStore) -> None:
    run(PlanLog(store, 1), range(1, 12))
    assert store.list("history") == [] and len(store.list("plans")) == 2


def test_a_crash_between_the_file_and_the_removals_counts_no_batch_twice(store: MemoryFileStore) -> None:
    first = PlanLog(store, 1, keep_history=LONG)
    run(first, range(1, 5), counts=False)
    history.write_segment(store, 1, [history.read_past(store, plan(n)) for n in (1, 2, 3)])
    second = PlanLog(store, 2, read_log(store), keep_history=LONG)
    run(second, range(5, 9))
    assert times(read_history(store)) == list(range(1, 7))
    assert sorted(t.milliseconds // 1000 for t in read_log(store).plans) == [7, 8]


def test_void_plans_are_not_kept_and_unfinished_ones_are_known_by_the_missing_counts(store: MemoryFileStore) -> None:
    log = PlanLog(store, 1, keep_history=LONG)
    for number in (1, 2, 3):
        log.write_plan(plan(number, void=number == 2))
    log.complete(Time(1000), 1, BatchOutcome(0))
    log.give_up(plan(3), 0, 4)
    run(log, range(4, 9))
    assert [(b.plan.time.milliseconds // 1000, b.counts) for b in read_history(store)][:2] == [(1, {}), (3, None)]


def test_keeping_a_history_costs_one_create_and_one_listing_a_segment(store: MemoryFileStore) -> None:
    counting = CountingStore(store)
    log = PlanLog(counting, 1, keep_history=LONG)
    run(log, range(1, 3))
    counting.take()
    run(log, range(3, 33))
    calls = [(verb, name.split("/")[0]) for verb, name, _ in counting.take()]
    segments = calls.count(("create", "history"))
    assert segments == 10 and calls.count(("list", "history")) == 10
    assert calls.count(("read", "plans")) == calls.count(("read", "done")) == 30


def test_a_stream_keeps_its_history_over_restarts_and_misses_nothing() -> None:
    world = World()
    conf = {"spark.streaming.kstream.history": "1h"}
    for _ in range(3):
        driver = started(world, conf)
        for _ in range(6):
            driver.tick(2)
        driver.stop()
    world.assert_exact()
    kept = times(read_history(world.store)) + sorted(t.milliseconds // 1000 for t in read_log(world.store).plans)
    assert kept == list(range(kept[0], kept[0] + len(kept))) and len(kept) >= 18


def test_one_batch_is_found_in_the_log_and_in_the_history_and_a_tombstone_is_none(store: MemoryFileStore) -> None:
    log = PlanLog(store, 1, keep_history=LONG)
    run(log, range(1, 12))
    log.write_plan(plan(12))
    log.write_plan(plan(13, void=True))
    assert [find_past(store, Time(number * 1000)) for number in (5, 10, 12)] == [
        PastBatch(plan(5), {0: [5]}),
        PastBatch(plan(10), {0: [10]}),
        PastBatch(plan(12), None),
    ]
    assert find_past(store, Time(13_000)) is None and find_past(store, Time(99_000)) is None


def test_of_two_plans_of_a_batch_that_of_the_later_driver_is_found(store: MemoryFileStore) -> None:
    for epoch in (2, 1):
        PlanLog(store, epoch).write_plan(plan(1, epoch))
    found = find_past(store, Time(1000))
    assert found is not None and found.plan.epoch == 2


def test_a_batch_that_clean_up_moves_meanwhile_is_found_in_the_history(store: MemoryFileStore) -> None:
    log = PlanLog(store, 1, keep_history=LONG)
    for number in range(1, 12):
        log.write_plan(plan(number))
        log.complete(Time(number * 1000), 1, BatchOutcome(0, {0: InputOutcome([number])}))
    moved: list[str] = []

    class Moving(WrappedStore):
        def _call(self, verb: str, name: str, action: Callable[[], Any], size: int = 0) -> Any:
            if verb == "read" and not moved:
                moved.append(name)
                log.clean(RequiredBatches(Time(10_000)))
            return action()

    assert find_past(Moving(store), Time(5000)) == PastBatch(plan(5), {0: [5]})
    assert moved == ["plans/000000000005000-000001"] and not store.exists(moved[0])
