"""A failure in a job on the real broker names the record that failed, and `awaitTermination` raises the user's exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kstream_kafka import ConsumerStrategies, KafkaRDD, KafkaUtils, LocationStrategies, OffsetRange, value_only
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.planning.packing import Packing, RangeSplit
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_reads import RangeReads
from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException

from integration.kafka_broker import KafkaBroker
from kstream import StreamingContext
from kstream.errors import task_of, where_of
from kstream.spark.task_errors import raising_the_users_error

PARTITIONS, RECORDS = 3, 10
BAD = (1, 7)
"""Partition and offset of the one bad record."""


class BadOrder(Exception):
    """The user's own, with a constructor that pickle cannot call."""

    def __init__(self, value: str, reason: str) -> None:
        super().__init__(f"{value}: {reason}")


def check(value: str) -> str:
    if value == "poison":
        raise BadOrder(value, "no order")
    return value


def decoder(raw: bytes | None) -> str:
    return check((raw or b"").decode())


def check_pair(pair: Any) -> Any:
    return check(pair[1])


def sent(records: Any) -> None:
    for _, value in records:
        check(value)


OLD_FORM: dict[str, Callable[[Any], Any]] = {
    "map": lambda s: s.map(check_pair).pprint(100),
    "flatMap": lambda s: s.flatMap(lambda pair: [check_pair(pair)]).pprint(100),
    "filter": lambda s: s.filter(check_pair).count().pprint(100),
    "mapValues": lambda s: s.mapValues(check).pprint(100),
    "reduceByKey": lambda s: s.reduceByKey(lambda a, b: check(a) and check(b)).pprint(100),
    "transform": lambda s: s.transform(lambda rdd: rdd.map(check_pair)).pprint(100),
    "an action inside transform": lambda s: s.transform(lambda rdd: rdd.ctx.parallelize(rdd.map(check_pair).collect())).pprint(100),
    "foreachRDD": lambda s: s.foreachRDD(lambda rdd: rdd.map(check_pair).collect()),
    "foreach": lambda s: s.foreachRDD(lambda rdd: rdd.foreach(check_pair)),
    "map behind a cache": lambda s: s.map(lambda pair: pair).cache().map(check_pair).pprint(100),
    "two operators behind a cache": lambda s: s.cache().mapValues(str).filter(check_pair).count().pprint(100),
    "map beside a window": lambda s: (s.window(2).count().pprint(), s.map(check_pair).pprint(100)),
    "map under foreachPartition": lambda s: s.map(check_pair).foreachRDD(lambda rdd: rdd.foreachPartition(list)),
}
LAST: dict[str, Callable[[Any], Any]] = {
    "foreachPartition": lambda s: s.foreachRDD(lambda rdd: rdd.foreachPartition(sent)),
    "mapPartitions": lambda s: s.mapPartitions(lambda records: (check_pair(r) for r in records)).pprint(100),
}


@pytest.fixture(scope="module")
def orders(kafka: KafkaBroker) -> str:
    name = "named-orders"
    kafka.create_topic(name, PARTITIONS, None)
    values = [(p, at, "poison" if (p, at) == BAD else "fine") for p in range(PARTITIONS) for at in range(RECORDS)]
    kafka.produce(name, [("k", value, p) for p, _, value in values])
    return name


def failure(sc: Any, kafka: KafkaBroker, topic: str, job: Callable[[Any], Any], **options: Any) -> BadOrder:
    """Run a job until it fails."""
    ssc = StreamingContext(sc, 1)
    params = {"bootstrap.servers": kafka.bootstrap, "auto.offset.reset": "smallest"}
    stream: Any
    if options.pop("new_form", False):
        strategy = ConsumerStrategies.Subscribe([topic], {**params, "auto.offset.reset": "earliest", "group.id": "named"})
        stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy, **options)
    else:
        stream = KafkaUtils.createDirectStream(ssc, [topic], params, **options)
    job(stream)
    try:
        ssc.start()
        with pytest.raises(BadOrder) as caught:
            ssc.awaitTerminationOrTimeout(60)
    finally:
        ssc.stop(stopSparkContext=False)
    assert str(caught.value) == "poison: no order" and isinstance(caught.value.__cause__, Py4JJavaError | PythonException)
    return caught.value


@pytest.mark.parametrize("case", OLD_FORM)
def test_the_record_is_named_to_the_offset(sc: Any, kafka: KafkaBroker, orders: str, case: str) -> None:
    said = where_of(failure(sc, kafka, orders, OLD_FORM[case]))
    assert f", record {orders}-1@7 (20" in said and f"{__file__}:" in said, said


@pytest.mark.parametrize("case", LAST)
def test_a_function_of_partitions_is_told_the_last_record(sc: Any, kafka: KafkaBroker, orders: str, case: str) -> None:
    said = where_of(failure(sc, kafka, orders, LAST[case]))
    assert f"last record handed out: {orders}-1@7 (20" in said, said


def test_behind_the_persisted_records_of_a_window_no_record_is_named(sc: Any, kafka: KafkaBroker, orders: str) -> None:
    said = where_of(failure(sc, kafka, orders, lambda s: s.window(2).map(check_pair).pprint(100)))
    assert "named-orders" not in said and "in output operation 0, pprint at" in said, said


@pytest.mark.parametrize("operation", ["map", "foreachPartition"])
def test_a_record_of_the_new_form_is_named(sc: Any, kafka: KafkaBroker, orders: str, operation: str) -> None:
    job: Callable[[Any], Any] = lambda s: s.map(lambda r: check(r.value)).foreachRDD(lambda rdd: rdd.foreachPartition(list))  # noqa: E731
    if operation == "foreachPartition":
        job = lambda s: s.foreachRDD(lambda rdd: rdd.foreachPartition(lambda records: [check(r.value) for r in records]))  # noqa: E731
    said = where_of(failure(sc, kafka, orders, job, new_form=True))
    assert f"{orders}-1@7 (20" in said and (", record " in said) == (operation == "map"), said


@pytest.mark.parametrize(
    "options",
    [
        {"valueDecoder": decoder},
        {"keyDecoder": None, "valueDecoder": decoder, "messageHandler": value_only},
        {"messageHandler": lambda m: check(m.message)},
        {"valueDecoder": decoder, "new_form": True},
    ],
    ids=["pairs", "values", "messageHandler", "new form"],
)
def test_a_record_that_a_decoder_cannot_read_is_named(sc: Any, kafka: KafkaBroker, orders: str, options: dict[str, Any]) -> None:
    said = where_of(failure(sc, kafka, orders, lambda s: s.foreachRDD(lambda rdd: rdd.foreachPartition(list)), **options))
    assert f"record {orders}-1@7 (20" in said and "last record" not in said, said


@pytest.mark.parametrize("packing", [Packing(1), Packing(2), Packing(100, 4)], ids=["packed", "packed into two", "split"])
def test_a_record_of_packed_and_split_ranges_is_named(sc: Any, kafka: KafkaBroker, orders: str, packing: Packing) -> None:
    ranges = [OffsetRange(orders, p, 2, RECORDS) for p in range(PARTITIONS)]
    executor = KafkaParams.parse({"bootstrap.servers": kafka.bootstrap}).executor()
    rdd = KafkaRDD(sc, ranges, RangeReads.of([RangeSplit(r) for r in ranges], executor, 20_000, packing), Decoding())
    with pytest.raises(BadOrder) as caught, raising_the_users_error():
        rdd.map(check_pair).collect()
    assert f", record {orders}-1@7 (20" in task_of(caught.value)
