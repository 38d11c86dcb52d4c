"""LogTail: every record from an offset on, once, whatever the client reports between them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import pytest
from kstream_kafka.client.ports import FetchErrorKind
from kstream_kafka.errors import KafkaError
from kstream_kafka.tools.log_tail import LogTail

from kstream.offsets.offset_range import Partition
from tests.kstream_kafka.fakes import FakeConsumer, Message, records

ZERO, ONE = ("t", 0), ("t", 1)


def event(kind: FetchErrorKind, at: int = 0, where: Partition = ZERO) -> Message:
    return Message(at, problem=kind, where=where)


def offsets_of(
    consumer: FakeConsumer, begins: Mapping[Partition, int], ends: Mapping[Partition, int], notices: list[str] | None = None
) -> list[tuple[int, int]]:
    """(partition, offset) of all records until the ends."""
    tail = LogTail(consumer, begins, ends, [].append if notices is None else notices.append, consumer.monotonic)
    return [(record.partition, record.offset) for answer in tail.answers() for record in answer]


def test_records_come_as_they_are_sent_and_those_after_the_end_do_not() -> None:
    consumer = FakeConsumer([records([3, 4]), records([0], where=ONE), records([5, 6, 7]), records([1, 2], where=ONE)])
    assert offsets_of(consumer, {ZERO: 3, ONE: 0}, {ZERO: 6, ONE: 2}) == [(0, 3), (0, 4), (1, 0), (0, 5), (1, 1)]
    assert consumer.assigned == [("t", 0, 3, None), ("t", 1, 0, None)]


def test_a_gap_at_the_end_of_the_log_ends_the_read_too() -> None:
    consumer = FakeConsumer([records([0, 1]), [event(FetchErrorKind.END_OF_PARTITION, 5)]])
    assert offsets_of(consumer, {ZERO: 0}, {ZERO: 5}) == [(0, 0), (0, 1)]


def test_an_empty_log_has_ended_and_the_broker_is_not_asked() -> None:
    consumer = FakeConsumer()
    assert offsets_of(consumer, {ZERO: 7}, {ZERO: 7}) == [] and consumer.asked == [] and consumer.assigned == []


def test_without_an_end_the_tail_goes_on_and_an_answer_without_records_is_an_empty_list() -> None:
    consumer = FakeConsumer([records([0])])
    tail = LogTail(consumer, {ZERO: 0}, monotonic=consumer.monotonic)
    assert [len(answer) for answer in islice(tail.answers(), 4)] == [1, 0, 0, 0]


def test_offsets_that_retention_has_removed_are_a_notice_and_no_record_comes_twice() -> None:
    notices: list[str] = []
    script = [records([0], where=ONE), [event(FetchErrorKind.OUT_OF_RANGE, 2)], records([0, 1], where=ONE), records([5, 6])]
    consumer = FakeConsumer(script, log_range=(5, 7))
    assert offsets_of(consumer, {ZERO: 2, ONE: 0}, {ZERO: 7, ONE: 2}, notices) == [(1, 0), (1, 1), (0, 5), (0, 6)]
    assert notices == ["t-0: offsets 2 to 4 are gone, the log begins at 5"]
    assert consumer.assigned[2:] == [("t", 0, 5, None), ("t", 1, 1, None)]


def test_a_log_that_was_cut_goes_on_at_its_end() -> None:
    notices: list[str] = []
    script = [[event(FetchErrorKind.OUT_OF_RANGE, 9)], records([4, 5]), [event(FetchErrorKind.END_OF_PARTITION, 12)]]
    consumer = FakeConsumer(script, log_range=(0, 4))
    assert offsets_of(consumer, {ZERO: 9}, {ZERO: 12}, notices) == [(0, 4), (0, 5)]
    assert notices == ["t-0: offset 9 is past the end of the log, which is 4 now: going on there"]


def test_without_the_leaders_answer_about_its_log_the_same_offset_is_asked_for_again() -> None:
    consumer = FakeConsumer([[event(FetchErrorKind.OUT_OF_RANGE, 2)], records([2])], log_range=(None, None))
    assert offsets_of(consumer, {ZERO: 2}, {ZERO: 3}) == [(0, 2)]
    assert consumer.assigned == [("t", 0, 2, None)] * 2


def test_a_partition_that_is_new_is_read_from_where_it_is_said() -> None:
    consumer = FakeConsumer([records([8])])
    tail = LogTail(consumer, {ZERO: 8}, monotonic=consumer.monotonic)
    answers = tail.answers()
    assert [record.offset for record in next(answers)] == [8]
    tail.add({ONE: 0})
    assert consumer.assigned[1:] == [("t", 0, 9, None), ("t", 1, 0, None)] and tail.partitions == {ZERO, ONE}


def test_a_leader_that_gives_nothing_before_the_end_is_an_error_with_the_clients_words() -> None:
    consumer = FakeConsumer([[event(FetchErrorKind.RETRIABLE)]])
    consumer.words = "no route to host"
    with pytest.raises(KafkaError, match=r"t-0: the leader gave no record at or after offset 1 within 15 s: "):
        offsets_of(consumer, {ZERO: 1}, {ZERO: 3})
    with pytest.raises(KafkaError, match="gave up at offset 1"):
        offsets_of(FakeConsumer([[event(FetchErrorKind.FATAL)]]), {ZERO: 1}, {ZERO: 3})
