"""A job with a receiver on a standalone cluster of three workers: its executors follow the load, and its receiver outlives its executor.

    python -m integration.allocation_job MASTER CHECKPOINT

1. Without load one of three executors ends, to the minimum of two. It is not that of the receiver.
2. That of the receiver is killed. The receiver is started on the other one, and Spark gives another executor for the lost one.
3. Under load the job gets a third executor.
4. Without load one ends again, and the receiver stays where it is.

Prints what it saw as a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import SparkConf

from integration.masters import executor_settings
from integration.received.processes import executors as executors_of
from kstream import Receiver, StreamingContext, StreamingListener
from kstream.spark.executors import executors
from kstream.spark.spark_context import make_spark_context

DYNAMIC = "spark.streaming.dynamicAllocation"
CONF = {
    f"{DYNAMIC}.enabled": "true",
    f"{DYNAMIC}.minExecutors": "2",
    f"{DYNAMIC}.maxExecutors": "3",
    f"{DYNAMIC}.scalingInterval": "2s",
    f"{DYNAMIC}.scalingUpRatio": "1.0",
    f"{DYNAMIC}.scalingDownRatio": "0.7",
    "spark.streaming.receiver.writeAheadLog.enable": "true",
    "spark.ui.enabled": "false",
    **executor_settings(),
}
PATIENCE_S = 120.0
TASKS_OF_A_LOADED_BATCH = 9


class Steady(Receiver):
    """Stores a record twice a second."""

    def onStart(self) -> None:
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while not self.isStopped():
            self.storeAll([1])
            time.sleep(0.5)

    def onStop(self) -> None: ...


class Told(StreamingListener):
    """On which executors the receiver was started, and why outputs have failed."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[str] = []
        self.failed: list[str] = []

    def onReceiverStarted(self, receiverStarted: Any) -> None:
        self.started.append(receiverStarted.receiverInfo().executorId())

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        outputs = batchCompleted.info.outputs.values()
        self.failed += [output.failure_reason for output in outputs if output.failure_reason is not None]


def wait(what: Callable[[], Any], name: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end, f"it never happened that {name}"
        time.sleep(0.05)


def busy(_records: Iterator[Any]) -> Iterator[int]:
    """A second of work: a sleep, for the cores of the machine are few."""
    time.sleep(1)
    return iter([1])


def main(master: str, checkpoint: str) -> None:
    conf = SparkConf().setMaster(master)
    for key, value in CONF.items():
        conf.set(key, value)
    sc = make_spark_context(conf)
    sc.setLogLevel("OFF")
    loaded, told, received, seconds = threading.Event(), Told(), list[int](), dict[str, float]()

    def ids() -> list[str]:
        return [executor.executor_id for executor in executors(sc)]

    wait(lambda: len(ids()) == 3, "the cluster has given its three executors")
    began = time.monotonic()

    def passed(phase: str) -> None:
        seconds[phase] = round(time.monotonic() - began, 1)
        print(f"{phase} after {seconds[phase]} s", file=sys.stderr)

    def output(rdd: Any) -> None:
        received.append(rdd.count())
        if loaded.is_set():
            sc.parallelize(range(TASKS_OF_A_LOADED_BATCH), TASKS_OF_A_LOADED_BATCH).mapPartitions(busy).count()

    ssc = StreamingContext(sc, 2)
    ssc.checkpoint(checkpoint)
    ssc.addStreamingListener(told)
    ssc.receiverStream(Steady()).foreachRDD(output)
    ssc.start()
    wait(lambda: told.started and len(ids()) == 2, "an executor has ended")
    passed("shrunk")
    first, left = told.started[0], ids()
    os.kill(executors_of(sc.applicationId)[first], signal.SIGKILL)
    wait(lambda: len(told.started) == 2, "the receiver was started again")
    passed("moved")
    wait(lambda: first not in ids() and len(ids()) == 2, "the lost executor was replaced")
    passed("replaced")
    loaded.set()
    wait(lambda: len(ids()) == 3, "the job has three executors again")
    passed("grown")
    before = sum(received)
    loaded.clear()
    wait(lambda: len(ids()) < 3, "an executor has ended again")
    passed("shrunk again")
    wait(lambda: sum(received) > before, "records are received")
    found = {"started": told.started, "left": [left, ids()], "failed": told.failed, "seconds": seconds}
    ssc.stop(stopSparkContext=True, stopGraceFully=False)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
