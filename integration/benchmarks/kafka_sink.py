"""What the Kafka sink costs: a batch of 100,000 records in 16 partitions, written by each output in turns.

    python -m integration.benchmarks.kafka_sink [--rounds N] [--records N] [--alone]

Each output writes the same RDD of pairs to a topic of its own. The plain loop has a producer of confluent-kafka in each worker process,
kept for all tasks. Its settings are those of the sink: idempotent, with acks of all replicas. Spark's sink is `df.write.format("kafka")`,
in a Spark of its own. It writes the same RDD as a DataFrame, and, as a report, as many records made in the JVM. Where its jars cannot be
had one line says why. Bare transactions are exactly-once without digests and receipts.

The bars: exactly-once has 0.7 of the rate of at-least-once, at-least-once has 0.8 of the plain loop's and no less than Spark's, and
digests and receipts have a tenth of the time at most.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from kstream_kafka import kafka_output
from kstream_kafka.sink import kafka_output as driver_half
from kstream_kafka.sink.spool import digests_of
from pyspark import RDD

from integration.benchmarks import jvm_sink
from integration.benchmarks.bare_transaction import BareWriter
from integration.benchmarks.connector_process import running_script
from integration.benchmarks.harness import add_alone, parser_of, running_kafka, running_spark, seconds_in_turns
from integration.benchmarks.jvm_parts import PartsMissingError, connector_parts
from integration.benchmarks.jvm_sink import pairs
from kstream.batch_time import Time
from kstream.output import Output, OutputBatch, Writer
from kstream.worker.process import once

PARTITIONS, TOPIC_PARTITIONS = 16, 4
LOOP, AT_LEAST_ONCE, EXACTLY_ONCE, BARE = "plain loop", "at-least-once", "exactly-once", "bare transactions"
SPARK, SPARK_JVM = "Spark's sink", "Spark's sink, records of the JVM"
RATIOS = [(AT_LEAST_ONCE, LOOP, 0.8), (EXACTLY_ONCE, AT_LEAST_ONCE, 0.7), (AT_LEAST_ONCE, SPARK, 1.0)]
"""An output, the one that it is compared with, and the least part of that one's rate."""
MOST_SHARE = 0.1
WARM_UP = 1
Pair = tuple[bytes, bytes]
Side = Callable[[], object]
"""Writes the records once."""


def loop(bootstrap: str, topic: str, records: Iterable[Pair]) -> None:
    """What a user writes by hand, with a producer that is kept."""
    from confluent_kafka import Producer  # here, because the class cannot be sent to a worker

    producer: Any = once("plain loop", lambda: Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"}))
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


class ExactlyOnce:
    """An output of a driver that writes batch after batch."""

    def __init__(self, params: Mapping[str, Any], topic: str) -> None:
        self._encode, output, _ = kafka_output(topic, params, {}, "exactly-once", None, "bench", "fail", True)
        assert isinstance(output, Output)
        self._output = output
        output.restore(Writer("bench", 1, "driver", {1: "driver"}.get, lambda _time, _nonce: True), None)
        self._batch = 0

    def write(self, rdd: RDD[Pair]) -> None:
        self._batch += 1
        batch, encoded = OutputBatch(Time(self._batch * 1000), "plan", is_first_try=True), rdd.map(self._encode)
        self._output.run(batch, encoded, self._output.prepare(batch, encoded))

    def write_bare(self, rdd: RDD[Pair]) -> None:
        with mock.patch.object(driver_half, "KafkaPartitionWriter", BareWriter):
            self.write(rdd)


def our_sides(bootstrap: str, rdd: RDD[Pair]) -> dict[str, Side]:
    params = {"bootstrap.servers": bootstrap}
    encode, by_function, _ = kafka_output(AT_LEAST_ONCE, params, {}, "at-least-once", None, "bench", "fail", True)
    assert not isinstance(by_function, Output)
    exactly_once, bare = ExactlyOnce(params, EXACTLY_ONCE), ExactlyOnce(params, topic_of(BARE))
    return {
        LOOP: lambda: rdd.foreachPartition(partial(loop, bootstrap, topic_of(LOOP))),
        AT_LEAST_ONCE: lambda: by_function(Time(1000), rdd.map(encode)),
        EXACTLY_ONCE: lambda: exactly_once.write(rdd),
        BARE: lambda: bare.write_bare(rdd),
    }


@contextmanager
def sparks_sides(bootstrap: str, records: int, log: Path, alone: bool) -> Iterator[dict[str, Side]]:
    """Those of Spark's sink, by name; none if they cannot be had, after a line that says why."""
    try:
        python, jars, version = connector_parts(alone)
    except PartsMissingError as e:
        print(f"no comparison with Spark's sink: {e}")
        yield {}
        return
    print(f"Spark's sink: version {version}")
    with running_script(python, jvm_sink.__file__, [",".join(map(str, jars)), bootstrap, PARTITIONS, records], log) as ask:
        yield {SPARK: lambda: ask(f"rdd {topic_of(SPARK)}"), SPARK_JVM: lambda: ask(f"jvm {topic_of(SPARK_JVM)}")}


def topic_of(side: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in side)


def report(found: Mapping[str, list[float]]) -> bool:
    """Print what was found. Return whether all bars are met."""
    seconds = {side: statistics.median(times) for side, times in found.items()}
    met: list[bool] = []
    for side, other, bar in RATIOS:
        if other in seconds:
            met.append((ratio := seconds[other] / seconds[side]) >= bar)
            print(f"{'ok  ' if met[-1] else 'MISS'} {side} / {other}: {ratio:.2f} (bar: >= {bar})")
    share = statistics.median(1 - bare / whole for bare, whole in zip(found[BARE], found[EXACTLY_ONCE], strict=True))
    met.append(share <= MOST_SHARE)
    print(f"{'ok  ' if met[-1] else 'MISS'} digests and receipts in the time of exactly-once: {share:.1%} (bar: <= {MOST_SHARE:.0%})")
    print("  " + ", ".join(f"{side} {took * 1000:.0f} ms" for side, took in seconds.items()))
    return all(met)


def seconds_of_digests(records: int) -> float:
    """Seconds of one core for the digests of so many records."""
    encoded = [("topic", key, value, (), None, None) for key, value in pairs(records)(0, ())]
    began = time.perf_counter()
    digests_of(encoded)
    return time.perf_counter() - began


def main() -> int:
    parser = parser_of(__doc__, rounds=7, records=100_000)
    add_alone(parser)
    options = parser.parse_args()
    with running_kafka() as (kafka, work), running_spark("kafka sink") as sc:
        for side in (LOOP, AT_LEAST_ONCE, EXACTLY_ONCE, BARE, SPARK, SPARK_JVM):
            kafka.create_topic(topic_of(side), TOPIC_PARTITIONS)
        rdd = sc.parallelize(range(PARTITIONS), PARTITIONS).mapPartitionsWithIndex(pairs(options.records // PARTITIONS))
        with sparks_sides(kafka.bootstrap, options.records, work / "spark.log", options.alone) as others:
            found = seconds_in_turns({**our_sides(kafka.bootstrap, rdd), **others}, options.rounds, WARM_UP)
    has_met = report(found)
    print(f"  digests alone: {seconds_of_digests(options.records) * 1000:.0f} ms of one core for {options.records:,} records")
    return 0 if has_met else 1


if __name__ == "__main__":
    sys.exit(main())
