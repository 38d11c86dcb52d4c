"""A job with states and windows that begins with a backlog: what a batch of it costs at the beginning, and what at the end.

    python -m integration.state_backlog [--batches N] [--master URL]

All batches become due at once. With each tenth one it looks at the heap of the JVM, the blocks that Spark keeps, and the files of states.
It prints a line of JSON: for each figure its mean in the first and in the last third, and the ratio of the two.
"""

from __future__ import annotations

import argparse
import json
import operator
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

from integration.memory import heap_mb
from kstream import State, StateSpec
from kstream.spark.spark_context import make_spark_context
from tests.streams import INTERVAL, Stream, numbers

SIZE, KEYS, WINDOW_S = 200, 20, 5
EACH = 10
"""Batches between two looks."""


def total(values: Sequence[int], before: int | None) -> int:
    return sum(values) + (before or 0)


def count(key: int, one: int | None, state: State) -> int:
    state.update((state.getOption() or 0) + (one or 0))
    return state.get()


class Figures:
    """What each look has found."""

    def __init__(self, stream: Stream, checkpoint: Path) -> None:
        self.seconds: list[float] = []
        self.heap: list[float] = []
        self.blocks: list[float] = []
        self.files: list[float] = []
        self._stream, self._checkpoint = stream, checkpoint
        self._before = time.perf_counter()
        self._batches = 0

    def note(self) -> None:
        """The end of a batch."""
        self._batches += 1
        if self._batches % EACH:
            return
        self.seconds.append((time.perf_counter() - self._before) / EACH)
        self.heap.append(heap_mb(self._stream.ssc))
        self.blocks.append(float(len(self._stream.ssc.sparkContext._jsc.getPersistentRDDs())))  # pyright: ignore
        self.files.append(float(len(list(self._checkpoint.glob("state/*")))))
        self._before = time.perf_counter()

    def ratios(self) -> dict[str, tuple[float, float, float]]:
        """Figure → its mean in the first third, in the last third, and how often the first goes into the last."""
        found: dict[str, tuple[float, float, float]] = {}
        for name in ("seconds", "heap", "blocks", "files"):
            samples: list[float] = getattr(self, name)
            third = max(1, len(samples) // 3)
            first, last = statistics.mean(samples[:third]), statistics.mean(samples[-third:])
            found[name] = (round(first, 3), round(last, 3), round(last / first, 3))
        return found


def run(sc: SparkContext, batches: int, checkpoint: Path) -> tuple[dict[str, tuple[float, float, float]], list[Any]]:
    """The figures, and the totals after the last batch."""
    stream = Stream(sc)
    stream.ssc.checkpoint(str(checkpoint))
    pairs = numbers(stream.ssc, SIZE, lambda number: (number % KEYS, 1))
    totals: list[Any] = []
    pairs.updateStateByKey(total, 2).foreachRDD(lambda rdd: totals.append(sorted(rdd.collect())))
    pairs.mapWithState(StateSpec.function(count).numPartitions(2)).foreachRDD(lambda rdd: rdd.count())
    pairs.reduceByKeyAndWindow(operator.add, operator.sub, WINDOW_S, 1, 2).foreachRDD(lambda rdd: rdd.count())
    figures = Figures(stream, checkpoint)
    pairs.foreachRDD(lambda _rdd: figures.note())
    stream.start()
    stream.clock.wait_for_waiters()
    stream.clock.advance(batches * INTERVAL)
    stream.counter.wait(batches, patience=60 + batches * 3)
    stream.stop()
    return figures.ratios(), totals[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    conf = SparkConf().setMaster(given.master).setAppName("state-backlog").set("spark.ui.enabled", "false")
    sc = make_spark_context(conf.set("spark.default.parallelism", "2"))
    sc.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as directory:
        ratios, totals = run(sc, given.batches, Path(directory))
    right = totals == [(key, given.batches * SIZE // KEYS) for key in range(KEYS)]
    print(json.dumps({"batches": given.batches, "totals are right": right, **ratios}))
    sc.stop()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
