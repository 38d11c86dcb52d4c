"""A record under another record's name is refused, with both: a checkpoint that was copied by hand must not run a batch twice."""

from __future__ import annotations

import uuid

import pytest

from kstream.batch import BatchOutcome, BatchPlan, InputOutcome, StateCheckpoint
from kstream.batch_time import Time
from kstream.checkpoint import PlanLog, format, history, names, read_log, take_epoch
from kstream.checkpoint.history import read_ledger
from kstream.checkpoint.reader import newest_plan, record_takeover
from kstream.checkpoint.state_log import stored_states
from kstream.errors import CorruptRecordError
from kstream.storage import MemoryFileStore

T1, T2 = Time(1000), Time(2000)


@pytest.fixture
def store() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def plan(time: Time, epoch: int = 1) -> BatchPlan:
    return BatchPlan(time, epoch, f"nonce-{time}", {0: {"from": 0, "until": 1}}, {0: 1}, time)


def copied(store: MemoryFileStore, old: str, new: str) -> None:
    store.create(new, store.read(old))


@pytest.mark.parametrize("to", [(T2, 1), (T1, 2), (T2, 3)])
def test_a_plan_under_the_name_of_another_is_refused_with_both(store: MemoryFileStore, to: tuple[Time, int]) -> None:
    PlanLog(store, 1).write_plan(plan(T1))
    copied(store, names.plan(T1, 1), names.plan(*to))
    for read in (read_log, newest_plan):
        with pytest.raises(CorruptRecordError) as caught:
            read(store)
        said = str(caught.value)
        assert names.plan(*to) in said and "time 1000, epoch 1," in said and f"time {to[0].milliseconds}, epoch {to[1]}:" in said


def test_counts_of_a_past_batch_are_not_taken_from_another_completion(store: MemoryFileStore) -> None:
    log = PlanLog(store, 1)
    log.write_plan(plan(T1))
    log.complete(T1, 1, BatchOutcome(5, {0: InputOutcome([1])}))
    store.replace(names.done(T1, 1), format.encode("done", {"time": 2000, "at": 5, "epoch": 1}))
    with pytest.raises(CorruptRecordError, match="time 2000, but its name says time 1000"):
        history.read_past(store, plan(T1))


def test_states_are_not_taken_from_the_completion_of_another_batch(store: MemoryFileStore) -> None:
    PlanLog(store, 1).complete(T1, 1, BatchOutcome(5, states={"s0": StateCheckpoint(T1, ("state/x",), 7)}))
    copied(store, names.done(T1, 1), names.done(T2, 1))
    assert set(stored_states(store, T1, 1)) == {"s0"}
    with pytest.raises(CorruptRecordError, match="time 1000, but its name says time 2000"):
        stored_states(store, T2, 1)


def test_a_ledger_entry_of_another_batch_is_refused(store: MemoryFileStore) -> None:
    PlanLog(store, 1).give_up(plan(T1), 5, 4)
    copied(store, names.given_up(T1, 1), names.given_up(T2, 1))
    with pytest.raises(CorruptRecordError, match="time 1000, but its name says time 2000"):
        read_ledger(store)


def test_what_another_epoch_has_adopted_is_refused(store: MemoryFileStore) -> None:
    for _ in range(3):
        take_epoch(store, 0)
    PlanLog(store, 1).write_plan(plan(T1))
    record_takeover(store, read_log(store), 3)
    copied(store, names.of_epoch(names.ADOPTED, 3), names.of_epoch(names.ADOPTED, 4))
    with pytest.raises(CorruptRecordError, match="epoch 3, but its name says epoch 4"):
        read_log(store)
