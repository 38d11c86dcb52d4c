"""What completion records say of states, and what a driver that starts makes of it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from kstream.batch import BatchOutcome, BatchPlan, InputOutcome, StateCheckpoint
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, names, read_log
from kstream.checkpoint.reader import write_meta
from kstream.checkpoint.state_log import StoredStates, forget_gone, newest_states, read_states, set_aside, stored_states
from kstream.errors import CorruptRecordError, OutsideStoreError
from kstream.storage import LocalFileStore, MemoryFileStore
from tests.stores import CountingStore

STATES = {
    "s0": StateCheckpoint(Time(2000), ("state/000000000002000-000003-s0-00000-aa", "state/000000000002000-000003-s0-00001-bb"), 77),
    "s1": StateCheckpoint(Time(1000), ()),
}
DONE_WITH_STATES = (
    b'{"at":2345,"checksum":"a8cad56d04acbf5e6781856fc8a1d0f660c67827e898cc58fb1c6f8a065c579f","epoch":3,"kind":"done","states":{"s0":{"files":["state/000000000002000-000003-s0-00000-aa",'
    b'"state/000000000002000-000003-s0-00001-bb"],"hashing":77,"partitions":2,"time":2000},"s1":{"files":[],"hashing":null,'
    b'"partitions":0,"time":1000}},"time":2000,"version":1}'
)
DONE_BEFORE_STATES = (
    b'{"at":2345,"checksum":"e0ebe52c8004c9f08f1a473b05570d0ccf0222de163f83faabce9ba02a75aa5c","epoch":3,"kind":"done",'
    b'"time":2000,"version":1}'
)
GONE = (
    b'{"checksum":"2090c5b1fd396568264d2068d8179896a178978f7261652f83ff16922b908765","epoch":4,"kind":"gone-states","states":{"s1":'
    b'{"files":[],"hashing":null,"partitions":0,"time":1000}},"version":1}'
)


OF_A_WINDOW = {"s0": StateCheckpoint(Time(2000), ("state/x",), 77, Duration(3000))}
DONE_WITH_A_WINDOW = (
    b'{"at":2345,"checksum":"99921f508e925121b3c38b9c87164ac28537bb7905689fb8ca228f1c7afc33f6","epoch":3,"kind":"done",'
    b'"states":{"s0":{"files":["state/x"],"hashing":77,"partitions":1,"time":2000,"window":3000}},"time":2000,"version":1}'
)


@pytest.fixture
def store() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def plan(store: MemoryFileStore, *times: int) -> PlanLog:
    write_meta(store, Meta(Time(0), Duration(1000)))
    log = PlanLog(store, 3)
    for time in times:
        log.write_plan(BatchPlan(Time(time), 3, "n", {}, {}, Time(time)))
    return log


def put(store: MemoryFileStore, state: StateCheckpoint) -> StateCheckpoint:
    for file in state.files:
        store.create(file, b"")
    return state


def state(time: int, epoch: int = 3, parts: int = 2, nonce: str = "aa") -> StateCheckpoint:
    prefix = names.state_prefix(Time(time), epoch, "s0")
    return StateCheckpoint(Time(time), tuple(names.state(prefix, part, nonce) for part in range(parts)), 7)


def read(store: MemoryFileStore) -> StoredStates:
    return read_states(store, read_log(store), wanted=True)


def test_the_bytes_of_a_completion_that_names_states(store: MemoryFileStore) -> None:
    stored = PlanLog(store, 3).complete(Time(2000), 2, BatchOutcome(2345, states=STATES))
    assert store.read("done/000000000002000-000002") == DONE_WITH_STATES
    assert stored == STATES == stored_states(store, Time(2000), 2)


def test_the_bytes_of_a_completion_that_names_the_totals_of_a_window(store: MemoryFileStore) -> None:
    stored = PlanLog(store, 3).complete(Time(2000), 2, BatchOutcome(2345, states=OF_A_WINDOW))
    assert store.read("done/000000000002000-000002") == DONE_WITH_A_WINDOW
    assert stored == OF_A_WINDOW == stored_states(store, Time(2000), 2)


def test_the_newest_states_are_found_by_the_names_of_their_files(store: MemoryFileStore) -> None:
    log = plan(store, 1000, 2000, 3000)
    for time in (1000, 2000):
        log.complete(Time(time), 3, BatchOutcome(0, states={"s0": put(store, state(time))}))
    assert newest_states(store, {"s0", "s1"}) == {"s0": [state(2000)]}
    put(store, state(3000))
    assert newest_states(store, {"s0"}) == {"s0": []}, "no completion names its files"
    assert newest_states(store, {"s1"}) == {}


def test_a_completion_of_an_older_kstream_names_none(store: MemoryFileStore) -> None:
    store.create("done/000000000002000-000002", DONE_BEFORE_STATES)
    assert stored_states(store, Time(2000), 2) == {}
    assert stored_states(store, Time(3000), 2) == {}


def test_a_completion_without_states_has_the_bytes_it_had(store: MemoryFileStore) -> None:
    PlanLog(store, 3).complete(Time(2000), 2, BatchOutcome(2345, states={}))
    assert store.read("done/000000000002000-000002") == DONE_BEFORE_STATES
    PlanLog(store, 3).complete(Time(3000), 2, BatchOutcome(2345, {0: InputOutcome([1])}, STATES))
    assert stored_states(store, Time(3000), 2) == STATES


def test_who_notes_an_end_that_is_noted_learns_which_states_are_named(store: MemoryFileStore) -> None:
    """A frozen driver's batch, run again by its successor: whichever ends first is believed by both."""
    PlanLog(store, 3).complete(Time(2000), 2, BatchOutcome(2345, states=STATES))
    other = {"s0": state(2000, epoch=4)}
    assert PlanLog(store, 4).complete(Time(2000), 2, BatchOutcome(2346, states=other)) == STATES


def test_the_bytes_of_states_set_aside(store: MemoryFileStore) -> None:
    plan(store, 1000)
    set_aside(store, 4, {"s1": STATES["s1"]})
    assert store.read("gone-states/000004") == GONE
    assert read(store).gone == {"s1": STATES["s1"]} and read(store).gone_by == (4,)


def test_the_name_of_a_file_tells_batch_epoch_and_stream() -> None:
    name = names.state(names.state_prefix(Time(2000), 3, "a/b-c d"), 7, "0f")
    assert name == "state/000000000002000-000003-a%2Fb-c%20d-00007-0f"
    assert names.parse_state(name.removeprefix("state/")) == (Time(2000), 3, "a/b-c d")
    assert names.parse_state("probe-xy") is None


def test_all_whole_checkpoints_are_found_and_files_that_nobody_named(store: MemoryFileStore) -> None:
    log = plan(store, 1000, 2000, 3000)
    for time in (1000, 3000):
        log.complete(Time(time), 3, BatchOutcome(0, states={"s0": put(store, state(time))}))
    log.complete(Time(2000), 3, BatchOutcome(0))
    stray = put(store, state(2000, epoch=2, parts=1))
    assert read(store) == StoredStates({"s0": [state(1000), state(3000)]}, {}, (), ((stray.files[0], Time(2000), 2),))


def test_a_checkpoint_that_is_not_whole_is_passed_over(store: MemoryFileStore, caplog: pytest.LogCaptureFixture) -> None:
    log = plan(store, 1000, 2000)
    for time in (1000, 2000):
        log.complete(Time(time), 3, BatchOutcome(0, states={"s0": put(store, state(time))}))
    store.delete(state(2000).files[1])
    assert read(store).checkpoints == {"s0": [state(1000)]}
    assert "not whole" in caplog.text


def test_without_a_whole_checkpoint_the_missing_file_is_named(store: MemoryFileStore) -> None:
    plan(store, 2000).complete(Time(2000), 3, BatchOutcome(0, states={"s0": put(store, state(2000))}))
    store.delete(state(2000).files[1])
    with pytest.raises(CorruptRecordError, match=state(2000).files[1]):
        read(store)


def test_a_log_without_state_costs_one_listing_more(store: MemoryFileStore) -> None:
    plan(store, 1000, 2000).complete(Time(1000), 3, BatchOutcome(0))
    counting = CountingStore(store)
    contents = read_log(store)
    assert read_states(counting, contents, wanted=False) == StoredStates({}, {}, (), ())
    assert counting.take() == [("list", "state", 0)]


def test_no_file_outside_of_the_checkpoint_is_deleted_whatever_a_record_names(tmp_path: Path) -> None:
    victims = [tmp_path / "victim", tmp_path / "victim2"]
    for victim in victims:
        victim.write_bytes(b"not of the checkpoint")
    for name in (str(victims[0]), "../victim2", "state/../../victim2"):
        with pytest.raises(OutsideStoreError, match="leads out of"):
            forget_gone(LocalFileStore(tmp_path / "checkpoint"), [3], [StateCheckpoint(Time(1000), (name,))])
    assert [victim.read_bytes() for victim in victims] == [b"not of the checkpoint"] * 2
