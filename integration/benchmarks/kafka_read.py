"""Reading bars: a KafkaRDD in one task against a plain confluent-kafka loop, and small ranges against the bare task and one another.

    python -m integration.benchmarks.kafka_read [--bootstrap HOST:PORT] [--records N] [--rounds N]

Without an address it starts a broker of its own. Both sides do the same work in one process: sum the lengths of the values (and of
the keys); for full records both make the same ConsumerRecords, of records with a header, and sum the lengths of their values. The
plain loop has our fetch sizes: with librdkafka's defaults it is several times slower, since it stops fetching for a second whenever
100,000 records wait (`fetch.queue.backoff.ms`).

The packed bar compares 1,000 partitions of one record each with 16 of one record each, both with maxTasks=2, a task a core, and with
leader epochs, as a stream has them: two tasks on either side, so that only the number of partitions differs. All else is one task.

The sides take turns within one run, since machines are noisy and only the ratio is worth anything; medians are compared. Ends with
status 1 when a bar is missed.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from kstream_kafka import ConsumerRecord, KafkaRDD, OffsetRange, consumer_record, utf8_decoder, value_only
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams, bulk
from kstream_kafka.client.ports import LogEnd
from kstream_kafka.planning.packing import Packing, RangeSplit
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_reads import RangeReads

from integration.benchmarks.harness import add_bootstrap, make_topic, parser_of, running_kafka, running_spark
from integration.kafka_handle import KafkaHandle, Record
from kstream.offsets.offset_range import Partition
from kstream.spark.worker_rdd import WorkerRDD

VALUE = b"x" * 100
NOW = 0
"""For librdkafka, the timestamp of a record."""
CORES = 2


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
    Bar("full records: KafkaRDD / plain loop", "records", "plain records", 0.5, True),
    Bar("one-record range: time / bare task", "one record", "bare task", 1.3, False),
    Bar("1,000 one-record partitions packed / 16: time", "1,000 partitions", "16 partitions", 3, False),
)
QUICK = frozenset(name for bar in BARS if not bar.at_least for name in (bar.ours, bar.other))


@dataclass(frozen=True)
class Topics:
    """What is read: by name `plain` and `headed` of one partition, and the whole of a topic of one record a partition, by size."""

    plain: str
    headed: str
    spread: dict[int, tuple[list[OffsetRange], list[int | None]]]

    @staticmethod
    def make(kafka: KafkaHandle, records: int) -> Topics:
        spread: dict[int, tuple[list[OffsetRange], list[int | None]]] = {}
        for size in (1000, 16):
            name = make_topic(kafka, records_of(size, size), size)
            ends = ends_of(kafka.bootstrap, name, size)
            assert {end.offset for end in ends.values()} == {1}
            spread[size] = ([OffsetRange(*p, 0, 1) for p in ends], [end.leader_epoch for end in ends.values()])
        headed = ((*record, NOW, [("id", b"1")]) for record in records_of(records))
        return Topics(make_topic(kafka, records_of(records)), make_topic(kafka, headed), spread)

    @property
    def names(self) -> list[str]:
        return [self.plain, self.headed, *(ranges[0].topic for ranges, _ in self.spread.values())]


def ends_of(bootstrap: str, topic: str, partitions: int) -> dict[Partition, LogEnd]:
    """The ends of all logs, with their leader epochs."""
    client = KafkaDriverClient(KafkaParams.parse({"bootstrap.servers": bootstrap}))
    return client.latest([(topic, i) for i in range(partitions)])


def records_of(count: int, partitions: int = 1) -> Iterator[Record]:
    """Records of 100 B with keys, partitions in turns."""
    return ((str(i).encode(), VALUE, i % partitions) for i in range(count))


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


def plain_records(consumer: Consumer, topic: str, records: int) -> int:
    """The plain loop that makes ConsumerRecords, without the driver's objects: so many tuples set off Python's collector time and again,
    and in a driver it has far more to look at than in a worker or a plain program."""
    gc.freeze()
    try:
        return plain_loop(consumer, topic, records, sum_records)
    finally:
        gc.unfreeze()


def sum_records(messages: list[Any]) -> int:
    """Makes the records as anyone would, then does what is done with ours."""
    made = [
        ConsumerRecord(
            m.topic(), m.partition(), m.offset(), m.timestamp()[1], m.timestamp()[0] - 1, m.key(), m.value(), tuple(m.headers() or ()),
            m.leader_epoch(),
        )
        for m in messages
    ]  # fmt: skip
    return sum(len(r.value) for r in made)


def sides(sc: Any, bootstrap: str, topics: Topics, records: int) -> dict[str, Callable[[], Any]]:
    """What is timed, by name. Each whole-topic side returns the sum, which must be the same for both of a pair."""
    topic = topics.plain
    executor = KafkaParams.parse({"bootstrap.servers": bootstrap}).executor()
    whole, one = [OffsetRange(topic, 0, 0, records)], [OffsetRange(topic, 0, records // 2, records // 2 + 1)]

    headed = [OffsetRange(topics.headed, 0, 0, records)]

    def rdd(ranges: list[OffsetRange], decoding: Decoding) -> KafkaRDD:
        return KafkaRDD(sc, ranges, RangeReads.of([RangeSplit(r) for r in ranges], executor, 120_000), decoding)

    def packed(partitions: int) -> int:
        ranges, epochs = topics.spread[partitions]
        splits = [RangeSplit(whole, epoch) for whole, epoch in zip(ranges, epochs, strict=True)]
        return KafkaRDD(sc, ranges, RangeReads.of(splits, executor, 120_000, Packing(max_tasks=CORES)), values).map(len).sum()

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
        "records": lambda: rdd(headed, Decoding(None, None, consumer_record)).map(lambda r: len(r.value)).sum(),
        "plain records": lambda: plain_records(plain, topics.headed, records),
        "1,000 partitions": lambda: packed(1000),
        "16 partitions": lambda: packed(16),
        "one record": lambda: rdd(one, values).map(len).sum(),
        "bare task": lambda: WorkerRDD(sc, 1, lambda _: iter([VALUE])).map(len).sum(),
    }


def measure(todo: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each side; sides take turns, quick ones ten times a round. The first round is to warm up."""
    times: dict[str, list[float]] = {name: [] for name in todo}
    for number in range(rounds + 1):
        for names in ([n for n in todo if n not in QUICK], [n for n in todo if n in QUICK] * 10):
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
        print(f"{'ok  ' if bar.met(ratio) else 'MISS'} {bar.name:46} {ratio:5.2f} (bar {sign} {bar.limit})   {speed}")
    return good


def main() -> int:
    parser = parser_of(__doc__, records=1_000_000, rounds=5)
    add_bootstrap(parser)
    args = parser.parse_args()
    with running_kafka(args.bootstrap) as (kafka, _):
        topics = Topics.make(kafka, args.records)
        try:
            with running_spark("kafka_read") as sc:
                seconds = measure(sides(sc, kafka.bootstrap, topics, args.records), args.rounds)
        finally:
            for topic in topics.names:
                kafka.delete_topic(topic)
    return 0 if report(seconds, args.records) else 1


if __name__ == "__main__":
    sys.exit(main())
