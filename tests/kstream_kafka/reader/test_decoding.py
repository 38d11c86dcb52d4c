"""Chunks of messages to elements."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from kstream_kafka import ConsumerRecord, KafkaMessageAndMetadata, OffsetRange, consumer_record, utf8_decoder, value_only
from kstream_kafka.reader.decoding import Decoding

from tests.kstream_kafka.fakes import Message

WHERE = OffsetRange("t", 1, 0, 3)
CHUNK = [Message(0, b"a", b"k"), Message(1, None, None), Message(2, "ä".encode(), b"")]


def len_or_zero(raw: bytes | None) -> int:
    return len(raw or b"")


def decode(decoding: Decoding) -> list[Any]:
    return decoding.of_chunk(WHERE)(CHUNK)


def test_elements_are_pairs_of_text_by_default_and_none_stays_none():
    assert decode(Decoding()) == [("k", "a"), (None, None), ("", "ä")]


def test_a_decoder_of_none_leaves_the_bytes():
    assert decode(Decoding(None, None)) == [(b"k", b"a"), (None, None), (b"", "ä".encode())]
    assert decode(Decoding(None, utf8_decoder)) == [(b"k", "a"), (None, None), (b"", "ä")]


def test_decoders_of_the_user_see_none_too():
    assert decode(Decoding(lambda k: k is None, len_or_zero)) == [(False, 1), (True, 0), (False, 2)]


def test_value_only_gives_bare_values_by_the_value_decoder():
    assert decode(Decoding(None, None, value_only)) == [b"a", None, "ä".encode()]
    assert decode(Decoding(None, utf8_decoder, value_only)) == ["a", None, "ä"]
    assert decode(Decoding(None, len_or_zero, value_only)) == [1, 0, 2]


def test_value_only_is_still_itself_after_pickling():
    assert pickle.loads(pickle.dumps(Decoding(None, None, value_only))).message_handler is value_only


def test_a_message_handler_gets_where_the_record_was():
    def handler(m: KafkaMessageAndMetadata) -> tuple[object, ...]:
        return (m.topic, m.partition, m.offset, m.key, m.message, m.timestamp)

    assert decode(Decoding(message_handler=handler))[0] == ("t", 1, 0, "k", "a", 1000)


def test_consumer_record_gives_whole_records_decoded():
    first, second, third = decode(Decoding(message_handler=consumer_record))
    assert first == ConsumerRecord("t", 1, 0, 1000, 0, "k", "a", (), None)
    assert (second.key, second.value) == (None, None) and (third.key, third.value) == ("", "ä")


@pytest.mark.parametrize("key", [None, utf8_decoder, len_or_zero])
@pytest.mark.parametrize("value", [None, utf8_decoder, len_or_zero])
def test_a_record_has_the_key_and_value_that_the_decoders_make(key: Any, value: Any):
    pairs = [(r.key, r.value) for r in decode(Decoding(key, value, consumer_record))]
    assert pairs == decode(Decoding(key, value))


def test_headers_are_pairs_in_their_order_and_the_leader_epoch_is_the_brokers():
    extra = [("id", b"1"), ("trace", None), ("id", b"2")]
    (record,) = Decoding(None, None, consumer_record).of_chunk(WHERE)([Message(7, b"v", epoch=4, extra=extra)])
    assert record.headers == (("id", b"1"), ("trace", None), ("id", b"2")) and record.leaderEpoch == 4 and record.offset == 7
    assert hash(record) and pickle.loads(pickle.dumps(record)) == record


@pytest.mark.parametrize(("stamp", "expected"), [((1, 5), (5, 0)), ((2, 5), (5, 1)), ((0, -1), (-1, -1))])
def test_the_type_of_a_timestamp_is_counted_as_Spark_does(stamp: tuple[int, int], expected: tuple[int, int]):
    class Stamped(Message):
        def timestamp(self) -> tuple[int, int]:
            return stamp

    for decoder in (None, utf8_decoder):
        (record,) = Decoding(decoder, decoder, consumer_record).of_chunk(WHERE)([Stamped(0)])
        assert (record.timestamp, record.timestampType) == expected


def test_consumer_record_is_still_itself_after_pickling():
    assert pickle.loads(pickle.dumps(Decoding(None, None, consumer_record))).message_handler is consumer_record
