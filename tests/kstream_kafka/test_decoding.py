"""Chunks of messages to elements."""

from __future__ import annotations

import pickle

from kstream_kafka import KafkaMessageAndMetadata, OffsetRange, utf8_decoder, value_only
from kstream_kafka.decoding import Decoding

from tests.kstream_kafka.fakes import Message

WHERE = OffsetRange("t", 1, 0, 3)
CHUNK = [Message(0, b"a", b"k"), Message(1, None, None), Message(2, "ä".encode(), b"")]


def decode(decoding: Decoding) -> list[object]:
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


def len_or_zero(raw: bytes | None) -> int:
    return len(raw or b"")
