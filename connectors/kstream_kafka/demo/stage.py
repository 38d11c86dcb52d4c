"""Stage: runs the demo.

It starts the broker, the feed and a driver that is killed. It starts a second driver, ends the feed, and collects the evidence.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kstream.batch_time import Duration, Time, format_batch_time
from kstream.checkpoint import read_log
from kstream.cli.inputs import ranges_of
from kstream.cli.terminal import echo
from kstream.crash_point import RUNNING, VARIABLE
from kstream.errors import KStreamError
from kstream.offsets.offset_range import PlannedRange
from kstream.storage import LocalFileStore
from kstream_kafka.demo.journal import Journal
from kstream_kafka.demo.page import Page
from kstream_kafka.demo.proof import CountedOrder, Evidence, ProofResult, prove

TOPIC = "orders"
OUTPUTS = 2
"""Output operations of the job: the sink first, then the window."""
LIVE_AFTER_RESTART = 3
"""Batches of their own time that the second driver begins before the feed stops."""
PATIENCE_SECONDS = 180.0
STEP_SECONDS = 0.1


class DemoError(KStreamError):
    """A part of the demo failed. Its fact is `log`, the log file of the part."""


@dataclass(frozen=True)
class Script:
    """The numbers of a demo.

    Attributes:
        batches: the number of batches that are planned before the feed stops.
        interval: the batch interval, in ms.
        window: the length of a window, in ms.
        rate: orders per second.
        seed: the seed of the orders.
    """

    batches: int
    interval: int
    window: int
    rate: int
    seed: int

    @property
    def kill_in(self) -> int:
        """The number of the batch in which the driver is killed."""
        return max(2, self.batches // 3)

    @property
    def max_rate(self) -> int:
        """The most records per second and partition.

        It is four times the feed's rate to one of the four partitions, so that a backlog drains fast.
        """
        return self.rate


class Stage:
    """Owns the processes and the folder of the demo. Leaving the context ends the processes and removes the folder. Used by one thread.

    Attributes:
        journal: what the drivers have done.
        folder: the folder of the demo.
        checkpoint: the checkpoint of the drivers, in this folder.
        pending: the ranges of the batches that were pending when the driver was killed, by batch time.
        killed_at: the time of the kill, in seconds since the epoch.
        downtime: the time from the kill to the next start of the driver, in seconds.

    Args:
        script: the numbers of the demo.
        page: the page of the drivers.
        opens: whether a browser shows it.
    """

    def __init__(self, script: Script, page: Page, opens: bool) -> None:
        self._script, self._page, self._opens = script, page, opens
        self._stack = ExitStack()
        self._acknowledged = 0
        self._feed: Child | None = None
        self.pending: dict[int, list[PlannedRange]] = {}
        self.written: set[int] = set()
        """Batches whose orders were in the sink when the driver died."""
        self.killed_at = 0.0
        self.downtime = 0.0

    def __enter__(self) -> Stage:
        self.folder = Path(tempfile.mkdtemp(prefix="kstream-demo-"))
        self.checkpoint = self.folder / "checkpoint"
        self._out = self.folder / "out"
        self._out.mkdir()
        self.journal = Journal(self._out / "journal.jsonl")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End all processes and remove the folder. After a KStreamError the folder stays, because the message names its logs."""
        self._stack.close()
        if kind is None or not issubclass(kind, KStreamError):
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- steps

    def play(self) -> ProofResult:
        """Run the whole demo and return the result of the proof. Blocks.

        Raises:
            DemoError: a part fails, or a step takes more than three minutes.
        """
        bootstrap = self._start_broker()
        feed = self._start_feed(bootstrap)
        self._first_life(bootstrap)
        driver = self._second_life(bootstrap)
        self._end_feed(feed)
        self._drain(driver)
        echo("proving…")
        return prove(self._evidence())

    def _start_broker(self) -> str:
        self._broker = self._child("kstream_kafka.demo.embedded_broker", [], "broker.log")
        address: list[str] = []

        def has_address() -> bool:
            address.extend(line["bootstrap"] for line in self._broker.new_lines())
            return bool(address)

        self._until(has_address, "the embedded broker to start")
        return address[0]

    def _start_feed(self, bootstrap: str) -> Child:
        """Start the feed, and return it once the first orders are acknowledged."""
        script = self._script
        args = ["--bootstrap", bootstrap, "--topic", TOPIC, "--rate", str(script.rate), "--seed", str(script.seed)]
        self._feed = feed = self._child("kstream_kafka.demo.order_feed", [*args, "--truth", str(self.folder / "truth.json")], "feed.log")
        self._until(lambda: self._acknowledged > 0, "the first orders")
        echo(f"a Kafka broker at {bootstrap}, and {script.rate} orders a second into 4 partitions of {TOPIC!r}")
        return feed

    def _first_life(self, bootstrap: str) -> None:
        """Run the driver until it kills itself in the window job of a batch. Note the pending batches of its checkpoint.

        The orders of this batch are in the sink by then.
        """
        nth = OUTPUTS * self._script.kill_in
        driver = self._start_driver(bootstrap, {VARIABLE: f"{RUNNING}:{nth}"})
        echo(f"driver 1 starts (pid {driver.pid}): Spark in local[2], totals by region over {self._script.window / 1000:g} s")
        self._until(lambda: bool(self.journal.drivers) or driver.exit_code is not None, "driver 1 to start")
        if driver.exit_code is None:
            echo(f"the page of the driver: {self._page.url}")
            if self._opens:
                self._page.open()
        self._until(lambda: driver.exit_code is not None, "driver 1 to be killed")
        if driver.exit_code != -9:
            raise self._failed(driver, f"driver 1 ended with exit code {driver.exit_code}")
        self.killed_at = time.time()
        self._take_in()
        self.written = {int(path.stem) for path in (self._out / "batches").glob("*.json")}
        log = read_log(LocalFileStore(self.checkpoint))
        self.pending = {t.milliseconds: [r for data in log.plans[t].inputs.values() for r in ranges_of(data) or ()] for t in log.pending}
        listed = ", ".join(self.text(batch) for batch in sorted(self.pending))
        echo(f"driver 1 was killed (SIGKILL) in the middle of a batch; planned and not done: {listed}")

    def _second_life(self, bootstrap: str) -> Child:
        """Start the driver again, and wait until it has caught up. Return its process, which still runs."""
        driver = self._start_driver(bootstrap, {})
        echo(f"driver 2 starts (pid {driver.pid}) from the checkpoint; the orders keep coming")
        self._until(lambda: len(self.journal.drivers) > 1, "driver 2 to start", driver)
        self.downtime = self.journal.restarted_at / 1000 - self.killed_at

        def far_enough() -> bool:
            batches = {attempt.batch for attempt in self.journal.attempts}
            return len(self.journal.live()) >= LIVE_AFTER_RESTART and len(batches) >= self._script.batches

        self._until(far_enough, "the stream to continue", driver)
        return driver

    def _end_feed(self, feed: Child) -> None:
        """End the feed, and wait until it has written the acknowledged orders."""
        echo("the feed stops")
        feed.close_stdin()
        self._until(lambda: feed.exit_code is not None, "the feed to end")
        self._take_in()
        if feed.exit_code != 0 or not (self.folder / "truth.json").exists():
            raise self._failed(feed, "the feed failed")

    def _drain(self, driver: Child) -> None:
        """Wait until batches with all acknowledged orders have begun, then stop the driver gracefully."""
        self._until(lambda: self.journal.num_records() >= self._acknowledged, "the last orders to be counted", driver)
        echo("SIGTERM to driver 2: it finishes the planned batches and stops")
        driver.terminate()
        self._until(lambda: driver.exit_code is not None, "driver 2 to stop")
        self._take_in()
        if driver.exit_code != 0:
            raise self._failed(driver, f"driver 2 ended with exit code {driver.exit_code}")

    # -- the parts

    def _start_driver(self, bootstrap: str, environment: dict[str, str]) -> Child:
        """Start the process of a driver. `environment` has additional variables."""
        script = self._script
        args = ["--bootstrap", bootstrap, "--topic", TOPIC, "--checkpoint", str(self.checkpoint), "--out", str(self._out)]
        args += ["--interval", str(script.interval / 1000), "--window", str(script.window / 1000), "--max-rate", str(script.max_rate)]
        args += ["--page-port", str(self._page.port)]
        inherited = {k: v for k, v in os.environ.items() if k != VARIABLE}
        defaults = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        own = {"SPARK_LOCAL_DIRS": str(self.folder / "spark")}
        return self._child("kstream_kafka.demo.job", args, "driver.log", {**defaults, **inherited, **own, **environment})

    def _child(self, module: str, args: list[str], log: str, environment: dict[str, str] | None = None) -> Child:
        """Start a module as a process that ends with the context."""
        child = Child(module, args, self.folder / log, environment)
        self._stack.callback(child.kill)
        return child

    # -- watching

    def _until(self, condition: Callable[[], bool], what: str, driver: Child | None = None) -> None:
        """Block until a condition is true. Checks it every 0.1 s.

        Args:
            condition: the condition.
            what: the condition in words, for the error.
            driver: a driver that must not end meanwhile.

        Raises:
            DemoError: the broker or `driver` has ended, or three minutes have passed.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            self._take_in()
            for name, child in (("the embedded broker", self._broker), ("the driver", driver)):
                if child is not None and child.exit_code is not None:
                    raise self._failed(child, f"{name} ended by itself (exit code {child.exit_code})")
            if time.monotonic() > deadline:
                raise self._failed(driver, f"waited {PATIENCE_SECONDS:g} s for {what}")
            time.sleep(STEP_SECONDS)

    def _take_in(self) -> None:
        """Read the new lines of the feed and of the journal. Does not block.

        Raises:
            DemoError: Kafka did not acknowledge orders, or a batch failed.
        """
        for line in self._feed.new_lines() if self._feed is not None else ():
            self._acknowledged = line["acknowledged"]
            if line.get("lost"):
                raise self._failed(self._feed, f"Kafka did not acknowledge {line['lost']} orders, so there is nothing to compare with")
        self.journal.read()
        if self.journal.failure is not None:
            batch, reason = self.journal.failure
            raise self._failed(None, f"batch {self.text(batch)} failed: {reason.splitlines()[0]}")

    def _failed(self, child: Child | None, what: str) -> DemoError:
        """Return the error for a failed part, with the last line of its log. None stands for the driver, without a line."""
        log = child.log if child is not None else self.folder / "driver.log"
        said = f": {child.last_line()}" if child is not None else ""
        return DemoError(f"{what}{said} (see {log})", log=str(log))

    def text(self, batch: int) -> str:
        """Return the time of a batch, as Spark shows it."""
        return format_batch_time(Time(batch), Duration(self._script.interval))

    # -- evidence

    def _evidence(self) -> Evidence:
        """Return the facts for the proof, from files."""
        truth = json.loads((self.folder / "truth.json").read_text())
        ends: dict[int, int] = {}
        for _, _, _, partition, offset in truth:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        batches = {t: [CountedOrder(*row) for row in rows] for t, rows in _by_time(self._out / "batches")}
        windows = {t: {k: (v[0], v[1]) for k, v in totals.items()} for t, totals in _by_time(self._out / "windows")}
        return Evidence(
            truth=[CountedOrder(*row[:3]) for row in truth],
            ends=ends,
            batches=batches,
            windows=windows,
            attempts=self.journal.attempts,
            pending=self.pending,
            interval=self._script.interval,
            window=self._script.window,
        )


def _by_time(folder: Path) -> Iterator[tuple[int, Any]]:
    """Yield the batch time and the content of each JSON file in a folder."""
    for path in sorted(folder.glob("*.json")):
        yield int(path.stem), json.loads(path.read_text())


# -- processes


class Child:
    """A Python module that runs as a process and ends with this process. The constructor starts it.

    The process has its own session, so Ctrl-C reaches the parent only. Its standard input is a pipe from the parent. The pipe closes when
    the parent dies, however it dies, and the modules of the demo end then. A thread reads its standard output; `log` gets its standard
    error.
    """

    def __init__(self, module: str, args: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env=None if environment is None else dict(environment),
            )
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs, minus the number of the signal that ended it."""
        return self._process.poll()

    def new_lines(self) -> list[dict[str, Any]]:
        """Return the JSON lines that the process has printed since the last call. Does not block."""
        lines: list[dict[str, Any]] = []
        while True:
            try:
                lines.append(self._lines.get_nowait())
            except queue.Empty:
                return lines

    def close_stdin(self) -> None:
        """Ask the process to end, by closing its standard input."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the process, and wait until its group has ended. Blocks.

        The JVM of a driver ends within a second by itself. Processes that are still there after five seconds are killed.
        """
        self.close_stdin()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if not _group_ends(self.pid, 5.0):
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._reader.join(1.0)

    def last_line(self) -> str:
        """Return the last line of the log that is not empty."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"

    def _read(self) -> None:
        """Queue the JSON objects that the process prints, until its output ends. Runs on the reader's thread."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                self._lines.put(record)


def _group_ends(group: int, seconds: float) -> bool:
    """Wait until all processes of a group have ended, for so many seconds at most. Return whether they have ended."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
