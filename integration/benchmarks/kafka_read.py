"""Reading bars: a KafkaRDD in one task against a plain confluent-kafka loop, and a one-record range against the bare task.

    python -m integration.benchmarks.kafka_read [--bootstrap HOST:PORT] [--records N] [--rounds N]

Without an address it starts a broker of its own. Both sides do the same work in one process: sum the lengths of the values (and of
the keys). The plain loop has our fetch sizes: with librdkafka's defaults it is several times slower, since it stops fetching for a
second whenever 100,000 records wait (`fetch.queue.backoff.ms`). The sides take turns within one run, since machines are noisy and
only the ratio is worth anything; medians are compared. Ends with status 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kstream_kafka import KafkaRDD, OffsetRange, utf8_decoder, value_only
from kstream_kafka.decoding import Decoding
from kstream_kafka.params import KafkaParams, bulk
from pyspark import SparkConf

from integration.kafka_broker import running_broker
from kstream.spark.spark_context import make_spark_context
from kstream.spark.worker_rdd import WorkerRDD

VALUE = b"x" * 100


@dataclass(frozen=True)
class Bar:
    """A comparison: the ratio `ours / other` (of speeds or of times) must be on the right side of `limit`."""

    name: str
    ours: str
    other: str
    limit: float
    at_least: bool

    def met(self, ratio: float) -> bool:
        return ratio >= self.limit if self.at_least else ratio <= self.limit


BARS = (
    Bar("values: KafkaRDD / plain loop", "values", "plain values", 0.8, True),
    Bar("(key, value) bytes: KafkaRDD / plain loop", "pairs", "plain pairs", 0.6, True),
    Bar("(key, value) text: KafkaRDD / plain loop", "text pairs", "plain text pairs", 0.6, True),
    Bar("one-record range: time / bare task", "one record", "bare task", 1.3, False),
)


def make_topic(bootstrap: str, records: int) -> str:
    """A topic of one partition with so many records of 100 B, with keys."""
    topic = "bench-" + uuid.uuid4().hex[:8]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for i in range(records):
        while True:
            try:
                producer.produce(topic, VALUE, str(i).encode(), partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        if i % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("could not produce the records")
    return topic


def plain_loop(consumer: Consumer, topic: str, records: int, of_chunk: Callable[[list[Any]], int]) -> int:
    """What anyone would write: consume(10000) until all are read. The consumer is live already, as a warm worker's is."""
    consumer.assign([TopicPartition(topic, 0, 0)])
    total = seen = 0
    while seen < records:
        messages = consumer.consume(min(10_000, records - seen), 1.0)
        seen += len(messages)
        total += of_chunk(messages)
    consumer.unassign()
    return total


def sum_values(messages: list[Any]) -> int:
    return sum(len(m.value()) for m in messages)


def sum_pairs(messages: list[Any]) -> int:
    return sum(len(m.key()) + len(m.value()) for m in messages)


def sum_text_pairs(messages: list[Any]) -> int:
    return sum(len(m.key().decode()) + len(m.value().decode()) for m in messages)


def sides(sc: Any, bootstrap: str, topic: str, records: int) -> dict[str, Callable[[], Any]]:
    """What is timed, by name. Each whole-topic side returns the sum, which must be the same for both of a pair."""
    executor = KafkaParams.parse({"bootstrap.servers": bootstrap}).executor()
    whole, one = [OffsetRange(topic, 0, 0, records)], [OffsetRange(topic, 0, records // 2, records // 2 + 1)]

    def rdd(ranges: list[OffsetRange], decoding: Decoding) -> KafkaRDD:
        return KafkaRDD(sc, ranges, executor, decoding)

    plain = Consumer(bulk(executor))
    values = Decoding(None, None, value_only)
    pair_length = lambda kv: len(kv[0]) + len(kv[1])  # noqa: E731
    return {
        "values": lambda: rdd(whole, values).map(len).sum(),
        "plain values": lambda: plain_loop(plain, topic, records, sum_values),
        "pairs": lambda: rdd(whole, Decoding(None, None)).map(pair_length).sum(),
        "plain pairs": lambda: plain_loop(plain, topic, records, sum_pairs),
        "text pairs": lambda: rdd(whole, Decoding(utf8_decoder, utf8_decoder)).map(pair_length).sum(),
        "plain text pairs": lambda: plain_loop(plain, topic, records, sum_text_pairs),
        "one record": lambda: rdd(one, values).map(len).sum(),
        "bare task": lambda: WorkerRDD(sc, 1, lambda _: iter([VALUE])).map(len).sum(),
    }


def measure(todo: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each side; sides take turns, quick ones ten times a round. The first round is to warm up."""
    quick = {"one record", "bare task"}
    times: dict[str, list[float]] = {name: [] for name in todo}
    for number in range(rounds + 1):
        for names in ([n for n in todo if n not in quick], [n for n in todo if n in quick] * 10):
            for name in names:
                began = time.perf_counter()
                todo[name]()
                if number:
                    times[name].append(time.perf_counter() - began)
    return {name: statistics.median(t) for name, t in times.items()}


def report(seconds: dict[str, float], records: int) -> bool:
    """Prints the table; whether all bars are met."""
    good = True
    for bar in BARS:
        ours, other = seconds[bar.ours], seconds[bar.other]
        ratio = other / ours if bar.at_least else ours / other
        good = good and bar.met(ratio)
        speed = f"{records / ours / 1e6:.2f} M/s against {records / other / 1e6:.2f}" if bar.at_least else (
            f"{ours * 1000:.1f} ms against {other * 1000:.1f}")  # fmt: skip
        sign = "≥" if bar.at_least else "≤"
        print(f"{'ok  ' if bar.met(ratio) else 'MISS'} {bar.name:45} {ratio:5.2f} (bar {sign} {bar.limit})   {speed}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--bootstrap", help="a broker that runs; default: one is started")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.bootstrap:
        return run(args.bootstrap, args.records, args.rounds)
    with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory)) as broker:
        return run(broker.bootstrap, args.records, args.rounds)


def run(bootstrap: str, records: int, rounds: int) -> int:
    """Makes the topic and a Spark of one core, measures, cleans up; the exit status."""
    topic = make_topic(bootstrap, records)
    conf = SparkConf().setMaster("local[1]").setAppName("kafka_read").set("spark.ui.enabled", "false")
    sc = make_spark_context(conf.set("spark.ui.showConsoleProgress", "false"))
    sc.setLogLevel("ERROR")
    try:
        seconds = measure(sides(sc, bootstrap, topic, records), rounds)
    finally:
        sc.stop()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics([topic])[topic].result(30)
    return 0 if report(seconds, records) else 1


if __name__ == "__main__":
    sys.exit(main())
