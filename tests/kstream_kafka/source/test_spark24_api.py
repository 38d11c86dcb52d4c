"""`pyspark.streaming.kafka` of Spark 2.4: its names, arguments and defaults, on a mock cluster and a real Spark."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import kstream_kafka
import pytest
from confluent_kafka import Producer
from kstream_kafka import Broker, KafkaMessageAndMetadata, KafkaUtils, OffsetRange, TopicAndPartition, utf8_decoder
from pyspark import SparkContext

from kstream import BatchTime, StreamingContext, StreamingListener
from kstream.testing import CollectedOutput, ManualClock

DECODERS = [("keyDecoder", utf8_decoder), ("valueDecoder", utf8_decoder), ("messageHandler", None)]
REQUIRED = inspect.Parameter.empty


@pytest.fixture(scope="module")
def producer() -> Iterator[Producer]:
    """Of a cluster of one broker, whose topics have four partitions."""
    made = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "replaced", "log_level": 0})
    yield made
    del made


@pytest.fixture(scope="module")
def address(producer: Producer) -> str:
    """The cluster's, with 6 records in partition 0 of `orders`."""
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    for i in range(6):
        producer.produce("orders", f"value {i}", None if i == 0 else f"key {i}", partition=0)
    assert producer.flush(10) == 0
    return f"{broker.host}:{broker.port}"


class NumRecords(StreamingListener):
    """How many records each batch is told to have, when."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def onBatchSubmitted(self, batchSubmitted: Any) -> None:
        self.heard.append(("submitted", batchSubmitted.batchInfo().numRecords()))

    def onBatchStarted(self, batchStarted: Any) -> None:
        self.heard.append(("started", batchStarted.batchInfo().numRecords()))

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        self.heard.append(("completed", batchCompleted.batchInfo().numRecords()))


def job(sc: SparkContext) -> tuple[StreamingContext, ManualClock]:
    clock = ManualClock(5000)
    return StreamingContext(sc, 0.5, clock=clock), clock


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("createDirectStream", [("ssc", REQUIRED), ("topics", REQUIRED), ("kafkaParams", REQUIRED), ("fromOffsets", None)]),
        ("createRDD", [("sc", REQUIRED), ("kafkaParams", REQUIRED), ("offsetRanges", REQUIRED), ("leaders", None)]),
    ],
)
def test_the_factories_take_the_arguments_of_spark_2_4(name: str, first: list[tuple[str, Any]]) -> None:
    parameters = inspect.signature(getattr(KafkaUtils, name)).parameters.values()
    assert [(p.name, p.default) for p in parameters if p.kind != p.KEYWORD_ONLY] == first + DECODERS


def test_the_names_of_spark_2_4_are_there() -> None:
    for name in ("Broker", "KafkaMessageAndMetadata", "KafkaUtils", "OffsetRange", "TopicAndPartition", "utf8_decoder"):
        assert name in kstream_kafka.__all__ and hasattr(kstream_kafka, name)
    assert (utf8_decoder(None), utf8_decoder("ü".encode())) == (None, "ü")


@pytest.mark.parametrize("bootstrap", ["metadata.broker.list", "bootstrap.servers"])
def test_a_stream_gives_pairs_of_text_and_its_rdds_know_their_ranges(sc: SparkContext, address: str, bootstrap: str) -> None:
    """KP1: in foreachRDD with and without the time, which is a BatchTime, and in transform; the only range is [0, 6). KD4: listeners are
    told 6 from the beginning."""
    ssc, clock = job(sc)
    ssc.addStreamingListener(told := NumRecords())
    start = {TopicAndPartition("orders", 0): 0}
    stream = KafkaUtils.createDirectStream(ssc, ["orders"], {bootstrap: address}, start)
    seen: list[Any] = []

    def values(rdd: Any) -> Any:
        seen.append(("transform", rdd.offsetRanges()))
        return rdd.map(lambda pair: pair[1])

    pairs, texts = CollectedOutput(stream), CollectedOutput(stream.transform(values))
    stream.foreachRDD(lambda rdd: seen.append(("rdd", rdd.offsetRanges())))
    stream.foreachRDD(lambda time, rdd: seen.append((type(time), rdd.offsetRanges())))
    ssc.start()
    clock.advance(500)
    ssc.stop(stopSparkContext=False)
    ssc.awaitTermination(1)
    expected = [OffsetRange("orders", 0, 0, 6)]
    assert seen == [("transform", expected), ("rdd", expected), (BatchTime, expected)]
    assert issubclass(BatchTime, datetime)
    assert pairs.batches == [[(None if i == 0 else f"key {i}", f"value {i}") for i in range(6)]]
    assert texts.batches == [[f"value {i}" for i in range(6)]]
    assert told.heard == [("submitted", 6), ("started", 6), ("completed", 6)]


def test_decoders_and_a_message_handler_make_the_elements(sc: SparkContext, address: str) -> None:
    """KP1: the handler gets an object with key and message, and where they were."""
    ssc, clock = job(sc)

    def handle(m: KafkaMessageAndMetadata) -> tuple[Any, ...]:
        return m.topic, m.partition, m.offset, m.key, m.message

    stream = KafkaUtils.createDirectStream(
        ssc, ["orders"], {"metadata.broker.list": address, "auto.offset.reset": "smallest"}, {TopicAndPartition("orders", 0): 4},
        keyDecoder=lambda raw: raw and raw.upper(), valueDecoder=len, messageHandler=handle,
    )  # fmt: skip
    output = CollectedOutput(stream)
    ssc.start()
    clock.advance(500)
    ssc.stop(stopSparkContext=False)
    assert output.batches == [[("orders", 0, 4, b"KEY 4", 7), ("orders", 0, 5, b"KEY 5", 7)]]


def test_auto_offset_reset_speaks_the_words_of_spark_2_4(sc: SparkContext, address: str) -> None:
    """KD3: smallest begins at the first record, largest (the default) at what comes."""
    ssc, clock = job(sc)
    counts = [
        CollectedOutput(KafkaUtils.createDirectStream(ssc, ["orders"], {"metadata.broker.list": address, **reset}).count())
        for reset in ({"auto.offset.reset": "smallest"}, {"auto.offset.reset": "largest"}, {})
    ]
    ssc.start()
    clock.advance(500)
    ssc.stop(stopSparkContext=False)
    assert [output.batches for output in counts] == [[[6]], [[0]], [[0]]]


def test_after_a_restart_ranges_are_those_of_before_and_every_record_counts_once(
    sc: SparkContext, producer: Producer, address: str, tmp_path: Path
) -> None:
    """KD5: the first range begins at 0, the batch that runs again has the range it had, and the sum of 1 … 20 is 210."""
    clock, seen, sums = ManualClock(5000), list[dict[datetime, Any]](), list[int]()

    def life(portions: list[range], failing: int | None = None) -> None:
        ssc = StreamingContext(sc, 0.5, clock=clock)
        ssc.checkpoint(str(tmp_path))
        params = {"metadata.broker.list": address, "auto.offset.reset": "smallest"}
        stream = KafkaUtils.createDirectStream(ssc, ["numbers"], params)
        ranges: dict[datetime, Any] = {}
        seen.append(ranges)
        stream.foreachRDD(lambda time, rdd: ranges.update({time: rdd.offsetRanges()[0]}))

        def note(rdd: Any) -> None:
            if len(ranges) == failing:
                raise OSError("the sink is away")
            sums.append(dict(rdd.collect())["sum"])

        summed = stream.map(lambda pair: ("sum", int(pair[1]))).updateStateByKey(lambda values, state: sum(values) + (state or 0))
        summed.foreachRDD(note)
        if not portions:
            produce(range(11, 21))
        ssc.start()
        for portion in portions:
            produce(portion)
            clock.advance(500)
        clock.advance(0 if portions else 500)
        ssc.stop(stopSparkContext=False)

    def produce(numbers: range) -> None:
        for number in numbers:
            producer.produce("numbers", str(number), partition=0)
        assert producer.flush(10) == 0

    producer.list_topics("numbers", timeout=10)  # makes it
    life([range(1, 5), range(5, 8), range(8, 11)], failing=3)
    life([])
    first, second = seen
    begun = [(r.fromOffset, r.untilOffset) for r in first.values()]
    assert begun == [(0, 4), (4, 7), (7, 10)] and sums[:2] == [10, 28]
    failed = list(first)[-1]
    assert second[failed] == first[failed]
    assert [(r.fromOffset, r.untilOffset) for time, r in sorted(second.items()) if r.count() and time != failed] == [(10, 20)]
    assert sums[2:] == [55, 210]


def test_an_rdd_takes_ranges_leaders_and_a_handler(sc: SparkContext, address: str) -> None:
    """Spark behaviour KP1."""
    host, _, port = address.partition(":")
    leaders = {TopicAndPartition("orders", 0): Broker(host, int(port))}
    ranges = [OffsetRange("orders", 0, 1, 3), OffsetRange("orders", 0, 5, 6)]
    params = {"metadata.broker.list": address}
    plain = KafkaUtils.createRDD(sc, params, ranges)
    assert plain.collect() == [("key 1", "value 1"), ("key 2", "value 2"), ("key 5", "value 5")]
    assert (plain.offsetRanges(), plain.getNumPartitions()) == (ranges, 2)
    led = KafkaUtils.createRDD(sc, params, ranges, leaders)
    assert led.count() == 3
    handled = KafkaUtils.createRDD(sc, params, ranges, leaders, messageHandler=lambda m: f"{m.key}={m.message}")
    assert handled.first() == "key 1=value 1"


def test_ranges_partitions_and_brokers_are_values(sc: SparkContext) -> None:
    """KP1: equal and hashed by what they hold, also on the workers."""
    for make, other in (
        (lambda: OffsetRange("t", 0, 1, 5), OffsetRange("t", 0, 1, 6)),
        (lambda: TopicAndPartition("t", 0), TopicAndPartition("u", 0)),
        (lambda: Broker("h", 1), Broker("h", 2)),
    ):
        assert make() == make() != other and len({make(), make(), other}) == 2 and make() != "something else"
        assert sc.parallelize([make()], 1).map(lambda x: x).collect() == [make()]
