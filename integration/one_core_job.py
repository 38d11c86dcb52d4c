"""Two receivers on a cluster whose executors have one core each, where a task waits ten minutes for an executor that it prefers.

    python -m integration.one_core_job MASTER

Ends after a number of batches with records of both receivers. Prints what it saw as a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from pyspark import SparkConf

from kstream import Receiver, StreamingContext
from kstream.spark.spark_context import make_spark_context

BATCHES = 5
PATIENCE_S = 150.0
BLOCK = 10
"""Records of a block."""


class Steady(Receiver):
    """Stores a block of its own number ten times a second."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def onStart(self) -> None:
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while not self.isStopped():
            self.storeAll([self.number] * BLOCK)
            time.sleep(0.1)

    def onStop(self) -> None: ...


def preferred_locations(rdd: Any) -> list[str]:
    """What Spark's scheduler knows the tasks of an RDD to prefer."""
    context = rdd.context._jsc.sc()
    jrdd = rdd._jrdd.rdd()
    found = [context.getPreferredLocs(jrdd, index).mkString(",") for index in range(rdd.getNumPartitions())]
    return [name for names in found for name in names.split(",") if name]


def main(master: str) -> None:
    conf = SparkConf().setMaster(master).set("spark.ui.enabled", "false").set("spark.executor.memory", "512m")
    conf.set("spark.locality.wait", "600s").set("spark.executorEnv.PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    sc = make_spark_context(conf)
    sc.setLogLevel("OFF")
    batches: list[dict[str, Any]] = []
    enough = threading.Event()
    ssc = StreamingContext(sc, 1)

    def look(rdd: Any) -> None:
        received: Any = ssc._engine._received  # pyright: ignore
        with_receivers = sorted(received._tracker.receivers_on_executors())
        records = rdd.collect()
        if set(records) == {1, 2}:
            batches.append({"records": len(records), "preferred": preferred_locations(rdd), "receivers": with_receivers})
        if len(batches) == BATCHES:
            enough.set()

    ssc.union(ssc.receiverStream(Steady(1)), ssc.receiverStream(Steady(2))).foreachRDD(look)
    ssc.start()
    kept_up = enough.wait(PATIENCE_S)
    ssc.stop(stopSparkContext=True, stopGraceFully=False)
    print(json.dumps({"kept_up": kept_up, "batches": batches[:BATCHES]}))


if __name__ == "__main__":
    main(sys.argv[1])
