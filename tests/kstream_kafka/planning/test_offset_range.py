"""The values of the 2.4 API."""

from __future__ import annotations

import json
import pickle

from kstream_kafka import Broker, KafkaMessageAndMetadata, OffsetRange, TopicAndPartition, utf8_decoder


def test_KP1_ranges_and_partitions_are_equal_and_hashed_by_value():
    assert OffsetRange("t", 0, 1, 5) == OffsetRange("t", 0, 1, 5) != OffsetRange("t", 0, 1, 6)
    assert TopicAndPartition("t", 0) == TopicAndPartition("t", 0) != TopicAndPartition("t", 1)
    assert len({OffsetRange("t", 0, 1, 5), OffsetRange("t", 0, 1, 5)}) == 1
    assert {TopicAndPartition("t", 0): 1}[TopicAndPartition("t", 0)] == 1
    assert Broker("h", 1) == Broker("h", 1)


def test_a_range_counts_its_offsets_and_names_its_partition():
    r = OffsetRange("t", 3, 10, 14)
    assert r.count() == 4
    assert r.topicAndPartition == TopicAndPartition("t", 3)
    assert str(r) == "OffsetRange(topic: t, partition: 3, range: [10 -> 14])"


def test_a_range_survives_json():
    r = OffsetRange("t", 3, 10, 2**60)
    assert OffsetRange.from_json(json.loads(json.dumps(r.to_json()))) == r
    assert r.to_json() == ["t", 3, 10, 2**60]


def test_a_message_decodes_when_asked_and_not_before():
    def refuse(raw: bytes | None) -> str:
        raise ValueError(raw)

    m = KafkaMessageAndMetadata("t", 0, 5, b"k", b"\xc3\xa4", 1000, refuse, utf8_decoder)
    assert (m.topic, m.partition, m.offset, m.timestamp, m.message) == ("t", 0, 5, 1000, "ä")


def test_a_pickled_message_keeps_its_bytes_and_decodes_by_utf8():
    m = pickle.loads(pickle.dumps(KafkaMessageAndMetadata("t", 0, 5, None, b"v", 9, None, None)))
    assert (m.key, m.message, m.offset, m.timestamp) == (None, "v", 5, 9)
