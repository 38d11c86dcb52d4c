"""The writing side of the log: what may be removed, and plans whose fate is unknown."""

from __future__ import annotations

import errno
import uuid
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from kstream.batch import BatchOutcome, BatchPlan
from kstream.batch.retention import RequiredBatches, required_batches
from kstream.batch_time import Duration, Time
from kstream.checkpoint import PlanLog, names, read_log
from kstream.checkpoint.outcomes import read_failure
from kstream.errors import AlreadyExistsError, PlanFailedError, StorageError
from kstream.storage import LocalFileStore, MemoryFileStore
from tests.stores import CountingStore, FaultyStore


@pytest.fixture
def store() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def plan(time: int, *, floor: int | None = None) -> BatchPlan:
    data = {0: {"from": time, "until": time + 1}}
    return BatchPlan(Time(time), 1, f"nonce-{time}", data, {}, Time(time if floor is None else floor))


# -- what may be removed


def planned_log(store: MemoryFileStore, times: range) -> PlanLog:
    log = PlanLog(store, 1)
    for time in times:
        log.write_plan(plan(time))
        log.complete(Time(time), 1, BatchOutcome(0))
    return log


def kept(store: MemoryFileStore, folder: str = "plans") -> list[int]:
    return [int(name.split("-")[0]) for name in store.list(folder)]


def test_clean_removes_plans_and_completions_that_no_window_needs(store: MemoryFileStore) -> None:
    """CP13: the files stay few however long a stream runs."""
    log = planned_log(store, range(1000, 11_000, 1000))
    log.clean(required_batches((), Time(10_000), Duration(3000)))
    assert kept(store) == kept(store, "done") == [8000, 9000, 10_000]
    log.clean(required_batches((), Time(10_000), Duration(3000)))
    assert kept(store) == [8000, 9000, 10_000]


def test_a_plan_is_removed_before_its_completion(store: MemoryFileStore) -> None:
    counting = CountingStore(store)
    log = PlanLog(counting, 1)
    for time in range(1000, 5000, 1000):
        log.write_plan(plan(time))
        log.complete(Time(time), 1, BatchOutcome(0))
    counting.take()
    log.clean(RequiredBatches(Time(1000)))
    key = names.key(Time(1000), 1)
    assert [(verb, name) for verb, name, _ in counting.take()] == [("delete", f"plans/{key}"), ("delete", f"done/{key}")]


def test_the_record_of_a_failure_goes_with_its_plan(store: MemoryFileStore) -> None:
    """The batch has failed under this driver, and has succeeded at a later try."""
    log = PlanLog(store, 1)
    for time in range(1000, 6000, 1000):
        log.write_plan(plan(time))
        if time in (1000, 4000):
            log.fail(Time(time), 1, 0, "boom")
        log.complete(Time(time), 1, BatchOutcome(0))
    assert kept(store, "failed") == [1000, 4000]
    log.clean(RequiredBatches(Time(3000)))
    assert kept(store) == [4000, 5000] and kept(store, "failed") == [4000]


def test_clean_keeps_what_an_unfinished_batch_requires(store: MemoryFileStore) -> None:
    log = planned_log(store, range(1000, 11_000, 1000))
    log.clean(required_batches({Time(5000), Time(9000)}, Time(10_000), Duration(2000)))
    assert kept(store) == [4000, 5000, 8000, 9000, 10_000]


def test_clean_keeps_the_newest_two_plans_whatever_is_asked(store: MemoryFileStore) -> None:
    log = planned_log(store, range(1000, 5000, 1000))
    log.clean(RequiredBatches(Time(900_000)))
    assert kept(store) == [3000, 4000]
    restarted = PlanLog(store, 2, read_log(store))
    restarted.clean(RequiredBatches(Time(900_000)))
    assert kept(store) == [3000, 4000]


def test_void_plans_are_not_among_the_newest_two(store: MemoryFileStore) -> None:
    log = planned_log(store, range(1000, 4000, 1000))
    faulty = FaultyStore(store)
    log._store = faulty
    for time in (4000, 5000, 6000):
        faults = iter(["before"])
        faulty.fault = lambda verb, _name, faults=faults: next(faults, None) if verb == "create" else None
        with pytest.raises(PlanFailedError):
            log.write_plan(plan(time))
    log.clean(RequiredBatches(Time(900_000)))
    assert kept(store) == [2000, 3000, 4000, 5000, 6000]


def test_clean_keeps_what_the_newest_floor_does_not_cover(store: MemoryFileStore) -> None:
    log = planned_log(store, range(1000, 5000, 1000))
    log.write_plan(plan(5000, floor=3000))
    log.clean(RequiredBatches(Time(4000)))
    assert kept(store) == [3000, 4000, 5000]


def test_clean_goes_on_where_an_earlier_driver_left_off(store: MemoryFileStore) -> None:
    planned_log(store, range(1000, 5000, 1000))
    log = PlanLog(store, 2, read_log(store))
    log.clean(RequiredBatches(Time(3000)))
    assert kept(store) == [3000, 4000]


def test_a_clean_that_fails_half_way_is_gone_on_with(store: MemoryFileStore) -> None:
    faulty = FaultyStore(store)
    log = PlanLog(faulty, 1)
    for time in range(1000, 6000, 1000):
        log.write_plan(plan(time))
        log.complete(Time(time), 1, BatchOutcome(0))
    faulty.fault = lambda verb, name: "before" if verb == "delete" and name.startswith("done/000000000002000") else None
    with pytest.raises(StorageError):
        log.clean(RequiredBatches(Time(4000)))
    assert read_log(store).pending == []
    faulty.fault = lambda _verb, _name: None
    log.clean(RequiredBatches(Time(4000)))
    assert kept(store) == kept(store, "done") == [4000, 5000]


# -- plans whose fate is unknown


def test_a_plan_that_could_not_be_stored_leaves_a_void_in_its_place(store: MemoryFileStore) -> None:
    faulty = FaultyStore(store)
    log = PlanLog(faulty, 1)
    faults = iter(["before"])
    faulty.fault = lambda verb, _name: next(faults, None) if verb == "create" else None
    with pytest.raises(PlanFailedError, match="next batch"):
        log.write_plan(plan(1000))
    assert log.resolve_in_doubt_plan() is None
    assert read_log(store).plans[Time(1000)].void
    with pytest.raises(AlreadyExistsError):
        store.create(names.plan(Time(1000), 1), b"the late ghost")


def test_a_plan_that_was_stored_and_then_raised_stands(store: MemoryFileStore) -> None:
    faulty = FaultyStore(store)
    log = PlanLog(faulty, 1)
    faults = iter(["after"])
    faulty.fault = lambda verb, _name: next(faults, None) if verb == "create" else None
    log.write_plan(plan(1000))
    assert log.resolve_in_doubt_plan() is None
    assert read_log(store).pending == [Time(1000)]


def test_an_unknown_plan_is_settled_before_anything_else(store: MemoryFileStore) -> None:
    faulty = FaultyStore(store)
    log = PlanLog(faulty, 1)
    faulty.fault = lambda verb, _name: "before" if verb == "create" else None
    with pytest.raises(PlanFailedError):
        log.write_plan(plan(1000))
    for _ in range(3):
        with pytest.raises(StorageError):
            log.resolve_in_doubt_plan()
    faulty.fault = lambda _verb, _name: None
    assert log.resolve_in_doubt_plan() is None
    assert read_log(store).plans[Time(1000)].void


def test_a_late_write_of_an_unknown_plan_is_honoured_when_it_came_first(store: MemoryFileStore) -> None:
    faulty = FaultyStore(store)
    log = PlanLog(faulty, 1)
    faulty.fault = lambda verb, _name: "before" if verb == "create" else None
    late = plan(1000)
    with pytest.raises(PlanFailedError):
        log.write_plan(late)
    faulty.fault = lambda _verb, _name: None
    PlanLog(store, 1).write_plan(late)
    assert log.resolve_in_doubt_plan() == late
    assert log.resolve_in_doubt_plan() is None
    assert not read_log(store).plans[Time(1000)].void


def test_a_foreign_plan_under_the_name_of_an_unknown_one_is_not_taken_for_it(store: MemoryFileStore) -> None:
    faulty = FaultyStore(store)
    log = PlanLog(faulty, 1)
    faulty.fault = lambda verb, _name: "before" if verb == "create" else None
    with pytest.raises(PlanFailedError):
        log.write_plan(plan(1000))
    faulty.fault = lambda _verb, _name: None
    PlanLog(store, 1).write_plan(replace(plan(1000), nonce="another"))
    assert log.resolve_in_doubt_plan() is None


def test_a_completion_that_comes_late_hides_no_newer_plan(store: MemoryFileStore) -> None:
    """CP10: batch 1000 ends when 2000 and 3000 have been planned; both are pending still, and the newest is the last planned."""
    log = PlanLog(store, 1)
    for time in (1000, 2000, 3000):
        log.write_plan(plan(time, floor=1000))
    log.complete(Time(2000), 1, BatchOutcome(0))
    log.complete(Time(1000), 1, BatchOutcome(0))
    contents = read_log(store)
    assert (contents.last_planned, contents.pending, sorted(contents.done)) == (Time(3000), [Time(3000)], [Time(1000), Time(2000)])


def test_only_its_owner_may_read_why_a_batch_has_failed(tmp_path: Path) -> None:
    log = PlanLog(LocalFileStore(tmp_path), 1)
    log.fail(Time(1000), 1, 5, "boom")
    log.complete(Time(2000), 1, BatchOutcome(5))
    (failed,), (done,) = (list((tmp_path / folder).iterdir()) for folder in ("failed", "done"))
    assert failed.stat().st_mode & 0o777 == 0o600 and done.stat().st_mode & 0o044


def test_for_another_user_there_is_no_reason(store: MemoryFileStore) -> None:
    PlanLog(store, 1).fail(Time(1000), 1, 5, "boom")
    name = names.failed(Time(1000), 1, 1)
    found = read_failure(store, name)
    assert found is not None and found.reason == "boom"
    for number, raises in ((errno.EACCES, False), (errno.EIO, True)):
        refusing = FaultyStore(store)

        def fault(_verb: str, name: str, number: int = number) -> None:
            raise StorageError(f"cannot read {name}", path=name, errno=number)

        refusing.fault = fault
        with pytest.raises(StorageError) if raises else nullcontext():
            assert read_failure(refusing, name) is None
