"""The bare PySpark job of 4 tasks, in a module of its own so that a checkpoint can name it instead of pickling what it uses."""

from __future__ import annotations

import time
from typing import Any

from pyspark import SparkContext

from kstream.spark.worker_rdd import WorkerRDD

output_seconds = 0.0
"""How long the last run inside a batch took."""


def run() -> None:
    WorkerRDD(SparkContext.getOrCreate(), 4, lambda index: iter([index])).map(lambda x: x + 1).sum()


def output(_rdd: Any) -> None:
    """The output operation of the benchmark: the bare job, timed."""
    global output_seconds
    began = time.perf_counter()
    run()
    output_seconds = time.perf_counter() - began
