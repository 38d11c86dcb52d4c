"""The bar on bookkeeping: everything a batch costs beside its Spark job, against the bare PySpark job of 4 tasks.

    python -m integration.benchmarks.bookkeeping [--batches N]

A real context runs a direct stream of 4 partitions with a checkpoint on disk. A manual clock asks for one batch at a time; what is
timed is from the tick to the completed batch, less what the user's function took: planning against the broker, plan and completion
records with their fsyncs, the look for a newer writer, RDD and job set-up, events. In between the same function runs on a bare RDD.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from kstream_kafka import KafkaUtils
from pyspark import SparkConf

from integration.benchmarks import bare_job
from integration.kafka_broker import KafkaBroker, running_broker
from kstream import StreamingContext, StreamingListener
from kstream.testing import ManualClock

LIMIT = 0.3
INTERVAL_MS = 1000


class Ticker(StreamingListener):
    """Lets the benchmark wait for the end of a batch."""

    def __init__(self) -> None:
        self.ended = threading.Semaphore(0)

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        self.ended.release()


class Bench:
    """A context whose one output runs the same 4-task job as the bare side and notes how long it took."""

    def __init__(self, broker: KafkaBroker, directory: Path) -> None:
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        broker.create_topic(topic, 4)
        conf = SparkConf().setMaster("local[2]").setAppName("bookkeeping").set("spark.ui.enabled", "false")
        conf = conf.set("spark.driver.host", "127.0.0.1").set("spark.ui.showConsoleProgress", "false")
        self.clock = ManualClock(10 * INTERVAL_MS)
        self.ssc = StreamingContext(conf, INTERVAL_MS / 1000, clock=self.clock)
        self.ssc.sparkContext.setLogLevel("ERROR")
        self.ssc.checkpoint(str(directory))
        self.ticker = Ticker()
        self.ssc.addStreamingListener(self.ticker)
        stream = KafkaUtils.createDirectStream(self.ssc, [topic], {"bootstrap.servers": broker.bootstrap})
        stream.foreachRDD(bare_job.output)

    def batch(self) -> float:
        """Seconds of one batch beside the user's function."""
        self.clock.wait_for_waiters()
        began = time.perf_counter()
        self.clock.advance(INTERVAL_MS)
        if not self.ticker.ended.acquire(timeout=60):
            raise SystemExit("a batch did not end within 60 s")
        return time.perf_counter() - began - bare_job.output_seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=60)
    options = parser.parse_args()
    ours: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as work, running_broker(Path(work) / "broker") as broker:
        bench = Bench(broker, Path(work) / "checkpoint")
        bench.ssc.start()
        for number in range(options.batches + 10):
            seconds = bench.batch()
            began = time.perf_counter()
            bare_job.run()
            if number >= 10:  # the first ones warm up
                bare.append(time.perf_counter() - began)
                ours.append(seconds)
        bench.ssc.stop()
    ratio = statistics.median(ours) / statistics.median(bare)
    verdict = "met" if ratio <= LIMIT else "MISSED"
    print(
        f"plan + log + bookkeeping / bare job of 4 tasks: {ratio:.2f} (bar: <= {LIMIT}), "
        f"{statistics.median(ours) * 1000:.1f} ms against {statistics.median(bare) * 1000:.1f}: {verdict}"
    )
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
