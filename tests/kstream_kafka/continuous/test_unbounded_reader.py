"""KafkaUnboundedLog: what is there, chunk by chunk, and never a record less than the log has."""

from __future__ import annotations

from typing import Any

import pytest
from kstream_kafka.client.params import CONTINUOUS_FETCH, KafkaParams, continuous
from kstream_kafka.client.ports import FetchErrorKind
from kstream_kafka.continuous import unbounded_reader
from kstream_kafka.continuous.unbounded_reader import KafkaUnboundedLog
from kstream_kafka.errors import KafkaError, LogTruncatedError, RecordsRemovedError, TopicRecreatedError
from kstream_kafka.reader.decoding import Decoding, value_only

from kstream.continuous.ports import Chunk
from kstream.offsets.offset_range import Partition
from kstream.worker.current_record import current_record
from tests.kstream_kafka.fakes import FakeConsumer, Message, records

ZERO, ONE = ("t", 0), ("t", 1)
VALUES = Decoding(message_handler=value_only)


def event(kind: FetchErrorKind, at: int = 0, where: Partition = ZERO) -> Message:
    return Message(at, None, problem=kind, where=where)


def a_log(consumer: FakeConsumer, positions: dict[Partition, int], decoding: Decoding = VALUES, **ids: str) -> KafkaUnboundedLog:
    log = KafkaUnboundedLog(consumer, decoding, ids, consumer.monotonic)
    log.assign(positions)
    return log


def test_a_poll_waits_for_one_record_and_takes_those_that_are_there_as_a_chunk_for_each_partition() -> None:
    consumer = FakeConsumer([[*records([3, 4]), *records([10], where=ONE), *records([5])]])
    log = a_log(consumer, {ZERO: 3, ONE: 10})
    assert log.poll(0.5) == [Chunk(ZERO, ["3", "4", "5"], 6, 3, 1005), Chunk(ONE, ["10"], 11, 2, 1010)]
    assert consumer.asked == [1, unbounded_reader.SLICE, unbounded_reader.SLICE] and consumer.now == 0


def test_a_poll_of_nothing_is_over_when_its_time_is() -> None:
    consumer = FakeConsumer()
    assert a_log(consumer, {ZERO: 3}).poll(0.5) == [] and consumer.now == 0.5


def test_the_bytes_of_a_poll_are_bounded_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unbounded_reader, "MOST_BYTES", 4)
    monkeypatch.setattr(unbounded_reader, "SLICE", 2)
    log = a_log(FakeConsumer([records(range(8))]), {ZERO: 0})
    assert [[(c.records, c.until) for c in log.poll(0.5)] for _ in range(2)] == [[(["0", "1", "2", "3", "4"], 5)], [(["5", "6", "7"], 8)]]


def test_offsets_that_no_reader_gets_are_passed_over_also_by_a_chunk_without_a_record() -> None:
    end = [event(FetchErrorKind.END_OF_PARTITION, 7), event(FetchErrorKind.END_OF_PARTITION, 12, ONE)]
    log = a_log(FakeConsumer([[*records([3]), *end]]), {ZERO: 3, ONE: 10})
    assert log.poll(0.5) == [Chunk(ZERO, ["3"], 7, 1, 1003), Chunk(ONE, [], 12, 0, None)]
    assert log.poll(0.5) == [], "an end that is told again is no news"


def test_a_record_without_a_timestamp_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Message, "timestamp", lambda _self: (0, -1))
    assert a_log(FakeConsumer([records([3])]), {ZERO: 3}).poll(0.5)[0].newest_ms is None


@pytest.mark.parametrize(
    ("log_range", "kind", "words"),
    [
        ((5, 9), RecordsRemovedError, r"t-0 \[3, 5\): records \[3, 5\) were removed before they were read"),
        ((0, 2), LogTruncatedError, r"t-0 \[2, 3\): offset 3 is past the log's end 2"),
        ((0, 9), LogTruncatedError, r"the log was cut below offset 3 and written again \(it is \[0, 9\) now\)"),
        ((None, None), LogTruncatedError, r"the log was cut below offset 3 and written again \(it is \[None, None\) now\)"),
    ],
)
def test_a_position_that_the_log_does_not_have_is_one_error_and_nothing_is_skipped(
    log_range: tuple[int | None, int | None], kind: type[KafkaError], words: str
) -> None:
    answer = [*records([10], where=ONE), event(FetchErrorKind.OUT_OF_RANGE, 3)]
    log = a_log(FakeConsumer([answer], log_range), {ZERO: 3, ONE: 10})
    with pytest.raises(kind, match=words):
        log.poll(0.5)


def test_a_topic_that_was_made_anew_is_refused_before_its_records_are_read() -> None:
    consumer = FakeConsumer([records([3])])
    consumer.ids = {"t": "new"}
    with pytest.raises(TopicRecreatedError):
        a_log(consumer, {ZERO: 3}, t="old")
    assert consumer.assignments == 0


def test_after_an_outage_the_topic_is_compared_before_a_record_is_handed_out() -> None:
    consumer = FakeConsumer([[event(FetchErrorKind.RETRIABLE)], [], records([3])])
    consumer.ids = {"t": "old"}
    log = a_log(consumer, {ZERO: 3}, t="old")
    assert log.poll(0.5) == []
    consumer.ids = {"t": "new"}
    with pytest.raises(TopicRecreatedError):
        log.poll(0.5)


def test_records_of_quiet_brokers_cost_no_question_for_topic_ids() -> None:
    consumer = FakeConsumer([records([3]), [], records([4])])
    consumer.ids = {"t": "old"}
    log = a_log(consumer, {ZERO: 3}, t="old")
    assert [chunk.until for _ in range(2) for chunk in log.poll(0.5)] == [4, 5] and consumer.id_questions == [True]


def test_a_record_that_a_decoder_refuses_is_the_current_record() -> None:
    def decoded(raw: Any) -> int:
        return 1 // (int(raw) - 4)

    log = a_log(FakeConsumer([records([3, 4, 5])]), {ZERO: 3}, Decoding(value_decoder=decoded, message_handler=value_only))
    with pytest.raises(ZeroDivisionError):
        log.poll(0.5)
    assert str(current_record()) == "t-0@4"


def test_another_assignment_goes_by_the_same_consumer_which_closes_with_the_log() -> None:
    consumer = FakeConsumer([records([3, 4]), [], records([3, 9], where=ONE)])
    log = a_log(consumer, {ZERO: 3})
    log.poll(0.5)
    log.assign({ONE: 9})
    assert [(chunk.partition, chunk.until) for chunk in log.poll(0.5)] == [(ONE, 10)]
    log.close()
    assert consumer.closed


def test_the_consumer_waits_little_and_holds_little() -> None:
    settings = continuous(KafkaParams.parse({"bootstrap.servers": "b:1", "fetch.wait.max.ms": 500}).executor())
    assert CONTINUOUS_FETCH.items() <= settings.items() and settings["enable.partition.eof"] == "true"
