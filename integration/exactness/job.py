"""The driver that is killed: counts a topic per batch and over a window, leaving a record of every attempt.

Argument: a JSON file with bootstrap, topic, directory, interval, window (batches), conf and perhaps checkpoint, params (of the
stream), endure (whether to go on after a failed batch), refusals (how often the sink refuses every fifth batch), sink (to which it writes
every record, too), code (what becomes of records on their way there, as of `Code`) and losses (the policy for records that are gone). Every
record of the topic says where it lies ("partition:offset"), so that the sink can be compared with the ranges.
"""

from __future__ import annotations

import json
import os
import sys
import time as clock
from pathlib import Path
from typing import Any

from kstream_kafka import KafkaUtils
from pyspark import SparkConf

from integration.exactness.hooks import BATCH, hold, plant_bug
from integration.exactness.kafka_sink import Code
from integration.exactness.sinks import write_to
from kstream import BatchTime, StreamingContext
from kstream.errors import FencedError


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Appends one line in one write, durable when this returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, (json.dumps(record) + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, value: Any) -> None:
    """An idempotent sink: the whole file or the old one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value))
    os.replace(temporary, path)


class SinkAwayError(Exception):
    """The sink refuses a batch."""


def refuse(root: Path, batch: int, refusals: int) -> None:
    """Raises SinkAwayError for the first so many attempts at every fifth batch, over all drivers, until the file `accepts` is there."""
    if batch % 5 or (root / "accepts").exists():
        return
    for n in range(refusals):
        try:
            (root / "refused" / f"{batch}-{n}").touch(exist_ok=False)
        except FileExistsError:
            continue
        raise SinkAwayError(f"batch number {batch} is refused")


def setup(options: dict[str, Any]) -> StreamingContext:
    """Builds the graph: the direct stream, its records per batch, and a window over it."""
    root = Path(options["directory"])
    conf = SparkConf().setMaster("local[2]").setAppName("exactness").set("spark.ui.enabled", "false")
    conf = conf.set("spark.driver.host", "127.0.0.1").set("spark.ui.showConsoleProgress", "false")
    for key, value in options["conf"].items():
        conf = conf.set(key, value)
    ssc = StreamingContext(conf, options["interval"])
    ssc.sparkContext.setLogLevel("ERROR")
    params = {"bootstrap.servers": options["bootstrap"], "auto.offset.reset": "smallest", **options.get("params", {})}
    stream = KafkaUtils.createDirectStream(ssc, [options["topic"]], params, onDataLoss=options.get("losses"))

    def batch(time: BatchTime, rdd: Any) -> None:
        ranges = [[r.topic, r.partition, r.fromOffset, r.untilOffset] for r in rdd.offsetRanges()]
        ms = time.milliseconds
        append_line(root / "attempts.jsonl", {"time": ms, "ranges": ranges, "pid": os.getpid(), "at": clock.monotonic_ns()})
        hold(BATCH)
        refuse(root, ms // round(options["interval"] * 1000), options.get("refusals", 0))
        replace_file(root / "sink" / f"{ms}.json", sorted(rdd.map(lambda kv: kv[1]).collect()))
        append_line(root / "writes.jsonl", {"time": ms, "at": clock.monotonic_ns()})

    def window(time: BatchTime, rdd: Any) -> None:
        replace_file(root / "windows" / f"{time.milliseconds}.json", sorted(rdd.collect()))

    stream.foreachRDD(batch)
    if options.get("sink"):
        write_to(stream, options["sink"], Code(**options.get("code", {})))
    counts = stream.map(lambda kv: (kv[0], 1))
    width = options["interval"] * options["window"]
    counts.reduceByKeyAndWindow(lambda a, b: a + b, None, width, numPartitions=1).foreachRDD(window)
    return ssc


def wait_for_the_end(ssc: StreamingContext, endure: bool) -> None:
    """Until the stream has been stopped. A batch that fails raises, unless the program is to endure it and go on with the next."""
    while True:
        try:
            return ssc.awaitTermination()
        except FencedError:
            raise
        except Exception:
            if not endure:
                raise
            clock.sleep(0.5)


def main() -> None:
    plant_bug()
    options = json.loads(Path(sys.argv[1]).read_text())
    root = Path(options["directory"])
    for folder in ("sink", "windows", "refused"):
        (root / folder).mkdir(exist_ok=True)
    append_line(root / "starts.jsonl", {"pid": os.getpid()})
    ssc = StreamingContext.getOrCreate(options.get("checkpoint", str(root / "checkpoint")), lambda: setup(options))
    ssc.start()
    append_line(root / "started.jsonl", {"pid": os.getpid()})
    wait_for_the_end(ssc, options.get("endure", False))


if __name__ == "__main__":
    main()
