"""Drivers of one checkpoint as processes of their own, to be killed, frozen and started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from integration.exactness.verdict import read_lines
from tests.daemon_trace import without_broken_pipes

Driver = subprocess.Popen[bytes]


class Job:
    """Drivers of one checkpoint, each a process that runs `integration.exactness.job`."""

    def __init__(
        self, directory: Path, bootstrap: str, topic: str, checkpoint: Path | str | None = None, window: int = 2,
        conf: dict[str, str] | None = None, params: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.directory = directory
        self.log = directory / "driver.log"
        self._options = {
            "bootstrap": bootstrap, "topic": topic, "directory": str(directory), "interval": 1, "window": window,
            "conf": {"spark.streaming.stopGracefullyOnShutdown": "true", **(conf or {})},
            "checkpoint": str(checkpoint or directory / "checkpoint"), "params": params or {},
        }  # fmt: skip
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "options.json").write_text(json.dumps(self._options))

    def start(self, **environment: str) -> Driver:
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "integration.exactness.job", str(self.directory / "options.json")],
                env={**os.environ, **environment}, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def attempts(self) -> list[dict[str, Any]]:
        return read_lines(self.directory / "attempts.jsonl")

    def records_tried(self) -> int:
        by_time = {a["time"]: a["ranges"] for a in self.attempts()}
        return sum(until - start for ranges in by_time.values() for _t, _p, start, until in ranges)

    def output(self) -> str:
        return without_broken_pipes(self.log.read_text(errors="replace"))


@contextmanager
def running(*drivers: Driver) -> Iterator[None]:
    """Drivers that are gone when the block ends, stopped or not."""
    try:
        yield
    finally:
        for driver in drivers:
            if driver.poll() is None:
                driver.kill()
                driver.wait()


def wait_for(reached: Callable[[], Any], what: str, job: Job, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {seconds} s:\n{job.output()[-4000:]}")
        time.sleep(0.05)
