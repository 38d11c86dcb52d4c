"""What a checkpoint says of the topic of a query's receipts: bytes that other versions read."""

from __future__ import annotations

from pathlib import Path

import pytest
from kstream_kafka.sink.stored_topic import StoredTopic, decode_topic, encode_topic, read_topic, store_topic

from kstream.errors import CorruptRecordError
from kstream.storage import StorePlace

STORED = StoredTopic("c1", "kstream-receipts", "id 1")
FORM = b'{"cluster":"c1","topic":"kstream-receipts","topicId":"id 1","version":1}'


def test_the_bytes_of_the_file_are_these() -> None:
    assert encode_topic(STORED) == FORM and decode_topic(FORM, "f") == STORED


def test_a_file_is_found_again_by_query_and_topic(tmp_path: Path) -> None:
    place = StorePlace(str(tmp_path), exclusive=False)
    assert read_topic(place, "q", STORED.topic) is None
    assert store_topic(place, "q", STORED) and store_topic(place, "q", STORED)
    assert read_topic(place, "q", STORED.topic) == STORED
    for where, query, topic in ((place, "p", STORED.topic), (place, "q", "other-receipts"), (None, "q", STORED.topic)):
        assert read_topic(where, query, topic) is None


def test_a_damaged_file_is_an_error_with_its_place(tmp_path: Path) -> None:
    place = StorePlace(str(tmp_path), exclusive=False)
    place.write("q/receipts-kstream-receipts", b"{}")
    with pytest.raises(CorruptRecordError, match="q/receipts-kstream-receipts"):
        read_topic(place, "q", STORED.topic)
