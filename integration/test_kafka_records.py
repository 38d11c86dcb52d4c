"""Records as they are in real topics: without key or value, with headers, larger than a fetch, in every compression."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from kstream_kafka import KafkaUtils, OffsetRange, TopicAndPartition

from integration.kafka_broker import KafkaBroker
from integration.kafka_handle import QUIET, produce_all
from integration.reading import Reader

MakeTopic = Callable[..., str]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MB = 1 << 20


@pytest.fixture(params=["RDD", "DataFrame"])
def reader(request: pytest.FixtureRequest, sc: Any, kafka: KafkaBroker) -> Reader:
    return Reader(request.param, sc, kafka)


def producer_of(kafka: KafkaBroker, **settings: Any) -> Producer:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, **QUIET, **given})


def test_null_and_empty_keys_and_values_stay_what_they_are(reader: Reader, kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    written = [(key, value) for key in (None, b"", b"k") for value in (None, b"", b"v")]
    kafka.produce(name, [(*pair, 0) for pair in written])
    found = reader.records([OffsetRange(name, 0, 0, len(written))])
    assert [(record.key, record.value) for record in found] == written


def test_the_default_decoder_gives_none_for_null_and_text_for_the_rest(sc: Any, kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    kafka.produce(name, [(None, None, 0), ("", "", 0), ("schlüssel", "wörter", 0)])
    rdd = KafkaUtils.createRDD(sc, {"bootstrap.servers": kafka.bootstrap}, [OffsetRange(name, 0, 0, 3)])
    assert rdd.collect() == [(None, None), ("", ""), ("schlüssel", "wörter")]


def test_headers_keep_their_order_repeated_names_and_null_values(reader: Reader, kafka: KafkaBroker, topic: MakeTopic) -> None:
    name, producer = topic(), producer_of(kafka)
    written: list[list[tuple[str, bytes | None]]] = [
        [("trace", b"1"), ("trace", b"2"), ("trace", b"1")], [("null", None), ("empty", b""), ("bytes", b"\xff\x00")],
        [], [("", b"no name")],
        [(f"h{i}", bytes([i])) for i in range(100)],
    ]  # fmt: skip
    for headers in written:
        producer.produce(name, b"v", headers=list(headers))
    assert producer.flush(30) == 0
    found = reader.records([OffsetRange(name, 0, 0, len(written))])
    assert [list(record.headers) for record in found] == written


@pytest.mark.parametrize("params", [{}, {"max.partition.fetch.bytes": 1024}, {"fetch.max.bytes": 65536}], ids=str)
def test_records_larger_than_a_fetch_arrive_whole_alone_and_packed(
    reader: Reader, kafka: KafkaBroker, topic: MakeTopic, params: dict[str, int]
) -> None:
    """Several MB among small ones, on three partitions: one task a partition, then one for all, which reads them at once."""
    name = topic(3, {"max.message.bytes": str(8 * MB)})
    large = os.urandom(MB)
    values = [b"small", large * 5, b"small", large * 3 + b"end"]
    produce_all(producer_of(kafka, message_max_bytes=8 * MB), name, [(None, value, p) for p in range(3) for value in values])
    ranges = [OffsetRange(name, p, 0, len(values)) for p in range(3)]
    for packing in ({}, {"maxTasks": 1}):
        found = reader.records(ranges, params, **packing)
        assert [(r.partition, r.offset, r.value) for r in found] == [(p, i, value) for p in range(3) for i, value in enumerate(values)]


def test_every_compression_is_read_also_mixed_in_one_log(reader: Reader, kafka: KafkaBroker, topic: MakeTopic) -> None:
    """Batches of each codec in turns, then a range that begins and ends in the middle of a compressed batch."""
    name, each, rounds = topic(), 50, 3
    producers = {codec: producer_of(kafka, compression_type=codec, linger_ms=50) for codec in CODECS}
    written: list[bytes] = []
    for turn in range(rounds):
        for codec, producer in producers.items():
            values = [f"{codec} {turn} {i} {'text ' * 20}".encode() for i in range(each)]
            produce_all(producer, name, [(None, value, 0) for value in values])
            written += values
    for start, until in ((0, len(written)), (each + 7, 3 * each - 11), (each - 1, each + 1)):
        found = reader.records([OffsetRange(name, 0, start, until)])
        assert [(r.offset, r.value) for r in found] == list(enumerate(written))[start:until]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_topic_that_compresses_by_itself_is_read(sc: Any, kafka: KafkaBroker, topic: MakeTopic, codec: str) -> None:
    name = topic(1, {"compression.type": codec})
    kafka.produce(name, [(None, f"{i} {'text ' * 50}", 0) for i in range(500)])
    values = KafkaUtils.createRDD(sc, {"bootstrap.servers": kafka.bootstrap}, [OffsetRange(name, 0, 3, 499)]).values().collect()
    assert [int(value.split()[0]) for value in values] == list(range(3, 499))


def test_a_range_reads_no_record_of_the_compressed_batch_it_ends_in(sc: Any, kafka: KafkaBroker, topic: MakeTopic) -> None:
    """One batch holds all 1,000 records; ranges of one record each cut it in the middle, packed into one task or not."""
    name = topic()
    produce_all(producer_of(kafka, compression_type="zstd", linger_ms=500), name, [(None, str(i), 0) for i in range(1000)])
    ranges = [OffsetRange(TopicAndPartition(name, 0).topic, 0, at, at + 1) for at in (0, 1, 500, 998, 999)]
    for packing in ({}, {"maxTasks": 1}):
        rdd = KafkaUtils.createRDD(sc, {"bootstrap.servers": kafka.bootstrap}, ranges, **packing)
        assert [int(value) for value in rdd.values().collect()] == [0, 1, 500, 998, 999]
