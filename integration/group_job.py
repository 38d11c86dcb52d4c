"""Two `createStream` of one group and a receiver that reports an error, on a cluster; what their batches and listeners got.

    python -m integration.group_job OPTIONS

OPTIONS is JSON: bootstrap, zookeeper, topic, total (records), rate (of a receiver, a second), block_ms, directory, settings of Spark.
Prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time as clock
from collections import Counter
from pathlib import Path
from typing import Any

from kstream_kafka import KafkaUtils
from pyspark import SparkConf

from kstream import BatchTime, Receiver, StreamingContext, StreamingListener
from kstream.spark.spark_context import make_spark_context

INTERVAL_S = 2
PATIENCE_S = 240.0
EVENTS = (
    "onStreamingStarted", "onBatchSubmitted", "onBatchStarted", "onBatchCompleted", "onOutputOperationStarted",
    "onOutputOperationCompleted", "onReceiverStarted", "onReceiverError", "onReceiverStopped",
)  # fmt: skip
"""Spark's."""


class Complaining(Receiver):
    """Reports an error, and stores nothing."""

    def onStart(self) -> None:
        threading.Thread(target=self.reportError, args=("as asked",), daemon=True).start()

    def onStop(self) -> None: ...


class Told(StreamingListener):
    """How often each event came, and on which executors receivers were started."""

    def __init__(self) -> None:
        self.events = Counter[str]()
        self.executors: dict[int, str] = {}
        for name in EVENTS:
            setattr(self, name, lambda event, name=name: self.hear(name, event))

    def hear(self, name: str, event: Any) -> None:
        self.events[name] += 1
        if name == "onReceiverStarted":
            self.executors[event.receiverInfo().streamId()] = event.receiverInfo().executorId()


def main(options: dict[str, Any]) -> None:
    settings = {
        "spark.ui.enabled": "false",
        "spark.streaming.receiver.maxRate": str(options["rate"]),
        "spark.streaming.blockInterval": f"{options['block_ms']}ms",
        "spark.streaming.receiver.writeAheadLog.enable": "true",
        "spark.streaming.gracefulStopTimeout": "120s",
        **options["settings"],
    }
    sc = make_spark_context(SparkConf().setAppName("group").setAll(list(settings.items())))
    sc.setLogLevel("WARN")
    ssc, told = StreamingContext(sc, INTERVAL_S), Told()
    ssc.checkpoint(str(Path(options["directory"]) / "checkpoint"))
    ssc.addStreamingListener(told)
    params = {"bootstrap.servers": options["bootstrap"], "auto.offset.reset": "smallest"}
    streams = [KafkaUtils.createStream(ssc, options["zookeeper"], "group", {options["topic"]: 1}, params) for _ in range(2)]
    batches: dict[int, dict[str, Any]] = {}

    def output(number: int) -> Any:
        def write(time: BatchTime, rdd: Any) -> None:
            values = rdd.map(lambda record: record[1]).collect()
            batches.setdefault(time.milliseconds, {})[str(number)] = {"values": values, "blocks": rdd.getNumPartitions()}

        return write

    for number, stream in enumerate(streams):
        stream.foreachRDD(output(number))
    ssc.receiverStream(Complaining()).foreachRDD(lambda rdd: rdd.count())
    ssc.start()
    end = clock.monotonic() + PATIENCE_S
    while sum(len(part["values"]) for batch in list(batches.values()) for part in list(batch.values())) < options["total"]:
        assert clock.monotonic() < end, f"only {batches} came"
        ssc.awaitTerminationOrTimeout(0.2)
    ssc.stop(stopSparkContext=True, stopGraceFully=True)
    print(json.dumps({"batches": batches, "events": told.events, "executors": told.executors}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
