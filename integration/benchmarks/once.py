"""What `once` costs a batch: 1,000 rows written to SQLite by it and by a naive sink, both in each batch of one job.

    python -m integration.benchmarks.once [--batches N]

A direct stream of two partitions has both outputs. The naive sink opens a connection, inserts and commits, for each partition. Timed is
each output operation, from its start to its end. The job runs twice: each output is the first one of a batch once. The bar: that of `once`
takes at most 5 % longer.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from kstream_kafka import KafkaUtils, value_only

from integration.benchmarks.ticked import Ticked
from integration.kafka_broker import KafkaBroker, running_broker
from kstream import DStream, StreamingListener
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


class Durations(StreamingListener):
    """The milliseconds of each output operation, by its number."""

    def __init__(self) -> None:
        self.of: dict[int, list[int]] = defaultdict(list)

    def onOutputOperationCompleted(self, outputOperationCompleted: Any) -> None:
        info = outputOperationCompleted.outputOperationInfo()
        self.of[info.id].append(info.duration())


def durations(broker: KafkaBroker, directory: Path, sides: list[str], batches: int) -> dict[str, list[int]]:
    """Milliseconds of each side's output operations, whose order in a batch is that of `sides`."""
    topic, count = f"bench-{uuid.uuid4().hex[:8]}", batches + WARM_UP
    broker.create_topic(topic, PARTITIONS)
    broker.produce(topic, [(None, str(n), n % PARTITIONS) for n in range(ROWS * count)])
    conf = {"spark.streaming.kafka.maxRatePerPartition": str(ROWS // PARTITIONS)}
    ticked, listener = Ticked("once", directory / "checkpoint", conf=conf), Durations()
    ticked.ssc.addStreamingListener(listener)
    params = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest"}
    stream = KafkaUtils.createDirectStream(ticked.ssc, [topic], params, messageHandler=value_only)
    for side in sides:
        path = str(directory / f"{side}.db")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE numbers (number TEXT)")
            connection.commit()
        SIDES[side](stream, path)
    ticked.run(count)
    for side in sides:
        with closing(sqlite3.connect(directory / f"{side}.db")) as connection:
            assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (ROWS * count,), side
    return {side: listener.of[number][WARM_UP:] for number, side in enumerate(sides)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=60)
    options = parser.parse_args()
    found: dict[str, list[int]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as work, running_broker(Path(work) / "broker") as broker:
        for number, sides in enumerate((list(SIDES), list(SIDES)[::-1])):
            directory = Path(work) / str(number)
            directory.mkdir()
            for side, times in durations(broker, directory, sides, options.batches).items():
                found[side] += times
    ours, theirs = (statistics.median(found[side]) for side in SIDES)
    verdict = "met" if ours / theirs <= LIMIT else "MISSED"
    print(f"{ROWS} rows by once / by a naive sink: {ours / theirs:.2f} (bar: <= {LIMIT}), {ours:.0f} ms against {theirs:.0f}: {verdict}")
    return 0 if ours / theirs <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
