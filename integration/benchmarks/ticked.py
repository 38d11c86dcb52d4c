"""A context whose batches a benchmark asks for one at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf

from kstream import StreamingContext, StreamingListener
from kstream.testing import ManualClock

INTERVAL_MS = 1000


class Ticker(StreamingListener):
    """Lets the benchmark wait for the end of a batch. `ended_at` is when listeners heard of the last end, by `time.perf_counter`."""

    def __init__(self) -> None:
        self.ended = threading.Semaphore(0)
        self.ended_at = 0.0

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        self.ended_at = time.perf_counter()
        self.ended.release()


class Ticked:
    """`ssc` is on local[cores] and a clock that stands still between two calls of `batch`."""

    def __init__(self, name: str, directory: Path | str, cores: int = 2, conf: Mapping[str, str] | None = None) -> None:
        spark = SparkConf().setMaster(f"local[{cores}]").setAppName(name).set("spark.ui.enabled", "false")
        spark = spark.set("spark.driver.host", "127.0.0.1").set("spark.ui.showConsoleProgress", "false")
        self.clock = ManualClock(10 * INTERVAL_MS)
        self.ssc = StreamingContext(spark.setAll(list((conf or {}).items())), INTERVAL_MS / 1000, clock=self.clock)
        self.ssc.sparkContext.setLogLevel("ERROR")
        self.ssc.checkpoint(str(directory))
        self._ticker = Ticker()
        self.ssc.addStreamingListener(self._ticker)

    def tick(self, timeout: float = 60) -> float:
        """Runs one batch. Returns the seconds from the tick until listeners heard of its end; its clean-up may still run."""
        self.clock.wait_for_waiters()
        began = time.perf_counter()
        self.clock.advance(INTERVAL_MS, wait=False)
        if not self._ticker.ended.acquire(timeout=timeout):
            raise SystemExit(f"a batch did not end within {timeout:.0f} s")
        return self._ticker.ended_at - began

    def batch(self, timeout: float = 60) -> float:
        """As `tick`. The clean-up that follows the end is waited for, too, and not counted: it must not run beside what is timed next."""
        seconds = self.tick(timeout)
        self.clock.advance(0)
        return seconds

    def waiting_blocks(self) -> int:
        """How many received blocks the driver has that are in no batch yet."""
        engine = self.ssc._engine
        assert engine is not None
        return engine.snapshot().waiting_blocks or 0

    def run(self, batches: int, timeout: float = 60) -> list[float]:
        """From the start of the context to its end. Returns the seconds of each batch, as `batch` does."""
        self.ssc.start()
        seconds = [self.batch(timeout) for _ in range(batches)]
        self.ssc.stop()
        self.ssc.awaitTermination(1)
        return seconds
