"""JSON values to columns, and their sum: `value.format=json` against `from_json` behind Spark's own JVM connector, in one run.

    python -m integration.benchmarks.typed_values [--bootstrap HOST:PORT] [--records N] [--rounds N] [--alone]

Without an address it starts a broker of its own. Two topics have 4 partitions of JSON values of 100 B. In the second, one value of a
hundred does not fit: half of these are cut short, half have a string for a number. Each side sums a field of all values, in a local[2] of
its own, in turns; the answers must be the same.

The bars: the sum is 1.5 times as fast as by the connector, and the values that do not fit cost a tenth of the time at most.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from integration.benchmarks import jvm_connector
from integration.benchmarks.connector_process import running_script
from integration.benchmarks.data_frames import PARTITIONS
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

FASTER, COSTS = 1.5, 1.1
"""How many times as fast as `from_json` the sum is, and how much longer it takes if one value of a hundred does not fit."""
WARM_UP = 2
"""Rounds not counted: the JVMs compile."""
SCHEMA = "user STRING, amount LONG"
TYPED = "SELECT count(*), count(amount), sum(amount) FROM records"
FROM_JSON = f"""SELECT count(*), count(j.amount), sum(j.amount) FROM
    (SELECT from_json(CAST(value AS STRING), '{SCHEMA}') AS j FROM records)""".replace("\n", " ")
TOPICS = ("clean", "bad")
Side = Callable[[], list[Any]]


def value_of(i: int, with_bad: bool) -> bytes:
    """Return a value of 100 B; of two hundred one that is cut short, and one whose amount is a string."""
    amount = b'"much"' if with_bad and i % 200 == 50 else b"%d" % (100 + i % 900)
    value = (b'{"user": "u%02d", "amount": %s, "note": "' % (i % 97, amount)).ljust(98, b"x") + b'"}'
    return value[:60] if with_bad and i % 200 == 150 else value


def records_of(count: int, with_bad: bool) -> Iterator[Record]:
    """Yield records of such values, partitions in turns."""
    return ((None, value_of(i, with_bad), i // 2 % PARTITIONS) for i in range(count))


@contextmanager
def our_sides(bootstrap: str, topics: dict[str, str]) -> Iterator[dict[str, Side]]:
    """Yield our side for each topic, in a Spark of this process. kstream makes its context."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with running_spark("typed_values") as sc:
        spark = SparkSession(sc)
        options = {"kafka.bootstrap.servers": bootstrap, "value.format": "json"}
        for name, topic in topics.items():
            read = spark.read.format("kstream").schema(SCHEMA.replace("user STRING, ", "")).options(**options)
            read.option("subscribe", topic).load().createOrReplaceTempView(name)
        yield {name: lambda name=name: rows_of(spark, TYPED.replace("records", name)) for name in topics}


@contextmanager
def connector_sides(python: Path, jars: list[Path], bootstrap: str, topics: dict[str, str], directory: Path) -> Iterator[dict[str, Side]]:
    """Yield the connector's side for each topic, each in a process of its own."""
    with ExitStack() as stack:
        sides: dict[str, Side] = {}
        for name, topic in topics.items():
            arguments = [",".join(map(str, jars)), bootstrap, topic, "earliest", "latest"]
            ask = stack.enter_context(running_script(python, jvm_connector.__file__, arguments, directory / f"{name}.log"))
            sides[name] = lambda ask=ask: ask(FROM_JSON.replace(SCHEMA, "amount LONG"))
        yield sides


def line_of(words: str, ratios: list[float], is_met: Callable[[float], bool]) -> tuple[bool, str]:
    """Return whether the median of some ratios meets a bar, and the line about it."""
    median = statistics.median(ratios)
    return is_met(median), f"{'ok  ' if is_met(median) else 'MISS'} {words}: {median:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def compare(sides: dict[str, Side], records: int, rounds: int) -> int:
    """Check that the answers are the same, measure, and print. Return the exit status."""
    answers = {name: ask() for name, ask in sides.items()}
    for name, answer in answers.items():
        if answer != answers[name.rpartition(" ")[2]]:
            raise SystemExit(f"the answers differ: {answers}")
    times = seconds_in_turns(sides, rounds, WARM_UP)
    for name, seconds in times.items():
        print(f"     {name}: {records / statistics.median(seconds) / 1e6:.2f} M/s")
    costs = [bad / clean for clean, bad in zip(times["clean"], times["bad"], strict=True)]
    lines = [line_of(f"time with 1 % that does not fit / without (bar: <= {COSTS})", costs, lambda found: found <= COSTS)]
    if "connector clean" in times:
        faster = [theirs / ours for ours, theirs in zip(times["clean"], times["connector clean"], strict=True)]
        lines.append(line_of(f"rate / from_json behind the connector (bar: >= {FASTER})", faster, lambda found: found >= FASTER))
    print("\n".join(line for _, line in lines))
    return 0 if all(is_met for is_met, _ in lines) else 1


def run(kafka: KafkaHandle, records: int, rounds: int, directory: Path, alone: bool) -> int:
    """Make the topics and the sides, and compare. Return the exit status."""
    topics = {name: make_topic(kafka, records_of(records, name == "bad"), PARTITIONS) for name in TOPICS}
    try:
        with ExitStack() as stack:
            sides = dict(stack.enter_context(our_sides(kafka.bootstrap, topics)))
            print(f"sums of {records:,} JSON values of 100 B, local[2]: pyspark {pyspark.__version__}", end="")
            try:
                python, jars, version = connector_parts(alone)
                theirs = stack.enter_context(connector_sides(python, jars, kafka.bootstrap, topics, directory))
                print(f", JVM connector of Spark {version}")
                sides |= {f"connector {name}": side for name, side in theirs.items()}
            except PartsMissingError as e:
                print(f"\n     no comparison: {e}")
            return compare(sides, records, rounds)
    finally:
        for topic in topics.values():
            kafka.delete_topic(topic)


def main() -> int:
    parser = parser_of(__doc__, records=1_000_000, rounds=7)
    add_bootstrap(parser)
    add_alone(parser)
    args = parser.parse_args()
    with running_kafka(args.bootstrap) as (kafka, directory):
        return run(kafka, args.records, args.rounds, directory, args.alone)


if __name__ == "__main__":
    sys.exit(main())
