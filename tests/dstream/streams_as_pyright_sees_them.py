# pyright: strict
"""Checked by pyright in test_types.py, never run. A line with `# refused: WORDS` must be an error with these words, the others none."""

from datetime import datetime
from operator import add, sub
from typing import Any

from kstream_kafka import ConsumerStrategies, KafkaRDD, KafkaUtils, LocationStrategies
from pyspark import RDD
from typing_extensions import assert_type

from kstream import BatchTime, DStream, Seconds, State, StateSpec, StreamingContext, Time
from kstream.direct.log_input_dstream import LogInputDStream

Pairs = DStream[tuple[str, int]]


def records(ssc: StreamingContext) -> None:
    lines = ssc.textFileStream("/in")
    assert_type(lines, DStream[str])
    assert_type(lines.map(len), DStream[int])
    assert_type(lines.flatMap(str.split).filter(bool), DStream[str])
    assert_type(lines.mapPartitions(lambda it: [sum(map(len, it))]), DStream[int])
    assert_type(lines.glom(), DStream[list[str]])
    assert_type(lines.count(), DStream[int])
    assert_type(lines.countByValue(), Pairs)
    assert_type(lines.map(len).reduce(add), DStream[int])
    assert_type(lines.window(Seconds(4), 2), DStream[str])
    assert_type(lines.cache().setName("lines").checkpoint(10), DStream[str])
    assert_type(lines.union(lines.map(len)), DStream[str | int])
    assert_type(ssc.union(lines, lines), DStream[str])
    assert_type(ssc.queueStream([[1, 2], [3]]), DStream[int])


def pairs(lines: DStream[str]) -> None:
    counts = lines.flatMap(str.split).map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b)
    assert_type(counts, Pairs)
    assert_type(counts.mapValues(float), DStream[tuple[str, float]])
    assert_type(counts.join(counts.mapValues(str)), DStream[tuple[str, tuple[int, str]]])
    assert_type(counts.leftOuterJoin(counts), DStream[tuple[str, tuple[int, int | None]]])
    assert_type(counts.reduceByKeyAndWindow(add, sub, 4, 2), Pairs)
    assert_type(counts.combineByKey(str, lambda a, b: a + str(b), add), DStream[tuple[str, str]])
    counts.foreachRDD(lambda rdd: assert_type(rdd, RDD[tuple[str, int]]))


def states(counts: Pairs) -> None:
    def total(values: list[int], before: int | None) -> int | None:
        return sum(values) + (before or 0)

    def with_key(time: Time, key: str, values: list[int], before: float | None) -> float | None:
        return before if key else None

    def mapped(key: str, value: int | None, state: State) -> str:
        return key

    assert_type(counts.updateStateByKey(total), Pairs)
    assert_type(counts.updateStateByKey(with_key, 2, [("a", 1.0)]), DStream[tuple[str, float]])
    assert_type(counts.updateStateByKey(lambda values, before: sum(values) + (before or 0)), Pairs)
    assert_type(counts.mapWithState(StateSpec.function(mapped)).stateSnapshots(), DStream[tuple[Any, Any]])


def of_rdds(lines: DStream[str]) -> None:
    def with_time(time: datetime, rdd: RDD[str]) -> RDD[int]:
        return rdd.map(len)

    assert_type(lines.transform(with_time), DStream[int])
    assert_type(lines.transform(lambda rdd: rdd.map(len)), DStream[int])
    lines.foreachRDD(lambda time, rdd: print(assert_type(time, BatchTime), assert_type(rdd, RDD[str])))
    assert_type(lines.transformWith(lambda a, b: a.union(b), lines), DStream[str])


def with_ranges(ssc: StreamingContext, kafka: dict[str, str], rows: LogInputDStream) -> None:
    orders = KafkaUtils.createDirectStream(ssc, ["orders"], kafka)
    records = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, ConsumerStrategies.Subscribe(["orders"], kafka))

    def save(time: BatchTime, rdd: KafkaRDD) -> None:
        print(time.milliseconds, rdd.offsetRanges())
        records.commitAsync(rdd.offsetRanges())

    def lines(rdd: KafkaRDD) -> RDD[str]:
        return rdd.map(lambda record: f"{record} of {rdd.offsetRanges()}")

    def count(rdd: RDD[str]) -> int:
        return rdd.count()

    orders.foreachRDD(lambda time, rdd: print(assert_type(time, BatchTime), assert_type(rdd, KafkaRDD).offsetRanges()))
    orders.foreachRDD(lambda rdd: records.commitAsync(rdd.offsetRanges()))
    orders.setName("orders").cache().foreachRDD(save)
    orders.foreachRDD(count)
    assert_type(records.transform(lines), DStream[str])
    assert_type(records.transform(lambda time, rdd: rdd.map(lambda _: len(rdd.offsetRanges()))), DStream[int])
    rows.foreachRDD(lambda rdd: print(rdd.offsetRanges(), rdd.count()))
    rows.foreachRDD(lambda time, rdd: print(time, rdd.offsetRanges()))
    assert_type(rows.transform(lambda rdd: rdd.map(lambda _: len(rdd.offsetRanges()))), DStream[int])
    orders.map(len).foreachRDD(lambda rdd: rdd.offsetRanges())  # refused: Cannot access attribute "offsetRanges"


def refused(lengths: DStream[int], counts: Pairs) -> None:
    lengths.reduceByKey(add)  # refused: "DStream[int]" is not assignable to "DStream[tuple[
    lengths.join(counts)  # refused: Could not bind method "join"
    lengths.map(str.split)  # refused: "int" is not assignable to "str"
    counts.mapValues(str.split)  # refused: "int" is not assignable to "str"
    counts.getOrCompute(0)  # refused: Cannot access attribute "getOrCompute"
    assert counts._node  # refused: "_node" is protected
