"""A job whose closure has 2 MB, and a window each ten batches, for many short batches: what grows with their number is a leak.

    python -m integration.leaks [--batches N] [--minutes N] [--watched] [--bootstrap HOST:PORT] [--bars]

After each tenth batch, and in a long run after each thousandth part of it, it looks at what the driver and its JVM hold. It prints a line
of JSON: for each figure its samples. Without an address it starts a broker of its own. Under `--bars` a figure that has grown is exit
status 1. `--minutes` ends a run early: the bars then hold for the batches that it has made, whose number it prints. `--watched` switches
back-pressure, the page and the metrics on, asks both at each sample, and lets the output refuse some batches once.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from kstream_kafka import KafkaUtils, value_only
from py4j.finalizer import ThreadSafeFinalizer
from pyspark import SparkConf

from integration.kafka_broker import running_broker
from integration.kafka_handle import KafkaAt
from integration.memory import heap_mb, resident_mb
from kstream import StreamingContext
from kstream.testing import ManualClock

INTERVAL_S = 1
EACH = 10
"""A sample is taken after so many batches, and in a run of more than ten thousand after each `SAMPLES`-th part of it."""
SAMPLES = 1000
A_BATCH = 20
SETTLED = 120
"""The first batches fill what has a bound: the progress of a hundred batches, fifty plans, Spark's caches."""
CLOSURE = os.urandom(2_000_000)
WATCHED = {
    "spark.streaming.backpressure.enabled": "true",
    "spark.streaming.kstream.ui.enabled": "true",
    "spark.streaming.kstream.ui.port": "0",
    "spark.streaming.kstream.metrics.port": "0",
    "spark.streaming.kstream.batch.retries": "3",
}


def with_closure(value: Any) -> int:
    """Use two megabytes that are pickled with the function."""
    return len(value) + len(CLOSURE)


def filled_topic(bootstrap: str, records: int) -> str:
    """A new topic with so many records in two partitions."""
    name = "leaks-" + uuid.uuid4().hex[:8]
    kafka = KafkaAt(bootstrap)
    kafka.create_topic(name, 2)
    kafka.produce(name, ((None, b"x" * 100, n % 2) for n in range(records)))
    return name


def files_under(folder: Path, of_shuffles: bool) -> int:
    """How many files are those of Spark's shuffles, or how many are others. Spark removes the former a while after it needs them."""
    return sum(name.startswith("shuffle_") == of_shuffles for _, _, names in os.walk(folder) for name in names)


def jvm_threads(jvm: Any) -> int:
    """How many threads the JVM has, without those that watch a worker until two seconds after its task: they follow the rate of tasks."""
    names = jvm.java.lang.Thread.getAllStackTraces().keySet().toString()
    return names.count("Thread[") - names.count("Worker Monitor for")


class Probe:
    """Samples of what the driver holds.

    Args:
        ssc: the running context.
        folder: where Spark has its local files, and the checkpoint lies.
    """

    def __init__(self, ssc: StreamingContext, folder: Path) -> None:
        jvm: Any = ssc.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
        self._looks: dict[str, Callable[[], float]] = {
            "python_objects": lambda: gc.collect() * 0 + len(gc.get_objects()),
            "python_mb": resident_mb,
            "heap_mb": lambda: heap_mb(ssc, collections=5),
            "py4j_objects": lambda: len(ThreadSafeFinalizer.finalizers),
            "threads": lambda: float(threading.active_count()),
            "jvm_threads": lambda: jvm_threads(jvm),
            "descriptors": lambda: float(len(os.listdir("/proc/self/fd"))),
            "files": lambda: files_under(folder, of_shuffles=False),
            "shuffle_files": lambda: files_under(folder, of_shuffles=True),
        }
        self.samples: dict[str, list[float]] = {name: [] for name in self._looks}

    def look(self) -> None:
        for name, look in self._looks.items():
            self.samples[name].append(float(look()))

    def last(self) -> dict[str, float]:
        return {name: round(values[-1], 1) for name, values in self.samples.items()}


def batches_a_sample(batches: int) -> int:
    """The number of batches from one sample to the next in a run of so many: each sample collects the JVM's garbage."""
    return max(EACH, batches // SAMPLES)


class Counting:
    """The output of the job: counts the records of all batches. It refuses some batches once, if it is to.

    Args:
        refuses: whether it refuses the seventh of each fifty calls. The next call has the batch again, or the one after it.
    """

    def __init__(self, refuses: bool) -> None:
        self.read = 0
        self._refuses = refuses
        self._calls = 0

    def __call__(self, rdd: Any) -> None:
        self._calls += 1
        if self._refuses and self._calls % 50 == 7:
            raise OSError("the output refuses this batch once")
        self.read += rdd.map(with_closure).count()


def ask(*urls: str | None) -> None:
    """Ask for the metrics and the page, as a scraper and a browser do."""
    for url in urls:
        if url is not None:
            with urlopen(url, timeout=10) as answer:
                answer.read()


def run(batches: int, minutes: float, watched: bool, bootstrap: str, folder: Path) -> dict[str, list[float]]:
    """Run the job for so many batches, or so many minutes if they end before, and check that it has read all records."""
    topic = filled_topic(bootstrap, batches * A_BATCH)
    (folder / "local").mkdir()
    conf = SparkConf().setMaster("local[2]").setAppName("leaks").set("spark.ui.enabled", "false")
    conf.set("spark.local.dir", str(folder / "local"))
    conf.set("spark.streaming.kafka.maxRatePerPartition", str(int(A_BATCH / 2 / INTERVAL_S)))
    conf.set("spark.streaming.kstream.history", f"{SETTLED // 2}s")
    for kept in ("Jobs", "Stages", "Tasks"):
        conf.set(f"spark.ui.retained{kept}", "100")  # Spark keeps a thousand, more than a short run makes: its heap would rise to the end
    for key in WATCHED if watched else {}:
        conf.set(key, WATCHED[key])
    clock = ManualClock(time.time_ns() // 1_000_000)  # the next batch is due when the last one has ended, whatever the machine
    ssc = StreamingContext(conf, INTERVAL_S, clock=clock)
    ssc.checkpoint(str(folder / "checkpoint"))

    count = Counting(watched)
    params = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
    stream = KafkaUtils.createDirectStream(ssc, [topic], params, messageHandler=value_only)
    stream.foreachRDD(count)
    stream.map(len).window(10 * INTERVAL_S, 10 * INTERVAL_S).count().foreachRDD(lambda rdd: rdd.collect())
    each, number, end = batches_a_sample(batches), 0, time.monotonic() + 60 * minutes
    ssc.start()
    try:
        probe = Probe(ssc, folder)
        while number < batches and time.monotonic() < end:
            number += 1
            clock.advance(1000 * INTERVAL_S)
            if number % each == 0:
                ask(ssc.metricsUrl, ssc.uiUrl)
                probe.look()
            if number % (each * 50) == 0:
                print(f"{number} batches: {probe.last()}", file=sys.stderr)
    finally:
        ssc.stop()
    print(f"{number} batches, a sample after each {each}", file=sys.stderr)
    assert count.read == number * A_BATCH, f"{count.read} of {number * A_BATCH} records were read"
    return probe.samples


def growth(samples: Sequence[float]) -> float:
    """How much a figure grows over its samples, by a straight line; 0 if chance explains it, or if it is less than 5 % of the mean."""
    xs = range(len(samples))
    mean_x, mean = statistics.mean(xs), statistics.mean(samples)
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean) for x, y in zip(xs, samples, strict=True)) / spread
    rest = sum((y - mean - slope * (x - mean_x)) ** 2 for x, y in zip(xs, samples, strict=True))
    error = math.sqrt(rest / (len(samples) - 2) / spread)
    grown = slope * (len(samples) - 1)
    return grown if slope > 4 * error and grown > 0.05 * abs(mean) else 0.0


def grown(samples: Mapping[str, Sequence[float]], each: int = EACH) -> dict[str, float]:
    """The figures that have grown since the first batches, and by how much."""
    found = {name: growth(values[math.ceil(SETTLED / each) :]) for name, values in samples.items()}
    return {name: value for name, value in found.items() if value}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--watched", action="store_true")
    parser.add_argument("--bootstrap", default="")
    parser.add_argument("--bars", action="store_true")
    options = parser.parse_args()
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory()))
        bootstrap = options.bootstrap or resources.enter_context(running_broker(folder / "kafka")).bootstrap
        (folder / "job").mkdir()
        samples = run(options.batches, options.minutes, options.watched, bootstrap, folder / "job")
    print(json.dumps(samples))
    found = grown(samples, batches_a_sample(options.batches)) if options.bars else {}
    print("\n".join(f"{name} has grown by {value:.1f}" for name, value in found.items()), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
