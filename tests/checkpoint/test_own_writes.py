"""A store that says "already exists" of what it has just stored for the very same caller: nothing is lost and nobody is fenced."""

from __future__ import annotations

import uuid

import pytest

from kstream.batch import BatchOutcome, BatchPlan
from kstream.batch_time import Time
from kstream.checkpoint import PlanLog, names, read_log, take_epoch
from kstream.checkpoint.plan_log import probe
from kstream.errors import FencedError, PlanFailedError
from kstream.storage import MemoryFileStore
from tests.stores import FaultyStore


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryFileStore(f"memory://{uuid.uuid4().hex}"))


def say_again(store: FaultyStore, *wanted: str) -> None:
    """The first create of each of these names is done and then refused."""
    left = list(wanted)

    def fault(verb: str, name: str) -> str | None:
        if verb == "create" and name in left:
            left.remove(name)
            return "again"
        return None

    store.fault = fault


def plan(time: int, epoch: int = 1) -> BatchPlan:
    return BatchPlan(Time(time), epoch, f"nonce-{time}", {0: {"from": time}}, {}, Time(time))


def test_a_driver_that_meets_its_own_epoch_takes_the_next_and_is_not_fenced_while_the_one_before_is(store: FaultyStore) -> None:
    before = take_epoch(store, 0)
    say_again(store, names.epoch(before + 1))
    epoch = take_epoch(store, 0)
    assert epoch == before + 2
    probe(store, epoch)
    with pytest.raises(FencedError):
        probe(store, before)


def test_a_plan_that_meets_itself_is_stored(store: FaultyStore) -> None:
    log = PlanLog(store, 1)
    say_again(store, names.plan(Time(1000), 1))
    log.write_plan(plan(1000))
    assert log.resolve_in_doubt_plan() is None
    assert read_log(store).plans[Time(1000)] == plan(1000)


def test_a_void_record_that_meets_itself_is_void(store: FaultyStore) -> None:
    log = PlanLog(store, 1)
    name, creates = names.plan(Time(1000), 1), 0

    def fault(verb: str, asked: str) -> str | None:
        nonlocal creates
        if verb != "create" or asked != name:
            return None
        creates += 1
        return "before" if creates == 1 else "again"

    store.fault = fault
    with pytest.raises(PlanFailedError, match="could not be stored"):
        log.write_plan(plan(1000))
    assert creates == 2
    assert log.resolve_in_doubt_plan() is None
    assert read_log(store).plans[Time(1000)].void


def test_a_completion_that_meets_itself_is_one(store: FaultyStore) -> None:
    log = PlanLog(store, 1)
    log.write_plan(plan(1000))
    say_again(store, names.done(Time(1000), 1))
    log.complete(Time(1000), 1, BatchOutcome(0))
    assert read_log(store).pending == []
