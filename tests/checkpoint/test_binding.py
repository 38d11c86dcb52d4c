"""Which stored stream is which after the code has changed: by name, else by position."""

from __future__ import annotations

import uuid

import pytest

from kstream.batch import BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, read_log, take_epoch
from kstream.checkpoint.binding import bind, binding_of, mappings, not_allowed, rebound
from kstream.checkpoint.format import decode_plan, encode_plan
from kstream.checkpoint.input_records import KeptOffsets
from kstream.checkpoint.offline import move_streams
from kstream.checkpoint.reader import LogContents, newest_plan, write_meta
from kstream.storage import MemoryFileStore

NAMED = BatchPlan(Time(2000), 3, "n", {0: {"from": 1}, 1: {}}, {0: 5, 1: 0}, Time(2000), names={0: "orders"})
NAMED_BYTES = (
    b'{"after":0,"checksum":"36b37ac1aafd73fd2f3e40e3abb2e2cfefa979fc58918fac2c1aa888825379f3","epoch":3,"floor":2000,"inputs":{"0":{"from":1},"1":{}},"kind":"plan",'
    b'"names":{"0":"orders"},"nonce":"n","records":{"0":5,"1":0},"time":2000,"version":1,"void":false}'
)


def plan(time: int, epoch: int, names: list[str | None]) -> BatchPlan:
    """A plan of a graph whose streams have these names; the data of each says where it stood."""
    inputs = {number: {"was": f"{epoch}/{number}"} for number in range(len(names))}
    given = {number: name for number, name in enumerate(names) if name is not None}
    return BatchPlan(Time(time), epoch, "n", inputs, dict.fromkeys(inputs, 1), Time(1000), Time(time - 1000), names=given)


@pytest.mark.parametrize(
    ("stored", "now", "kept"),
    [
        ({0: None, 1: None}, {0: None, 1: None}, {0: 0, 1: 1}),
        ({0: "a", 1: "b"}, {0: "b", 1: "a"}, {0: 1, 1: 0}),
        ({0: None, 1: None}, {0: "a", 1: "b"}, {0: 0, 1: 1}),
        ({0: "a", 1: "b"}, {0: "new", 1: "a", 2: "b"}, {0: 1, 1: 2}),
        ({0: "a"}, {0: None}, {}),
        ({0: "a"}, {0: "renamed"}, {}),
        ({0: None, 1: "b"}, {0: "b", 1: None}, {1: 0}),
        ({0: None}, {1: None}, {}),
    ],
    ids=["positions", "names", "named later", "one put before", "name taken away", "renamed", "position taken by a name", "moved without"],
)
def test_a_stream_is_found_by_its_name_and_one_that_had_none_by_its_position(
    stored: dict[int, str | None], now: dict[int, str | None], kept: dict[int, int]
) -> None:
    assert bind(stored, now).matched == kept


def test_the_report_has_a_line_for_each_stream() -> None:
    binding = bind({0: "orders", 1: "clicks", 2: None}, {0: "returns", 1: "orders", 2: None})
    assert binding.report().splitlines() == [
        "  stream 'orders': continues, by name (it was stream 0)",
        "  stream 2: continues, by position",
        "  stream 'returns': is new, and begins as at a first start",
        "  stream 'clicks': is not in the job; its offsets are dropped",
    ]
    assert not binding.unchanged and bind({0: None}, {0: None}).unchanged


def test_only_what_was_named_may_be_dropped() -> None:
    binding = bind({0: "orders", 1: None, 2: None}, {2: None})
    assert not_allowed(binding, []) == ["orders", "1"]
    assert not_allowed(binding, ["dropped:orders"]) == ["1"]
    assert not_allowed(binding, ["dropped:orders", "dropped:1"]) == []


def test_an_old_plan_is_followed_through_every_graph_since() -> None:
    """Named in the second life, turned round in the third: the plans of the first are still known for whose they are."""
    plans = [plan(1000, 1, [None, None]), plan(2000, 2, ["a", "b"]), plan(3000, 3, ["b", "a"])]
    now = {0: "new", 1: "a", 2: "b"}
    assert mappings(plans, now) == {1: {0: 1, 1: 2}, 2: {0: 1, 1: 2}, 3: {0: 2, 1: 1}}


def test_the_log_reads_as_if_the_graph_of_now_had_planned_it() -> None:
    store = MemoryFileStore(f"memory://{uuid.uuid4().hex}")
    write_meta(store, Meta(Time(0), Duration(1000)))
    for epoch, made in ((1, plan(1000, 1, ["a", "b"])), (2, plan(2000, 2, ["b", "gone", "a"]))):
        assert take_epoch(store, 0) == epoch
        PlanLog(store, epoch).write_plan(made)
    now = {0: "a", 1: "b"}
    contents = read_log(store)
    assert binding_of(contents, now).vanished == [1]
    read = rebound(contents, now)
    assert [dict(p.inputs) for p in read.plans.values()] == [
        {0: {"was": "1/0"}, 1: {"was": "1/1"}},
        {0: {"was": "2/2"}, 1: {"was": "2/0"}},
    ]
    assert read.newest_data(0) == (Time(2000), {"was": "2/2"})
    assert all(p.names == {0: "a", 1: "b"} for p in read.plans.values())
    newest = newest_plan(store)
    assert newest is not None and newest.time == Time(2000)


@pytest.mark.parametrize(
    ("planned", "epoch", "streams", "now", "found"),
    [
        ([None, None], 1, [None, None], ["a", "b"], {0: "0", 1: "1"}),
        ([None, None], 2, ["a", "b"], [None, None], {0: "0", 1: "1"}),
        ([None, None], 2, ["a", "b"], ["c", None], {0: "0", 1: "1"}),
        (["a", None], 2, ["b", "c", "a"], ["a", None], {0: "2", 1: "1"}),
        (["a", "b"], 2, ["b", "a"], ["a", "b", "c"], {0: "1", 1: "0"}),
        (["a", "b"], 2, ["a", "b"], ["b"], {0: "1"}),
        (["a", "b"], 0, [None, "b"], ["b", "a"], {0: "1", 1: "0"}),
    ],
    ids=["named later", "rolled back", "another name", "moved and rolled back", "turned round", "dropped", "planned by a later driver"],
)
def test_kept_offsets_go_where_the_newest_plan_of_their_stream_goes(
    planned: list[str | None], epoch: int, streams: list[str | None], now: list[str | None], found: dict[int, str]
) -> None:
    """`epoch` is that of the record, whose driver may have died before its first plan. The plan has epoch 1."""
    kept = KeptOffsets(epoch, dict(enumerate(streams)), {number: {"was": str(number)} for number in range(len(streams))})
    made = plan(1000, 1, planned)
    contents = LogContents(None, {made.time: made}, frozenset(), frozenset(), {}, (), kept)
    bound = rebound(contents, dict(enumerate(now))).kept_offsets
    assert bound == KeptOffsets(epoch, dict(enumerate(now)), {number: {"was": was} for number, was in found.items()})


def test_offsets_that_were_set_by_hand_keep_the_names_and_the_streams_that_were_left_alone() -> None:
    """`kstream offsets` writes the streams it knows how to move; the others are not gone for that."""
    store = MemoryFileStore(f"memory://{uuid.uuid4().hex}")
    write_meta(store, Meta(Time(0), Duration(1000)))
    take_epoch(store, 0)
    PlanLog(store, 1).write_plan(plan(1000, 1, ["a", None]))
    move_streams(store, 5, lambda _contents: ({0: {"was": "moved"}}, {}))
    contents = read_log(store)
    binding = binding_of(contents, {0: None, 1: None, 2: "a"})
    assert (binding.stored, binding.matched) == ({0: "a", 1: None}, {0: 2, 1: 1})
    read = rebound(contents, binding.now)
    assert (read.newest_data(2), read.newest_data(1)) == ((Time(2000), {"kind": "json", "was": "moved"}), (Time(1000), {"was": "1/1"}))


def test_the_bytes_of_a_plan_with_names() -> None:
    assert encode_plan(NAMED) == NAMED_BYTES
    assert decode_plan(NAMED_BYTES, "p") == NAMED
