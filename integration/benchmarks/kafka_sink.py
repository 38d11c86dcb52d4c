"""What the Kafka sink costs: a batch of 100,000 records in 16 partitions, written by three outputs in turns.

    python -m integration.benchmarks.kafka_sink [--rounds N] [--records N]

Each output writes the same RDD to a topic of its own. The plain loop has a producer of confluent-kafka in each worker process, kept for all
tasks. Its settings are those of the sink: idempotent, with acks of all replicas. The bars: exactly-once has 0.7 of the rate of
at-least-once, and at-least-once 0.8 of the plain loop's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from kstream_kafka import kafka_output
from pyspark import RDD, SparkConf

from integration.kafka_broker import running_broker
from kstream.batch_time import Time
from kstream.output import Output, OutputBatch, Writer
from kstream.spark.spark_context import make_spark_context
from kstream.worker.process import once

PARTITIONS, TOPIC_PARTITIONS = 16, 4
VALUE = b"v" * 100
AT_LEAST_ONCE_BAR, EXACTLY_ONCE_BAR = 0.8, 0.7


def loop(bootstrap: str, topic: str, values: Iterable[bytes]) -> None:
    """What a user writes by hand, with a producer that is kept."""
    from confluent_kafka import Producer  # here, because the class cannot be sent to a worker

    producer: Any = once("plain loop", lambda: Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"}))
    for value in values:
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


class Sides:
    """The outputs, by name: each writes an RDD once."""

    def __init__(self, bootstrap: str) -> None:
        params = {"bootstrap.servers": bootstrap}
        self._bootstrap = bootstrap
        self._encode, output, _ = kafka_output("exactly-once", params, {}, "exactly-once", None, "bench", "fail", True)
        assert isinstance(output, Output)
        self._exactly_once = output
        output.restore(Writer("bench", 1, "driver", {1: "driver"}.get, lambda _time, _nonce: True), None)
        self._encode_too, by_function, _ = kafka_output("at-least-once", params, {}, "at-least-once", None, "bench", "fail", True)
        assert not isinstance(by_function, Output)
        self._at_least_once = by_function
        self._batch = 0
        self.all: dict[str, Callable[[RDD[bytes]], object]] = {
            "plain loop": lambda rdd: rdd.foreachPartition(partial(loop, bootstrap, "plain")),
            "at-least-once": lambda rdd: self._at_least_once(Time(1000), rdd.map(self._encode_too)),
            "exactly-once": self.exactly_once,
        }

    def exactly_once(self, rdd: RDD[bytes]) -> None:
        self._batch += 1
        batch, encoded = OutputBatch(Time(self._batch * 1000), "plan", is_first_try=True), rdd.map(self._encode)
        self._exactly_once.run(batch, encoded, self._exactly_once.prepare(batch, encoded))


def values(count: int) -> Callable[[int, Iterable[Any]], Iterable[bytes]]:
    return lambda _partition, _nothing: (VALUE for _ in range(count))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, default=100_000)
    options = parser.parse_args()
    conf = SparkConf().setMaster("local[2]").setAppName("kafka sink").set("spark.ui.enabled", "false")
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as work, running_broker(Path(work)) as broker, make_spark_context(conf) as sc:
        sc.setLogLevel("ERROR")
        for topic in ("plain", "at-least-once", "exactly-once"):
            broker.create_topic(topic, TOPIC_PARTITIONS)
        rdd = sc.parallelize(range(PARTITIONS), PARTITIONS).mapPartitionsWithIndex(values(options.records // PARTITIONS))
        sides = Sides(broker.bootstrap).all
        for number in range(options.rounds + 1):
            for side in sides if number % 2 else reversed(sides):
                began = time.perf_counter()
                sides[side](rdd)
                if number:  # in the first round workers start
                    found.setdefault(side, []).append(time.perf_counter() - began)
    seconds = {side: statistics.median(times) for side, times in found.items()}
    at_least, exactly = seconds["plain loop"] / seconds["at-least-once"], seconds["at-least-once"] / seconds["exactly-once"]
    bars = [("at-least-once / plain loop", at_least, AT_LEAST_ONCE_BAR), ("exactly-once / at-least-once", exactly, EXACTLY_ONCE_BAR)]
    for words, ratio, bar in bars:
        print(f"{'ok  ' if ratio >= bar else 'MISS'} {words}: {ratio:.2f} (bar: >= {bar})")
    print("  " + ", ".join(f"{side} {took * 1000:.0f} ms" for side, took in seconds.items()))
    return 0 if at_least >= AT_LEAST_ONCE_BAR and exactly >= EXACTLY_ONCE_BAR else 1


if __name__ == "__main__":
    sys.exit(main())
