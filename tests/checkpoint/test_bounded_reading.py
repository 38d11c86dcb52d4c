"""A reader that only looks reads the newest part of a log or a ledger, and no record twice."""

from __future__ import annotations

import uuid

import pytest

from kstream.batch import BatchOutcome, BatchPlan, InputOutcome, SkippedRecord
from kstream.batch_time import Time
from kstream.checkpoint import PlanLog, names, read_log
from kstream.checkpoint.history import acknowledge, count_new_entries, read_ledger, read_newest_entries
from kstream.checkpoint.skip_request import SkipRequest, ask_to_skip
from kstream.storage import MemoryFileStore
from tests.stores import CountingStore


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryFileStore(f"memory://{uuid.uuid4().hex}"))


def plan(number: int, epoch: int = 1, floor: int = 1, after: int = 0) -> BatchPlan:
    data = {0: {"from": number, "until": number + 1}}
    return BatchPlan(Time(number), epoch, f"n{number}-{epoch}", data, {0: 1}, Time(floor), Time(after))


def write(store: CountingStore, *plans: BatchPlan) -> None:
    for each in plans:
        PlanLog(store, each.epoch).write_plan(each)


def reads(store: CountingStore, folder: str) -> list[str]:
    return [name for verb, name, _ in store.calls if verb == "read" and name.startswith(f"{folder}/")]


def numbers(times: object) -> list[int]:
    return [time.milliseconds for time in times]  # pyright: ignore


def test_only_the_newest_plans_are_read_and_the_older_unfinished_batches_are_known_by_their_names(store: CountingStore) -> None:
    write(store, *(plan(n, floor=2) for n in range(1, 9)))
    PlanLog(store, 1).complete(Time(3), 1, BatchOutcome(0))
    PlanLog(store, 1).complete(Time(7), 1, BatchOutcome(0))
    contents = read_log(store, newest=3)
    assert numbers(contents.plans) == [6, 7, 8] and numbers(contents.pending) == [6, 8]
    assert len(reads(store, names.PLANS)) == 3
    assert sorted(numbers(contents.unread)) == [2, 4, 5], "1 is below the low watermark, 3 has a completion"
    assert read_log(store).unread == ()


def test_a_plan_that_is_known_is_not_read_again(store: CountingStore) -> None:
    write(store, *(plan(n) for n in range(1, 6)))
    first = read_log(store, newest=4)
    write(store, plan(6))
    store.calls.clear()
    known = {(time, each.epoch): each for time, each in first.plans.items()}
    again = read_log(store, newest=4, known=known)
    assert numbers(again.plans) == [3, 4, 5, 6]
    assert reads(store, names.PLANS) == [names.plan(Time(6), 1)]


def test_a_stray_plan_among_the_newest_is_superseded_as_in_the_whole_log(store: CountingStore) -> None:
    write(store, plan(1), plan(2), plan(3, epoch=2, after=2), plan(9), plan(10, epoch=2, after=2))
    assert numbers(read_log(store).plans) == [1, 2, 3, 10]
    bounded = read_log(store, newest=2)
    assert numbers(bounded.plans) == [3, 10] and sorted(numbers(bounded.unread)) == [1, 2]


# -- the ledger


def lose(store: CountingStore, number: int, *skipped: SkippedRecord) -> None:
    lost = [] if skipped else [{"topic": "t", "partition": 0, "from": number, "until": number + 1, "cause": "retention", "detail": ""}]
    PlanLog(store, 1).complete(Time(number), 1, BatchOutcome(number, {0: InputOutcome([], lost, skipped=skipped)}))


def test_the_newest_entries_are_those_of_the_whole_ledger_and_the_older_ones_are_counted(store: CountingStore) -> None:
    for number in range(1, 8):
        lose(store, number)
    PlanLog(store, 1).give_up(plan(8), 8, 3)
    whole = read_ledger(store)
    acknowledge(store, whole[0], 0, "a person")
    store.calls.clear()
    entries, older = read_newest_entries(store, 3)
    assert [(entry.kind, entry.time.milliseconds) for entry in entries] == [("lost", 6), ("lost", 7), ("given-up", 8)]
    assert entries == whole[-3:] and older == 4, "one of the five older ones is acknowledged"
    assert len(reads(store, names.LOST)) + len(reads(store, names.GIVEN_UP)) == 3
    assert read_newest_entries(store, 100) == (read_ledger(store), 0) and count_new_entries(store) == 7


def test_requests_of_kstream_skip_are_left_out_with_the_batches_that_are_left_out(store: CountingStore) -> None:
    """Else a record that an old batch has left out would look like one that it has not."""
    write(store, plan(1), plan(2), plan(3))
    records = {number: SkippedRecord(0, "t", 0, number) for number in (1, 2, 3)}
    for number, record in records.items():
        ask_to_skip(store, SkipRequest(Time(number), 1, record, 0, "a person"))
    lose(store, 1, records[1])
    lose(store, 2, records[2])
    assert [(e.kind, e.time.milliseconds) for e in read_ledger(store)] == [("skipped", 1), ("skipped", 2), ("to-skip", 3)]
    assert [(e.kind, e.time.milliseconds) for e in read_newest_entries(store, 1)[0]] == [("skipped", 2), ("to-skip", 3)]
