"""The job of a campaign on a cluster. What it is given is JSON in the environment variable CLUSTERED.

bootstrap, orders and payments (topics), directory, interval (s), settings (of Spark), pattern (whether orders is read by a pattern),
refusals (how often its sink refuses every fifth batch), sink (to which it writes the orders exactly once; "" for none). A record says
where it lies ("partition:offset"), and the offset makes its key. Each other output replaces a file of its name and its batch time.
"""

from __future__ import annotations

import json
import os
import re
import time as clock
from collections.abc import Callable
from operator import add, sub
from pathlib import Path
from typing import Any

from kstream_kafka import KafkaUtils
from pyspark import RDD, SparkConf

from integration.exactness.job import append_line, refuse, replace_file
from integration.exactness.sinks import write_to
from kstream import BatchTime, State, StateSpec, StreamingContext
from kstream.dstream import DStream

VARIABLE = "CLUSTERED"
ORDERS, PAYMENTS = "orders", "payments"
KEYS = 20
WINDOW = 5
"""Batches."""
PARTITIONS_OF_STATE = 2
OUTPUTS = ("totals", "mapped", "snapshots", "inverse", "window", "join", "frames")
"""Besides the records themselves; in their order, of which the last one ends a batch."""
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.streaming.stopGracefullyOnShutdown": "true",
    "spark.streaming.gracefulStopTimeout": "120s",
}


def key_of(record: tuple[str, str]) -> tuple[int, int]:
    """The key of a record, and that it is one record."""
    return int(record[1].split(":")[1]) % KEYS, 1


def count(key: int, new: int, state: State) -> tuple[int, int]:
    """How many records of the key there are up to this batch."""
    total = (state.getOption() or 0) + new
    state.update(total)
    return key, total


def setup() -> StreamingContext:
    options = json.loads(os.environ[VARIABLE])
    root = Path(options["directory"])
    conf = SparkConf().setMaster("local[2]").setAppName("clustered").setAll(list({**_SETTINGS, **options["settings"]}.items()))
    ssc = StreamingContext(conf, options["interval"])
    append_line(root / "starts.jsonl", {"pid": os.getpid(), "at": clock.time()})
    params = {"bootstrap.servers": options["bootstrap"], "auto.offset.reset": "smallest"}
    topics = re.compile(re.escape(options[ORDERS])) if options["pattern"] else [options[ORDERS]]
    orders = KafkaUtils.createDirectStream(ssc, topics, params)
    payments = KafkaUtils.createDirectStream(ssc, [options[PAYMENTS]], params)
    for name, stream in ((ORDERS, orders), (PAYMENTS, payments)):
        stream.foreachRDD(writes_records(root / name, options["interval"], options["refusals"] if name == ORDERS else 0))

    n, width = PARTITIONS_OF_STATE, options["interval"] * WINDOW
    counts = orders.map(key_of).reduceByKey(add, n)
    mapped = counts.mapWithState(StateSpec.function(count).numPartitions(n))
    streams: dict[str, DStream[Any]] = {
        "totals": counts.updateStateByKey(lambda new, total: sum(new) + (total or 0), n),
        "mapped": mapped,
        "snapshots": mapped.stateSnapshots(),
        "inverse": counts.reduceByKeyAndWindow(add, sub, width, numPartitions=n, filterFunc=lambda pair: pair[1] > 0),
        "window": counts.reduceByKeyAndWindow(add, None, width, numPartitions=n),
        "join": counts.join(payments.map(key_of).reduceByKey(add, n), n),
    }
    for name, stream in streams.items():
        stream.foreachRDD(writes_pairs(root / name))
    if options["sink"]:
        write_to(orders, options["sink"])
    orders.foreachBatch(writes_frames(root, ssc))
    return ssc


def writes_records(root: Path, interval: float, refusals: int) -> Callable[[BatchTime, Any], None]:
    """An output that notes each attempt with its ranges, and writes the records."""

    def output(time: BatchTime, rdd: Any) -> None:
        ranges = [[r.topic, r.partition, r.fromOffset, r.untilOffset] for r in rdd.offsetRanges()]
        append_line(root / "attempts.jsonl", {"time": time.milliseconds, "ranges": ranges, "pid": os.getpid(), "at": clock.time()})
        refuse(root, time.milliseconds // round(interval * 1000), refusals)
        replace_file(root / "sink" / f"{time.milliseconds}.json", sorted(rdd.map(lambda record: record[1]).collect()))

    return output


def writes_pairs(folder: Path) -> Callable[[BatchTime, RDD[Any]], None]:
    def output(time: BatchTime, rdd: RDD[Any]) -> None:
        replace_file(folder / f"{time.milliseconds}.json", sorted(rdd.collect()))

    return output


def writes_frames(root: Path, ssc: StreamingContext) -> Callable[[Any, int], None]:
    """The last output: count, first and last offset of each partition, and the end of the batch."""

    def output(df: Any, batch: int) -> None:
        rows = df.groupBy("partition").agg({"*": "count"}).collect()
        replace_file(root / "frames" / f"{batch}.json", sorted([row["partition"], row["count(1)"]] for row in rows))
        append_line(root / "ended.jsonl", {"time": batch, "pid": os.getpid(), "at": clock.time()})

    return output
