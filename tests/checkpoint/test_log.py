"""Which plans stand, which are strays of fenced drivers, and what may be removed."""

from __future__ import annotations

import threading
import uuid

import pytest

from kstream.batch import BatchOutcome, BatchPlan
from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, names, read_log, take_epoch
from kstream.checkpoint.offline import forget_batch
from kstream.checkpoint.plan_log import newest_epoch, probe
from kstream.checkpoint.reader import delete_superseded, has_checkpoint, select_current_plans, write_meta
from kstream.errors import AlreadyExistsError, FencedError, MissingFileError
from kstream.storage import MemoryFileStore
from tests.stores import FaultyStore, WrappedStore

SECOND = Duration(1000)


@pytest.fixture
def store() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def plan(time: int, epoch: int = 1, *, floor: int | None = None, after: int = 0, void: bool = False) -> BatchPlan:
    data = {} if void else {0: {"from": time, "until": time + 1}}
    floor_time = Time(time if floor is None else floor)
    return BatchPlan(Time(time), epoch, f"nonce-{time}-{epoch}", data, {}, floor_time, Time(after), void)


def write(store: MemoryFileStore, *plans: BatchPlan, done: bool = True) -> None:
    for each in plans:
        log = PlanLog(store, each.epoch)
        log.write_plan(each)
        if done and not each.void:
            log.complete(each.time, each.epoch, BatchOutcome(0))


def keys(*pairs: tuple[int, int]) -> list[tuple[Time, int]]:
    return [(Time(time), epoch) for time, epoch in pairs]


# -- which plan stands


def test_of_two_plans_for_one_time_the_one_of_the_higher_epoch_stands() -> None:
    best, superseded = select_current_plans(keys((1, 1), (2, 1), (2, 2), (3, 2)))
    assert best == dict(keys((1, 1), (2, 2), (3, 2)))
    assert superseded == keys((2, 1))


def test_a_plan_of_an_older_epoch_after_one_of_a_newer_does_not_stand() -> None:
    best, superseded = select_current_plans(keys((1, 1), (2, 2), (3, 1), (4, 2), (5, 1)))
    assert best == dict(keys((1, 1), (2, 2), (4, 2)))
    assert superseded == keys((3, 1), (5, 1))


def test_the_order_of_a_listing_does_not_matter() -> None:
    """Spark behaviour CP11."""
    pairs = keys((3, 1), (2, 2), (1, 1), (4, 2))
    assert select_current_plans(pairs) == select_current_plans(reversed(pairs))


def test_nothing_stands_in_an_empty_log(store: MemoryFileStore) -> None:
    contents = read_log(store)
    assert (contents.plans, contents.pending, contents.last_planned, contents.meta) == ({}, [], None, None)
    assert not has_checkpoint(store)


def test_planned_and_not_done_is_pending_oldest_first(store: MemoryFileStore) -> None:
    write(store, plan(1000))
    write(store, plan(3000, floor=2000), plan(2000), done=False)
    contents = read_log(store)
    assert contents.pending == [Time(2000), Time(3000)]
    assert contents.done == {Time(1000)}
    assert contents.last_planned == Time(3000)


def test_a_void_plan_is_never_pending_but_counts_as_planned(store: MemoryFileStore) -> None:
    write(store, plan(1000), plan(2000, void=True))
    contents = read_log(store)
    assert contents.pending == [] and contents.last_planned == Time(2000)
    assert contents.newest_data(0) == (Time(1000), {"from": 1000, "until": 1001})


def test_failures_are_counted_by_drivers_and_the_ledger_ends_them(store: MemoryFileStore) -> None:
    write(store, plan(1000), done=False)
    for epoch in (1, 2, 2, 3):
        PlanLog(store, epoch).fail(Time(1000), 1, 0, "boom")
    assert read_log(store).failures == {Time(1000): 3}
    assert read_log(store).pending == [Time(1000)]
    PlanLog(store, 4).give_up(plan(1000), 0, 3)
    assert read_log(store).pending == [] and read_log(store).given_up == {Time(1000)}


def test_a_stray_plan_beside_its_successor_is_superseded(store: MemoryFileStore) -> None:
    write(store, plan(1000), plan(2000, 2, after=1000))
    write(store, plan(2000, 1), done=False)
    contents = read_log(store)
    assert contents.pending == [] and contents.plans[Time(2000)].epoch == 2
    assert contents.superseded == ((Time(2000), 1),)


def test_a_stray_plan_is_ignored_also_after_its_successor_was_cleaned_away(store: MemoryFileStore) -> None:
    """B planned 2000 while 2000 … 4000 were unfinished, finished and cleaned them; A's stray for 2000 comes to light."""
    write(store, plan(1000), plan(2000, 1), done=False)
    log = PlanLog(store, 2, read_log(store))
    for time in (3000, 4000, 5000):
        log.write_plan(plan(time, 2, floor=3000, after=2000))
    for time in (1000, 2000):
        log.complete(Time(time), 1, BatchOutcome(0))
    for time in (3000, 4000, 5000):
        log.complete(Time(time), 2, BatchOutcome(0))
    write(store, plan(3000, 1), plan(4000, 1), done=False)
    log.clean(RequiredBatches(Time(4000)))
    contents = read_log(store)
    assert contents.pending == []
    assert contents.plans[Time(5000)].epoch == 2


def test_a_stray_plan_for_a_time_its_successor_left_out_is_ignored(store: MemoryFileStore) -> None:
    """B could not plan 2000 (its input failed) and went on with 3000, while 1000 was still unfinished."""
    write(store, plan(1000), done=False)
    write(store, plan(3000, 2, floor=1000, after=1000), done=False)
    write(store, plan(2000, 1, floor=1000), done=False)
    contents = read_log(store)
    assert contents.pending == [Time(1000), Time(3000)]
    assert (Time(2000), 1) in contents.superseded


def test_a_plan_that_its_successor_knew_stands(store: MemoryFileStore) -> None:
    write(store, plan(1000, 1), plan(2000, 1, floor=1000), plan(3000, 2, floor=1000, after=2000), done=False)
    assert read_log(store).pending == [Time(1000), Time(2000), Time(3000)]


def test_a_stray_plan_older_than_the_floor_is_ignored(store: MemoryFileStore) -> None:
    write(store, plan(2000, 1, floor=2000), done=False)
    write(store, plan(9000, 3, floor=8000, after=8000), done=False)
    contents = read_log(store)
    assert contents.pending == [Time(9000)]
    assert (Time(2000), 1) in contents.superseded


def test_a_damaged_stray_is_no_reason_to_refuse(store: MemoryFileStore) -> None:
    write(store, plan(1000), plan(3000, 2, floor=1000, after=1000))
    store.create(names.plan(Time(2000), 1), b"junk")
    store.create(names.plan(Time(3000), 1), b"junk")
    assert set(read_log(store).plans) == {Time(1000), Time(3000)}


def test_a_plan_that_a_fenced_driver_removes_while_the_log_is_read_is_not_missed(store: MemoryFileStore) -> None:
    class Cleaning(WrappedStore):
        def read(self, name: str) -> bytes:
            if name == names.plan(Time(1000), 1):
                raise MissingFileError(f"{name} is not there", path=name)
            return super().read(name)

    write(store, plan(1000), plan(2000))
    contents = read_log(Cleaning(store))
    assert set(contents.plans) == {Time(2000)}


def test_foreign_files_in_the_folders_are_left_alone(store: MemoryFileStore) -> None:
    """CP11: what is no record by its name is none. Spark's rules are those of its own file names."""
    write(store, plan(1000))
    store.create("plans/README", b"")
    store.create("plans/000000000001000", b"")
    contents = read_log(store)
    delete_superseded(store, contents, 2)
    assert set(contents.plans) == {Time(1000)} and "README" in store.list("plans")


# -- what is deleted, and what is set aside


def test_tidy_removes_what_a_restart_has_no_use_for(store: MemoryFileStore) -> None:
    write(store, plan(1000), plan(2000, 2, after=1000))
    write(store, plan(2000, 1), done=False)
    log = PlanLog(store, 1)
    log.complete(Time(500), 1, BatchOutcome(0))
    log.fail(Time(500), 1, 0, "boom")
    log.give_up(plan(500), 0, 4)
    delete_superseded(store, read_log(store), 3)
    assert store.list("plans") == [names.key(Time(1000), 1), names.key(Time(2000), 2)]
    assert store.list("done") == [names.key(Time(1000), 1), names.key(Time(2000), 2)]
    assert store.list("failed") == []
    assert store.list("given-up") == [names.key(Time(500), 1)]


def test_tidy_leaves_alone_what_a_newer_driver_wrote_meanwhile(store: MemoryFileStore) -> None:
    write(store, plan(1000))
    contents = read_log(store)
    write(store, plan(2000, 3, after=1000))
    delete_superseded(store, contents, 2)
    assert read_log(store).done == {Time(1000), Time(2000)}


def test_a_forgotten_batch_is_set_aside_and_its_offsets_are_the_next_ones(store: MemoryFileStore) -> None:
    write(store, plan(1000), plan(2000))
    name = names.plan(Time(2000), 1)
    store.replace(name, b"damaged")
    assert forget_batch(store, Time(2000)) == [store.path(name)]
    assert store.read("forgotten/" + names.key(Time(2000), 1)) == b"damaged"
    contents = read_log(store)
    assert contents.last_planned == Time(1000)
    assert contents.newest_data(0) == (Time(1000), {"from": 1000, "until": 1001})
    assert forget_batch(store, Time(2000)) == []


def test_forgetting_a_batch_takes_its_strays_too(store: MemoryFileStore) -> None:
    write(store, plan(1000), plan(2000, 1), plan(2000, 2, after=1000))
    assert len(forget_batch(store, Time(2000))) == 2
    assert read_log(store).last_planned == Time(1000)


# -- one writer


def test_each_driver_takes_the_next_epoch_and_fences_the_ones_before(store: MemoryFileStore) -> None:
    assert [take_epoch(store, 0) for _ in range(3)] == [1, 2, 3]
    probe(store, 3)
    with pytest.raises(FencedError) as caught:
        probe(store, 1)
    assert (caught.value.facts["epoch"], caught.value.facts["newer_epoch"]) == (1, 3)
    assert store.url in str(caught.value)


def test_a_newer_writer_that_was_seen_counts_also_when_its_epoch_cannot_be_asked_for(store: MemoryFileStore) -> None:
    """Or a late job would take the failure for "could not look" and start."""
    for _ in range(2):
        take_epoch(store, 0)
    faulty = FaultyStore(store)
    faulty.fault = lambda verb, _name: "before" if verb == "list" else None
    with pytest.raises(FencedError) as caught:
        probe(faulty, 1)
    assert caught.value.facts["newer_epoch"] == 2


def test_drivers_that_start_at_once_take_different_epochs(store: MemoryFileStore) -> None:
    start, taken = threading.Barrier(8), []

    def take() -> None:
        start.wait(30)
        taken.append(take_epoch(store, 0))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(taken) == list(range(1, 9)) and newest_epoch(store) == 8


def test_an_epoch_above_nine_is_the_newest(store: MemoryFileStore) -> None:
    """CP11: by number, not by text."""
    for number in range(1, 12):
        assert take_epoch(store, 0) == number
    store.create("epoch-of-errors", b"")
    assert newest_epoch(store) == 11


def test_a_checkpoint_is_one_as_soon_as_its_zero_time_is_stored(store: MemoryFileStore) -> None:
    write_meta(store, Meta(Time(1000), SECOND))
    assert has_checkpoint(store)
    with pytest.raises(AlreadyExistsError):
        write_meta(store, Meta(Time(5000), SECOND))
    assert read_log(store).meta == Meta(Time(1000), SECOND)
