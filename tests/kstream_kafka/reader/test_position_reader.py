"""PositionReader: every record from a position on, once, and what the brokers say between the records."""

from __future__ import annotations

import pytest
from kstream_kafka.client.ports import FetchErrorKind
from kstream_kafka.errors import KafkaError
from kstream_kafka.reader.position_reader import PolledRecords, PositionReader

from kstream.offsets.offset_range import Partition
from tests.kstream_kafka.fakes import FakeConsumer, Message, records

ZERO, ONE, OTHER = ("t", 0), ("t", 1), ("u", 0)


def event(kind: FetchErrorKind, at: int = 0, where: Partition = ZERO) -> Message:
    return Message(at, b"an error's text, not a value", problem=kind, where=where)


def reader(consumer: FakeConsumer, positions: dict[Partition, int]) -> PositionReader:
    made = PositionReader(consumer, consumer.monotonic)
    made.assign(positions)
    return made


def places(polled: PolledRecords) -> list[tuple[int, int]]:
    return [(m.partition(), m.offset()) for m in polled.messages]


def test_a_poll_gives_the_records_that_have_come_and_moves_the_positions_past_them() -> None:
    consumer = FakeConsumer([[*records([3, 4]), *records([0], where=ONE), *records([7])], []])
    made = reader(consumer, {ZERO: 3, ONE: 0, OTHER: 5})
    polled = made.poll(10, 0.1)
    assert places(polled) == [(0, 3), (0, 4), (1, 0), (0, 7)]
    assert polled.next_offsets == {ZERO: 8, ONE: 1} and made.positions == {ZERO: 8, ONE: 1, OTHER: 5}
    assert made.poll(10, 0.1) == PolledRecords()
    assert consumer.asked == [10, 10]


def test_another_assignment_is_read_by_the_same_consumer_and_no_record_of_a_former_fetch_comes() -> None:
    late = [*records([0, 1, 2, 3]), *records([9], where=OTHER), *records([7], where=ONE)]
    consumer = FakeConsumer([records([0, 1]), late])
    made = reader(consumer, {ZERO: 0, OTHER: 9})
    made.poll(10, 0.1)
    made.assign({ZERO: 2, ONE: 7})
    assert places(polled := made.poll(10, 0.1)) == [(0, 2), (0, 3), (1, 7)] and polled.next_offsets == {ZERO: 4, ONE: 8}
    assert consumer.assigned[2:] == [("t", 0, 2, None), ("t", 1, 7, None)]


def test_an_answer_of_records_that_were_read_before_is_none() -> None:
    made = reader(FakeConsumer([records([0, 1])]), {ZERO: 2})
    assert made.poll(10, 0.1) == PolledRecords() and made.positions == {ZERO: 2}


def test_without_partitions_nothing_is_fetched_any_more() -> None:
    consumer = FakeConsumer()
    made = reader(consumer, {ZERO: 2})
    made.assign({})
    assert made.positions == {} and consumer.unassigned == 1


def test_a_position_that_the_log_does_not_have_is_told_with_the_records_beside_it_and_stays() -> None:
    gone = event(FetchErrorKind.OUT_OF_RANGE, 2)
    consumer = FakeConsumer([[gone, *records([5], where=ONE), gone, event(FetchErrorKind.OUT_OF_RANGE, where=OTHER)]], log_range=(4, 9))
    made = reader(consumer, {ZERO: 2, ONE: 5})
    polled = made.poll(10, 0.1)
    assert polled.out_of_range == [ZERO] and places(polled) == [(1, 5)]
    assert made.positions == {ZERO: 2, ONE: 6} and made.log_range(ZERO) == (4, 9)


def test_the_end_of_a_log_moves_the_position_over_offsets_without_a_record() -> None:
    end = [*records([3]), event(FetchErrorKind.END_OF_PARTITION, 6), event(FetchErrorKind.END_OF_PARTITION, 1, OTHER)]
    made = reader(FakeConsumer([end]), {ZERO: 3})
    assert places(made.poll(10, 0.1)) == [(0, 3)] and made.positions == {ZERO: 6}


def test_trouble_is_said_until_a_broker_answers() -> None:
    consumer = FakeConsumer([[event(FetchErrorKind.RETRIABLE)], [], records([2])])
    made = reader(consumer, {ZERO: 2})
    assert made.trouble == ""
    made.poll(10, 0.1)
    assert made.trouble == str(FetchErrorKind.RETRIABLE)
    made.poll(10, 0.1)
    made.poll(10, 0.1)
    assert made.trouble == ""
    consumer.words = "no route to host"
    assert made.trouble == "no route to host"


def test_silence_is_the_time_since_a_record_or_the_end_of_a_log() -> None:
    consumer = FakeConsumer()
    made = reader(consumer, {ZERO: 0})
    for waits, answer, silence in (2.0, [], 2.0), (3.0, records([0]), 0.0), (4.0, [event(FetchErrorKind.END_OF_PARTITION, 1)], 0.0):
        consumer.now += waits
        consumer.script = [answer]
        made.poll(10, 0.1)
        assert made.silent_s == silence
    consumer.now += 5.0
    consumer.script = [[event(FetchErrorKind.RETRIABLE)]]
    made.poll(10, 0.1)
    assert made.silent_s == 5.0


def test_a_client_that_gave_up_is_an_error_with_its_place_and_no_secret() -> None:
    made = reader(FakeConsumer([[*records([3]), event(FetchErrorKind.FATAL)]]), {ZERO: 3})
    with pytest.raises(KafkaError, match=r"t-0 cannot be read any more: the client gave up at offset 4: ") as caught:
        made.poll(10, 0.1)
    assert {key: caught.value.facts[key] for key in ("topic", "partition", "at")} == {"topic": "t", "partition": 0, "at": 4}
