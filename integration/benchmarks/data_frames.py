"""SQL over Kafka: our DataFrame, whole and with few columns, against Spark's own JVM connector, side by side in one run.

    python -m integration.benchmarks.data_frames [--bootstrap HOST:PORT] [--records N] [--rounds N] [--alone]

Without an address it starts a broker of its own. The same queries over the same ranges (4 partitions, JSON values of 100 B) by
`KafkaUtils.createDataFrame`, with all columns and with those that the query needs, and by `spark.read.format("kafka")`, each in a
local[2] of its own, in turns; the answers must be the same and medians are compared. For context a plain `consume` loop that sums
the lengths of the values, in one process without Spark.

The bar: the values alone are read 1.8 times as fast as by the connector. Everything else is a report.

The connector runs in a process of its own (`jvm_connector`): it is not published for every Spark that is, so it may need an older
pyspark. That, and the connector's jars, are fetched once into `.cache/`; where they cannot be had one line says why, and only our
side is measured.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import Consumer, TopicPartition
from kstream_kafka import KafkaUtils, OffsetRange
from kstream_kafka.client.params import KafkaParams, bulk
from pyspark.sql import SparkSession

from integration.benchmarks import jvm_connector
from integration.benchmarks.connector_process import running_script
from integration.benchmarks.harness import (
    add_alone,
    add_bootstrap,
    make_topic,
    parser_of,
    running_kafka,
    running_spark,
    seconds_in_turns,
)
from integration.benchmarks.jvm_connector import rows_of
from integration.benchmarks.jvm_parts import PartsMissingError, connector_parts
from integration.kafka_handle import KafkaHandle, Record

PARTITIONS = 4
BAR = 1.8
"""How many times as fast as the connector the values alone are read."""
WARM_UP = 2
"""Rounds not counted: the JVMs compile."""
QUERIES = {
    "value": "SELECT count(*), sum(length(value)) FROM records",
    "scan": "SELECT count(*), sum(length(value)), max(offset) FROM records",
    "group": "SELECT substring(CAST(key AS STRING), 1, 2) AS g, count(*), sum(length(value)) FROM records GROUP BY g",
    "json": (
        "SELECT j.user, count(*), sum(j.amount) FROM "
        "(SELECT from_json(CAST(value AS STRING), 'user STRING, amount LONG') AS j FROM records) GROUP BY j.user"
    ),
}
COLUMNS = {"value": ["value"], "scan": ["value", "offset"], "group": ["key", "value"], "json": ["value"]}
"""The columns that each query needs."""
Side = Callable[[str], list[Any]]
"""Runs one of QUERIES and returns its rows, sorted."""


def json_records(count: int) -> Iterator[Record]:
    """Records of 100 B with keys, partitions in turns."""
    for i in range(count):
        value = f'{{"user": "u{i % 97:02d}", "amount": {100 + i % 900}, "note": "'.encode().ljust(98, b"x") + b'"}'
        yield str(i).encode(), value, i % PARTITIONS


# -- the sides


@contextmanager
def our_sides(bootstrap: str, ranges: list[OffsetRange]) -> Iterator[dict[str, Side]]:
    """Our DataFrame of all columns, and of those that a query needs, in a Spark of this process. kstream makes its context."""
    with running_spark("data_frames") as sc:
        spark = SparkSession(sc)
        KafkaUtils.createDataFrame(spark, {"bootstrap.servers": bootstrap}, ranges).createOrReplaceTempView("records")
        for name, columns in COLUMNS.items():
            some = KafkaUtils.createDataFrame(spark, {"bootstrap.servers": bootstrap}, ranges, columns=columns)
            some.createOrReplaceTempView(f"records_{name}")
        yield {
            "ours": lambda name: rows_of(spark, QUERIES[name]),
            "columns": lambda name: rows_of(spark, QUERIES[name].replace("FROM records", f"FROM records_{name}")),
        }


@contextmanager
def connector_side(python: Path, jars: list[Path], bootstrap: str, ranges: list[OffsetRange], log: Path) -> Iterator[Side]:
    """The JVM connector, in a process that is given a query a line. PartsMissingError when it ends."""
    topic = ranges[0].topic
    bounds = [json.dumps({topic: {str(r.partition): at(r) for r in ranges}}) for at in (_from, _until)]
    with running_script(python, jvm_connector.__file__, [",".join(map(str, jars)), bootstrap, topic, *bounds], log) as ask:
        yield lambda name: ask(QUERIES[name])


def _from(r: OffsetRange) -> int:
    return r.fromOffset


def _until(r: OffsetRange) -> int:
    return r.untilOffset


def plain_loop(consumer: Consumer, ranges: list[OffsetRange]) -> int:
    """What anyone would write, with our fetch sizes: the length of all values, by one live consumer of all partitions."""
    consumer.assign([TopicPartition(r.topic, r.partition, r.fromOffset) for r in ranges])
    left, total = sum(r.count() for r in ranges), 0
    while left > 0:
        messages = consumer.consume(min(10_000, left), 1.0)
        left -= len(messages)
        total += sum(len(m.value()) for m in messages)
    consumer.unassign()
    return total


# -- measuring


def compare(sides: dict[str, Side], plain: Callable[[], int], records: int, rounds: int) -> bool:
    """Checks that the answers are the same, measures, prints a line for each query. Whether the bar is met, or there is none."""
    todo: dict[str, Callable[[], Any]] = {"plain": plain}
    for name in QUERIES:
        answers = {side: ask(name) for side, ask in sides.items()}
        if any(answer != answers["ours"] for answer in answers.values()):
            raise SystemExit(f"the answers to {name!r} differ: {answers}"[:2000])
        todo |= {f"{side} {name}": partial(ask, name) for side, ask in sides.items()}
    speed = {name: records / statistics.median(times) / 1e6 for name, times in seconds_in_turns(todo, rounds, WARM_UP).items()}
    for name in QUERIES:
        mine, some, theirs = (speed.get(f"{side} {name}", 0.0) for side in ("ours", "columns", "connector"))
        ratios = f"ratios {mine / theirs:.2f} and {some / theirs:.2f}" if theirs else ""
        against = f"JVM connector {theirs:.2f} M/s   {ratios}" if theirs else "(no JVM connector to compare with)"
        print(f"     {name:6} DataFrame {mine:.2f} M/s   with columns={COLUMNS[name]} {some:.2f} M/s   {against}")
    print(f"     plain consume loop, sum of lengths, one process without Spark: {speed['plain']:.2f} M/s")
    return "connector" not in sides or speed["columns value"] >= BAR * speed["connector value"]


def run(kafka: KafkaHandle, records: int, rounds: int, directory: Path, alone: bool) -> int:
    """Makes the topic and both sides, measures, cleans up; the exit status."""
    bootstrap, topic = kafka.bootstrap, make_topic(kafka, json_records(records), PARTITIONS)
    ranges = [OffsetRange(topic, p, 0, len(range(p, records, PARTITIONS))) for p in range(PARTITIONS)]
    consumer = Consumer(bulk(KafkaParams.parse({"bootstrap.servers": bootstrap}).executor()))
    plain = partial(plain_loop, consumer, ranges)
    try:
        with ExitStack() as stack:
            ours = stack.enter_context(our_sides(bootstrap, ranges))
            print(f"DataFrames of {records:,} records of 100 B, local[2]: pyspark {pyspark.__version__}", end="")
            try:
                python, jars, version = connector_parts(alone)
                connector = stack.enter_context(connector_side(python, jars, bootstrap, ranges, directory / "connector.log"))
                print(f", JVM connector of Spark {version}")
                is_met = compare({**ours, "connector": connector}, plain, records, rounds)
            except PartsMissingError as e:
                print(f"\n     no comparison: {e}")
                is_met = compare(ours, plain, records, rounds)
    finally:
        consumer.close()
        kafka.delete_topic(topic)
    if not is_met:
        print(f"     MISSED: the values alone are not read {BAR} times as fast as by the connector")
    return 0 if is_met else 1


def main() -> int:
    parser = parser_of(__doc__, records=1_000_000, rounds=5)
    add_bootstrap(parser)
    add_alone(parser)
    args = parser.parse_args()
    with running_kafka(args.bootstrap) as (kafka, directory):
        return run(kafka, args.records, args.rounds, directory, args.alone)


if __name__ == "__main__":
    sys.exit(main())
