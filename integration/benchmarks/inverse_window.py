"""The bar on windows with an inverse: what a batch costs is the same for a window of 10 slides and one of 60; without, it grows.

    python -m integration.benchmarks.inverse_window [--batches N] [--long N] [--short N] [--records N] [--keys N]

One context on local[2] runs reduceByKeyAndWindow four times over one input: with and without the inverse function, each over a short and a
long window that slide by one batch. A manual clock asks for one batch at a time. What is timed is a stream's whole part in the batch: the
making of its RDD on the driver and the Spark job of its output. Batches count from when the long window is full.
"""

from __future__ import annotations

import operator
import statistics
import sys
import tempfile
import time
from functools import partial
from typing import Any

from pyspark import RDD

from integration.benchmarks import stopwatch
from integration.benchmarks.harness import parser_of
from integration.benchmarks.map_with_state import CORES, RandomKeys
from integration.benchmarks.ticked import Ticked
from kstream import DStream
from kstream.batch_time import Time
from kstream.dstream.base import node_of

WARM_UP = 5
LIMIT = 1.3
"""For the windows with an inverse, long against short."""
LESS = 0.8
"""How much of the growth of those without an inverse they may have."""


making: dict[str, list[float]] = {}
"""Seconds of each stream's making of its RDD, in the order of the batches."""


def add_side(name: str, stream: DStream) -> None:
    """Times what `stream` takes in every batch, under that name."""
    node = node_of(stream)
    make = node.getOrCompute

    def timed(batch: Time) -> Any:
        began = time.perf_counter()
        rdd = make(batch)
        making.setdefault(name, []).append(time.perf_counter() - began)
        return rdd

    node.getOrCompute = timed  # pyright: ignore[reportAttributeAccessIssue]
    stopwatch.jobs[name] = RDD.count
    stream.foreachRDD(partial(stopwatch.run, name))


def add_sides(source: DStream, short: int, long: int) -> None:
    """The four streams; `short` and `long` are batches."""
    for length, batches in (("short", short), ("long", long)):
        add_side(f"inverse {length}", source.reduceByKeyAndWindow(operator.add, operator.sub, batches, 1, CORES))
        add_side(f"plain {length}", source.reduceByKeyAndWindow(operator.add, None, batches, 1, CORES))


def report(first: int) -> bool:
    """Prints the ratios of the medians of all batches from the `first` on; whether the bars are met."""
    took = {
        name: statistics.median(made + ran for made, ran in zip(making[name][first:], stopwatch.seconds[name][first:], strict=True))
        for name in making
    }
    growth = {form: took[f"{form} long"] / took[f"{form} short"] for form in ("inverse", "plain")}
    bars = (
        ("with inverse: long window / short", growth["inverse"], LIMIT),
        ("that, against the same without inverse", growth["inverse"] / growth["plain"], LESS),
    )
    for name, ratio, limit in bars:
        print(f"{'ok  ' if ratio <= limit else 'MISS'} {name:40} {ratio:5.2f} (bar ≤ {limit})")
    for form in growth:
        print(f"     {form:8} {_ms(took[f'{form} short'])} for the short window, {_ms(took[f'{form} long'])} for the long one")
    return all(ratio <= limit for _, ratio, limit in bars)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def main() -> int:
    options = parser_of(__doc__, batches=30, short=10, long=60, keys=1000, records=10_000).parse_args()
    with tempfile.TemporaryDirectory() as directory:
        ticked = Ticked("inverse_window", directory, CORES)
        add_sides(RandomKeys(ticked.ssc, options.keys, options.records), options.short, options.long)
        first = options.long + WARM_UP
        ticked.run(first + options.batches, timeout=300)
    return 0 if report(first) else 1


if __name__ == "__main__":
    sys.exit(main())
