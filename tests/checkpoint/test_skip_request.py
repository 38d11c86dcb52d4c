"""The stored form of a request to leave a record out, and what a completion, the ledger and the history say of it."""

from __future__ import annotations

import uuid

import pytest

from kstream.batch import BatchOutcome, BatchPlan, InputOutcome, SkippedRecord
from kstream.batch_time import Duration, Time
from kstream.checkpoint import PlanLog, names, read_log
from kstream.checkpoint.binding import rebound
from kstream.checkpoint.history import PastBatch, read_history, read_past, write_segment
from kstream.checkpoint.reader import Meta, write_meta
from kstream.checkpoint.skip_request import SkipRequest, ask_to_skip, read_requests
from kstream.errors import CorruptRecordError
from kstream.storage import FileStore, MemoryFileStore

AT = Time(1_760_000_001_000)
RECORD = SkippedRecord(3, "orders", 2, 1234)
REQUEST = SkipRequest(AT, 7, RECORD, 1_760_000_002_000, "host-1, pid 5", "no JSON")


@pytest.fixture
def store() -> FileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def test_the_bytes_and_the_name_of_a_request(store: FileStore) -> None:
    assert ask_to_skip(store, REQUEST) == REQUEST
    assert store.list(names.SKIPPED) == ["001760000001000-000007-000003-000002-001234-1c168adb00d2"]
    assert store.read(REQUEST.name) == (
        b'{"asked_by":"host-1, pid 5","at":1760000002000,"checksum":"add85edeab1af1a9c340'
        b'e8412c7a8a18abbedcd462f36ebf0163a15f74e5c48c","epoch":7,"kind":"skip","offset":1234,"partition":2,'
        b'"reason":"no JSON","stream":3,"time":1760000001000,"topic":"orders","version":1}'
    )
    assert read_requests(store, lambda _time, _epoch: True) == [REQUEST]


def test_a_request_stays_as_it_was_first_made(store: FileStore) -> None:
    ask_to_skip(store, REQUEST)
    assert ask_to_skip(store, SkipRequest(AT, 7, RECORD, 9, "another", "")) == REQUEST


def test_requests_of_other_plans_are_not_read(store: FileStore) -> None:
    ask_to_skip(store, REQUEST)
    store.replace(f"{names.SKIPPED}/notes.txt", b"")
    assert read_requests(store, lambda time, epoch: (time, epoch) == (AT, 6)) == []


def test_a_request_that_was_copied_to_another_name_is_no_request_for_that_batch(store: FileStore) -> None:
    ask_to_skip(store, REQUEST)
    store.replace(REQUEST.name.replace("-000007-", "-000008-"), store.read(REQUEST.name))
    with pytest.raises(CorruptRecordError, match=r"epoch 7.*epoch 8"):
        read_requests(store, lambda _time, epoch: epoch == 8)


def test_a_request_under_the_name_of_another_topic_is_an_error(store: FileStore) -> None:
    ask_to_skip(store, REQUEST)
    store.replace(REQUEST.name[:-12] + "0" * 12, store.read(REQUEST.name))
    with pytest.raises(CorruptRecordError, match=r"a request for topic .*, of which its name is not"):
        read_requests(store, lambda _time, _epoch: True)


def test_the_bytes_of_what_a_batch_has_left_out_in_its_completion_and_in_the_ledger(store: FileStore) -> None:
    log = PlanLog(store, 1)
    left = SkippedRecord(0, "orders", 2, 1234, read_by=(0, 2))
    log.complete(Time(1000), 1, BatchOutcome(5, {0: InputOutcome([9], skipped=[left, SkippedRecord(0, "orders", 2, 1235)])}))
    said = (
        b'"skipped":[{"offset":1234,"partition":2,"read_by":[0,2],"stream":0,"topic":"orders"},'
        b'{"offset":1235,"partition":2,"stream":0,"topic":"orders"}]'
    )
    done, ledger = store.read(names.done(Time(1000), 1)), store.read(names.lost(Time(1000), 1, 1))
    assert b'"counts":{"0":[9]}' in done and said in done
    assert b'"kind":"lost","lost":{},' + said in ledger


def test_the_outputs_that_had_the_record_are_named_and_a_record_without_their_names_is_read_as_before() -> None:
    named = SkippedRecord(0, "orders", 2, 1234, (1,), ("output 'sums', foreachRDD at job.py:47",))
    stored = {"stream": 0, "topic": "orders", "partition": 2, "offset": 1234, "read_by": [1]}
    assert named.to_json() == {**stored, "outputs": ["output 'sums', foreachRDD at job.py:47"]}
    assert SkippedRecord.from_json(named.to_json()) == named
    assert SkippedRecord.from_json(stored) == SkippedRecord(0, "orders", 2, 1234, (1,))


def planned(store: FileStore, *done: int) -> PlanLog:
    """Two batches of streams 0 (`a`) and 1 (`b`), with a request for a record of stream 1 of each."""
    write_meta(store, Meta(Time(0), Duration(1000)))
    log = PlanLog(store, 1)
    for ms in (1000, 2000):
        log.write_plan(BatchPlan(Time(ms), 1, "n", {0: {}, 1: {}}, {}, Time(1000), names={0: "a", 1: "b"}))
        ask_to_skip(store, SkipRequest(Time(ms), 1, SkippedRecord(1, "t", 0, ms), 5, "me"))
    for ms in done:
        log.complete(Time(ms), 1, BatchOutcome(5))
    return log


def test_a_pending_batch_leaves_out_what_is_asked_for_and_an_ended_one_what_its_completion_names(store: FileStore) -> None:
    planned(store, 1000)
    contents = read_log(store)
    assert contents.skipped == {Time(1000): [], Time(2000): [SkippedRecord(1, "t", 0, 2000)]}


def test_a_request_follows_its_stream_to_another_number(store: FileStore) -> None:
    planned(store)
    contents = rebound(read_log(store), {0: "b", 1: "a"})
    assert contents.skipped_of(Time(2000), 0) == [SkippedRecord(1, "t", 0, 2000)] and not contents.skipped_of(Time(2000), 1)
    successor = PlanLog(store, 2, contents)
    assert successor.skips_of(Time(2000), 1) == {0: [SkippedRecord(1, "t", 0, 2000)]}
    ask_to_skip(store, SkipRequest(Time(2000), 1, SkippedRecord(0, "t", 0, 7), 5, "me"))
    successor.read_skips([Time(2000)])
    assert successor.skips_of(Time(2000), 1) == {0: [SkippedRecord(1, "t", 0, 2000)], 1: [SkippedRecord(0, "t", 0, 7)]}
    assert successor.skips_of(Time(2000), 2) == {}


def test_the_history_has_what_a_batch_has_left_out_and_a_segment_without_it_is_as_before(store: FileStore) -> None:
    log = planned(store)
    log.complete(Time(1000), 1, BatchOutcome(5, {1: InputOutcome([9], skipped=[SkippedRecord(1, "t", 0, 1000)])}))
    plans = read_log(store).plans
    past = [read_past(store, plans[Time(ms)]) for ms in (1000, 2000)]
    assert [list(p.skipped) for p in past] == [[SkippedRecord(1, "t", 0, 1000)], [SkippedRecord(1, "t", 0, 2000)]]
    write_segment(store, 1, past)
    assert [list(p.skipped) for p in read_history(store)] == [list(p.skipped) for p in past]
    write_segment(store, 2, [PastBatch(past[0].plan, {0: [1]})])
    assert b"skipped" not in store.read(names.history(Time(1000), Time(1000), 2))
