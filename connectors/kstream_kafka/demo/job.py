"""The job of `kstream demo`: order totals over a window, and every order in a sink that may be written twice.

It is written as any job: `build` makes the graph, `main` runs it from its checkpoint. Only a demo needs the journal, an append-only file
with a line for every start, for every attempt at a batch and for every failure.

    out/batches/<batch time>.json   the orders of a batch: one file a batch, replaced when the batch runs again
    out/windows/<batch time>.json   region → [orders, cents] of the last `window` seconds
    out/journal.jsonl               never replaced
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkConf

from kstream import BatchTime, StreamingContext, StreamingListener
from kstream.cli.terminal import clear_errors
from kstream_kafka import KafkaUtils

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.listener import StreamingListenerBatchCompleted, StreamingListenerStreamingStarted
    from kstream_kafka import KafkaRDD


@dataclass(frozen=True)
class Options:
    """The options of the job.

    Attributes:
        bootstrap: the address of the broker.
        topic: the topic of the orders.
        out: the folder of the sink and of the journal.
        interval: the batch interval, in seconds.
        window: the length of a window, in seconds.
        max_rate: the most records per second and partition.
        page_port: the port of the page.
    """

    bootstrap: str
    topic: str
    out: Path
    interval: float
    window: float
    max_rate: int
    page_port: int


def build(options: Options) -> StreamingContext:
    """Make the context with the graph of the job. Called at every start; the stream then gets its stored offsets."""
    conf = SparkConf().setMaster("local[2]").setAppName("kstream demo")
    conf.set("spark.streaming.stopGracefullyOnShutdown", "true")
    conf.set("spark.streaming.gracefulStopTimeout", "60s")
    conf.set("spark.streaming.kafka.maxRatePerPartition", str(options.max_rate))
    conf.set("spark.streaming.kstream.kafka.firstBatchRecords", "0")  # the maximum rate is enough: missed batches get orders
    conf.set("spark.streaming.kstream.ui.enabled", "true").set("spark.streaming.kstream.ui.port", str(options.page_port))
    ssc = StreamingContext(conf, options.interval)
    kafka = {"bootstrap.servers": options.bootstrap, "auto.offset.reset": "smallest"}
    orders = KafkaUtils.createDirectStream(ssc, [options.topic], kafka)
    out = options.out

    def save_orders(time: BatchTime, rdd: KafkaRDD) -> None:
        ranges = [r.to_json() for r in rdd.offsetRanges()]
        write_journal(out, "attempt", batch=time.milliseconds, ranges=ranges)
        rows = [] if rdd.isEmpty() else rdd.map(lambda record: order_row(record[1])).collect()
        replace_file(out / "batches" / f"{time.milliseconds}.json", rows)

    def save_window(time: BatchTime, rdd: RDD[Any]) -> None:
        replace_file(out / "windows" / f"{time.milliseconds}.json", dict(rdd.collect()))

    orders.foreachRDD(save_orders)
    totals = orders.map(lambda record: order_total(record[1]))
    totals.reduceByKeyAndWindow(add_totals, None, options.window, options.interval, numPartitions=1).foreachRDD(save_window)
    return ssc


def order_row(value: str) -> list[Any]:
    """Return id, region and cents of an order, as the sink keeps them."""
    order = json.loads(value)
    return [order["order_id"], order["region"], order["quantity"] * order["price_cents"]]


def order_total(value: str) -> tuple[str, tuple[int, int]]:
    _, region, cents = order_row(value)
    return region, (1, cents)


def add_totals(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """Return the sum of two (orders, cents)."""
    return a[0] + b[0], a[1] + b[1]


def replace_file(path: Path, value: Any) -> None:
    """Replace a file atomically: a kill leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value))
    os.replace(temporary, path)


def write_journal(out: Path, event: str, **fields: Any) -> None:
    """Append a line to the journal in one write. The line is on disk at return. Any thread.

    Args:
        out: the folder of the journal.
        event: the kind of the line.
        fields: the values of the line.
    """
    line = json.dumps({"event": event, "pid": os.getpid(), **fields}) + "\n"
    descriptor = os.open(out / "journal.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class JournalListener(StreamingListener):
    """Writes starts and failures to the journal."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def onStreamingStarted(self, streamingStarted: StreamingListenerStreamingStarted) -> None:
        write_journal(self._out, "started", at=streamingStarted.time)

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        info = batchCompleted.batchInfo()
        for reason in [o.failureReason() for o in info.outputOperationInfos().values() if o.failureReason()]:
            write_journal(self._out, "failed", batch=info.batchTime().milliseconds(), reason=reason)


SUBMIT = (
    "--conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false --conf spark.log.level=ERROR "
    "--conf spark.driver.host=127.0.0.1 --driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"
)
"""Options of Spark for the first start and the restart: no web page, no progress bar, and a JVM that starts fast."""


def _warm_up(_: int) -> None:
    """Import the modules of a worker before the first batch, because the import takes a few seconds."""
    import kstream_kafka.reader.range_consumer as range_consumer

    assert range_consumer


def _die_with_parent() -> None:
    """Block until standard input closes, because the demo has ended. Then end this process, and Spark with it."""
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """Run the job from its checkpoint until SIGTERM, which stops it gracefully. Blocks."""
    parser = argparse.ArgumentParser(prog="python -m kstream_kafka.demo.job", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds")
    parser.add_argument("--window", type=float, default=5.0, help="seconds")
    parser.add_argument("--max-rate", type=int, default=400, help="records a second and partition")
    parser.add_argument("--page-port", type=int, required=True, help="the port of the page")
    given = parser.parse_args()
    options = Options(given.bootstrap, given.topic, given.out, given.interval, given.window, given.max_rate, given.page_port)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", SUBMIT)
    with clear_errors(verbose=True):
        ssc = StreamingContext.getOrCreate(given.checkpoint, lambda: build(options))
        ssc.addStreamingListener(JournalListener(options.out))
        ssc.sparkContext.parallelize(range(2), 2).foreach(_warm_up)
        ssc.start()
        ssc.awaitTermination()


if __name__ == "__main__":
    main()
