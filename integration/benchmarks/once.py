"""What `once` costs a batch: batches that write 1,000 rows to SQLite by it, against the same by a naive sink.

    python -m integration.benchmarks.once [--batches N]

A direct stream of two partitions is written, one batch at a time. The naive sink opens a connection, inserts and commits, for each
partition. Timed is a batch, from its tick until listeners hear of its end. Each sink has two jobs, and the order of the second two is
turned round. The bar: a batch with `once` takes at most 5 % longer.
"""

from __future__ import annotations

import sqlite3
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from kstream_kafka import KafkaUtils, value_only

from integration.benchmarks.harness import make_topic, parser_of, running_kafka
from integration.benchmarks.ticked import Ticked
from integration.kafka_handle import KafkaHandle
from kstream import DStream
from kstream.sinks import once

ROWS, PARTITIONS = 1_000, 2
LIMIT = 1.05
WARM_UP = 10
"""Batches not counted: workers start, and the JVM compiles."""
WAIT_S = 60
"""How long a task waits for the transaction of the other one."""


def insert(connection: sqlite3.Connection, values: Iterator[str]) -> None:
    connection.executemany("INSERT INTO numbers VALUES (?)", ((value,) for value in values))


def insert_and_commit(path: str, values: Iterator[str]) -> None:
    with closing(sqlite3.connect(path, timeout=WAIT_S)) as connection:
        insert(connection, values)
        connection.commit()


def by_once(stream: DStream[str], path: str) -> None:
    stream.foreachRDD(once(partial(sqlite3.connect, path, timeout=WAIT_S), insert))


def naively(stream: DStream[str], path: str) -> None:
    stream.foreachRDD(lambda rdd: rdd.foreachPartition(partial(insert_and_commit, path)))


SIDES: dict[str, Callable[[DStream[str], str], None]] = {"once": by_once, "naive": naively}


def seconds_of(side: str, kafka: KafkaHandle, directory: Path, batches: int) -> list[float]:
    """Seconds of each batch of a job of its own."""
    count, path = batches + WARM_UP, str(directory / "sink.db")
    topic = make_topic(kafka, ((None, str(n), n % PARTITIONS) for n in range(ROWS * count)), PARTITIONS)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE numbers (number TEXT)")
    ticked = Ticked("once", directory / "checkpoint", conf={"spark.streaming.kafka.maxRatePerPartition": str(ROWS // PARTITIONS)})
    params = {"bootstrap.servers": kafka.bootstrap, "auto.offset.reset": "earliest"}
    SIDES[side](KafkaUtils.createDirectStream(ticked.ssc, [topic], params, messageHandler=value_only), path)
    seconds = ticked.run(count)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (ROWS * count,), side
    return seconds[WARM_UP:]


def main() -> int:
    options = parser_of(__doc__, batches=60).parse_args()
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    with running_kafka() as (kafka, work):
        for number, side in enumerate([*SIDES, *reversed(SIDES)]):
            directory = work / str(number)
            directory.mkdir()
            found[side] += seconds_of(side, kafka, directory, options.batches)
    ours, theirs = (statistics.median(found[side]) * 1000 for side in SIDES)
    ratio = ours / theirs
    verdict = "met" if ratio <= LIMIT else "MISSED"
    print(f"{ROWS} rows by once / by a naive sink: {ratio:.2f} (bar: <= {LIMIT}), {ours:.1f} ms a batch against {theirs:.1f}: {verdict}")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
