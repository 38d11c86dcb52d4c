"""The driver that is killed: counts a topic per batch and over a window, leaving a record of every attempt.

Argument: a JSON file with bootstrap, topic, directory, interval, window (batches), conf and perhaps checkpoint, params (of the
stream) and endure (whether to go on after a failed batch). Every record of the topic says where it lies ("partition:offset"), so that
the sink can be compared with the ranges.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from kstream_kafka import KafkaUtils
from pyspark import SparkConf

from kstream import StreamingContext
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


def milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)


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
    stream = KafkaUtils.createDirectStream(ssc, [options["topic"]], params)

    def batch(time: datetime, rdd: Any) -> None:
        ranges = [[r.topic, r.partition, r.fromOffset, r.untilOffset] for r in rdd.offsetRanges()]
        append_line(root / "attempts.jsonl", {"time": milliseconds(time), "ranges": ranges, "pid": os.getpid()})
        replace_file(root / "sink" / f"{milliseconds(time)}.json", sorted(rdd.map(lambda kv: kv[1]).collect()))

    def window(time: datetime, rdd: Any) -> None:
        replace_file(root / "windows" / f"{milliseconds(time)}.json", sorted(rdd.collect()))

    stream.foreachRDD(batch)
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
            time.sleep(0.5)


def main() -> None:
    options = json.loads(Path(sys.argv[1]).read_text())
    root = Path(options["directory"])
    for folder in ("sink", "windows"):
        (root / folder).mkdir(exist_ok=True)
    append_line(root / "starts.jsonl", {"pid": os.getpid()})
    ssc = StreamingContext.getOrCreate(options.get("checkpoint", str(root / "checkpoint")), lambda: setup(options))
    ssc.start()
    append_line(root / "started.jsonl", {"pid": os.getpid()})
    wait_for_the_end(ssc, options.get("endure", False))


if __name__ == "__main__":
    main()
