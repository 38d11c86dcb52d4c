"""How the tests of reading cases read: the same ranges as an RDD and as a DataFrame, and streams until something has come about."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kstream_kafka import ConsumerRecord, KafkaUtils, LocationStrategies, OffsetRange

from integration.kafka_handle import KafkaHandle
from kstream import StreamingContext

WAIT_S = 60


@dataclass(frozen=True)
class Reader:
    """Reads ranges in one of the two forms."""

    form: str
    sc: Any
    kafka: KafkaHandle

    def records(self, ranges: Sequence[OffsetRange], params: dict[str, Any] | None = None, **packing: int) -> list[ConsumerRecord]:
        """The records of the ranges, keys and values as bytes, headers as tuples; in the order read."""
        given = {"bootstrap.servers": self.kafka.bootstrap, **(params or {})}
        if self.form == "RDD":
            return KafkaUtils.createRDD(
                self.sc, given, ranges, LocationStrategies.PreferConsistent, keyDecoder=None, valueDecoder=None, **packing
            ).collect()  # fmt: skip
        from pyspark.sql import SparkSession

        rows = KafkaUtils.createDataFrame(SparkSession(self.sc), given, ranges, **packing).collect()
        return [
            ConsumerRecord(
                r.topic, r.partition, r.offset, round(r.timestamp.timestamp() * 1000), r.timestampType,
                _bytes(r.key), _bytes(r.value), tuple((h.key, _bytes(h.value)) for h in r.headers or ()), None,
            )
            for r in rows
        ]  # fmt: skip

    def offsets(self, topic: str, start: int, until: int, params: dict[str, Any] | None = None) -> list[int]:
        """Offsets of the records in [start, until) of partition 0."""
        return [record.offset for record in self.records([OffsetRange(topic, 0, start, until)], params)]


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


class Collected:
    """What a stream handed out, batch by batch; also batches that failed."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.ranges: list[OffsetRange] = []
        self.records: list[Any] = []
        self.batches = 0
        self._before = before

    def __call__(self, _time: datetime, rdd: Any) -> None:
        """For foreachRDD: `before` runs between plan and read."""
        self.batches += 1
        self.ranges += [r for r in rdd.offsetRanges() if r.count()]
        self._before()
        self.records += rdd.collect()


@contextmanager
def running(ssc: StreamingContext) -> Iterator[StreamingContext]:
    """The context, started; stopped at the end of the block, Spark left running."""
    try:
        ssc.start()
        yield ssc
    finally:
        ssc.stop(stopSparkContext=False)


def wait_until(reached: Callable[[], Any], what: str, seconds: float = WAIT_S) -> None:
    """Returns when it has come about; AssertionError with `what` when it has not in time."""
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, f"{what} did not come about within {seconds} s"
        time.sleep(0.05)


def error_of(ssc: StreamingContext, seconds: float = WAIT_S) -> str:
    """What awaitTermination raises, as text; AssertionError if it raises nothing in time."""
    try:
        ssc.awaitTerminationOrTimeout(seconds)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    raise AssertionError(f"awaitTermination raised nothing within {seconds} s")


def chain_of(ranges: list[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """The same ranges if they tile [0, end), else what they should have been."""
    position, expected = 0, []
    for _start, until in ranges:
        expected.append((position, until))
        position = until
    return expected if position == end else [*expected, (position, end)]
