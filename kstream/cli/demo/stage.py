"""The play: broker and feed, a driver, its death, its second life, the end of the feed, the proof."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kstream.checkpoint import read_log
from kstream.cli.demo.board import Board, Run, follow
from kstream.cli.demo.child import Child
from kstream.cli.demo.proof import Attempt, Evidence, Order, Verdict, prove
from kstream.cli.demo.view import View, batch_text
from kstream.cli.ranges import Range, kafka_ranges
from kstream.connectors import FIRST_PARTY
from kstream.crash_point import RUNNING, VARIABLE
from kstream.errors import KStreamError
from kstream.storage import LocalFileStore

KAFKA = FIRST_PARTY["kafka"]
TOPIC = "orders"
OUTPUTS = 2
"""Output operations of the job: the sink first, then the window."""
LIVE_AFTER_RESTART = 4
"""Batches that the second driver plans at their own time before the feed stops."""
PATIENCE_SECONDS = 180.0
STEP_SECONDS = 0.1


class DemoError(KStreamError):
    """A part of the demo did not do what it should. Facts: log (where its words are)."""


@dataclass(frozen=True)
class Script:
    """How the demo goes. `batches` are planned in all before the feed stops; `interval` and `window` in ms; `rate` in orders a second."""

    batches: int
    interval: int
    window: int
    rate: int
    seed: int

    @property
    def kill_in(self) -> int:
        """Which batch the driver is killed in."""
        return max(2, self.batches // 3)

    @property
    def max_rate(self) -> int:
        """A second and partition: four times what the feed sends to one of four partitions, so that backlogs drain visibly."""
        return self.rate


class Stage:
    """Owns the processes and the folder. `play` blocks for the whole demo; leaving the context ends what runs and tidies up."""

    def __init__(self, script: Script, board: Board, view: View) -> None:
        self._script, self.board, self._view = script, board, view
        self._stack = ExitStack()
        self.pending: dict[int, list[Range]] = {}
        self.written: set[int] = set()
        """Batches whose orders were in the sink when the driver died."""
        self.killed_at = 0.0
        self.downtime = 0.0

    def __enter__(self) -> Stage:
        self.folder = Path(tempfile.mkdtemp(prefix="kstream-demo-"))
        self._out = self.folder / "out"
        self._out.mkdir()
        self._journal = follow(self._out / "journal.jsonl")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After an error the logs stay, since its message names them."""
        self._stack.close()
        if kind is None or not issubclass(kind, KStreamError):
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- the acts

    def play(self) -> Verdict:
        """Everything, up to the verdict. DemoError when a part fails or a step takes more than three minutes."""
        bootstrap = self._start_broker()
        self._feed = self._start_feed(bootstrap)
        self._first_life(bootstrap)
        driver = self._second_life(bootstrap)
        self._end_feed()
        self._drain(driver)
        self._view.say("proving…")
        self._view.refresh()
        return prove(self._evidence())

    def _start_broker(self) -> str:
        self._broker = self._child(f"{KAFKA}.embedded_broker", [], "broker.log")
        address: list[str] = []

        def heard() -> bool:
            address.extend(line["bootstrap"] for line in self._broker.said())
            return bool(address)

        self._until(heard, "the embedded broker to start")
        return address[0]

    def _start_feed(self, bootstrap: str) -> Child:
        script = self._script
        args = ["--bootstrap", bootstrap, "--topic", TOPIC, "--rate", str(script.rate), "--seed", str(script.seed)]
        feed = self._child(f"{KAFKA}.order_feed", [*args, "--truth", str(self.folder / "truth.json")], "feed.log")
        self._feed = feed
        self._until(lambda: self.board.acknowledged > 0, "the first orders")
        self._view.say(f"a Kafka broker at {bootstrap}, and {script.rate} orders a second into 4 partitions of {TOPIC!r}")
        return feed

    def _first_life(self, bootstrap: str) -> None:
        """Runs the driver until it is killed, in the window job of a batch: its orders are in the sink by then."""
        nth = OUTPUTS * self._script.kill_in
        driver = self._start_driver(bootstrap, {VARIABLE: f"{RUNNING}:{nth}"})
        self._view.say(f"driver 1 starts (pid {driver.pid}): Spark in local[2], totals by region over {self._script.window / 1000:g} s")
        self.board.note = "driver 1 runs"
        self._until(lambda: driver.exit_code is not None, "driver 1 to be killed")
        if driver.exit_code != -9:
            raise self._failed(driver, f"driver 1 ended with exit code {driver.exit_code}")
        self.killed_at = time.time()
        self._hear()
        self.written = {int(path.stem) for path in (self._out / "batches").glob("*.json")}
        log = read_log(LocalFileStore(self.folder / "checkpoint"))
        self.pending = {t.milliseconds: ranges_of(dict(log.plans[t].inputs)) for t in log.pending}
        self.board.killed(set(self.pending))
        listed = ", ".join(self._text(batch) for batch in sorted(self.pending))
        self._view.say(f"driver 1 was killed (SIGKILL) in the middle of a batch; planned and not done: {listed}")

    def _second_life(self, bootstrap: str) -> Child:
        """Starts the driver again and lets it catch up and run on. Returns it, running."""
        driver = self._start_driver(bootstrap, {})
        self._view.say(f"driver 2 starts (pid {driver.pid}) from the checkpoint; the orders keep coming")
        self.board.note = "driver 2 starts"
        self._until(lambda: len(self.board.drivers) > 1, "driver 2 to start", driver)
        self.board.note = "driver 2 runs"
        self.downtime = self.board.restarted_at / 1000 - self.killed_at

        def far_enough() -> bool:
            batches = {row.batch for row in self.board.rows.values()}
            live = [row for row in self.board.rows.values() if row.driver == 2 and row.run is Run.FIRST]
            ended = [row for row in live if row.state == "done"]
            caught_up = len(ended) >= 2 or len(live) >= 2 * LIVE_AFTER_RESTART  # a slow machine does not make the demo long
            return caught_up and len(live) >= LIVE_AFTER_RESTART and len(batches) >= self._script.batches

        self._until(far_enough, "the stream to go on", driver)
        return driver

    def _end_feed(self) -> None:
        self._view.say("the feed stops")
        self.board.note = "the feed has stopped"
        self._feed.close_stdin()
        self._until(lambda: self._feed.exit_code is not None, "the feed to end")
        self._hear()
        if self._feed.exit_code != 0 or not (self.folder / "truth.json").exists():
            raise self._failed(self._feed, "the feed failed")

    def _drain(self, driver: Child) -> None:
        """Waits until everything acknowledged has been counted, then stops the driver gracefully."""
        total = self.board.acknowledged
        self._until(lambda: sum(r.records or 0 for r in self.board.ended()) >= total, "the last orders to be counted", driver)
        self._view.say("SIGTERM to driver 2: it finishes what is planned and stops")
        driver.terminate()
        self._until(lambda: driver.exit_code is not None, "driver 2 to stop")
        self._hear()
        if driver.exit_code != 0:
            raise self._failed(driver, f"driver 2 ended with exit code {driver.exit_code}")

    # -- the parts

    def _start_driver(self, bootstrap: str, environment: dict[str, str]) -> Child:
        script = self._script
        args = ["--bootstrap", bootstrap, "--topic", TOPIC, "--checkpoint", str(self.folder / "checkpoint"), "--out", str(self._out)]
        args += ["--interval", str(script.interval / 1000), "--window", str(script.window / 1000), "--max-rate", str(script.max_rate)]
        inherited = {k: v for k, v in os.environ.items() if k != VARIABLE}
        defaults = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        own = {"SPARK_LOCAL_DIRS": str(self.folder / "spark")}
        return self._child(f"{KAFKA}.demo_job", args, "driver.log", {**defaults, **inherited, **own, **environment})

    def _child(self, module: str, args: list[str], log: str, environment: dict[str, str] | None = None) -> Child:
        child = Child(module, args, self.folder / log, environment)
        self._stack.callback(child.kill)
        return child

    # -- watching

    def _until(self, condition: Callable[[], bool], what: str, driver: Child | None = None) -> None:
        """Looks every 0.1 s; DemoError when the broker, the feed or `driver` ends meanwhile, or after three minutes."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            self._hear()
            for name, child in (("the embedded broker", self._broker), ("the driver", driver)):
                if child is not None and child.exit_code is not None:
                    raise self._failed(child, f"{name} ended by itself (exit code {child.exit_code})")
            if time.monotonic() > deadline:
                raise self._failed(driver, f"waited {PATIENCE_SECONDS:g} s for {what}")
            time.sleep(STEP_SECONDS)

    def _hear(self) -> None:
        """Takes in what the feed and the driver have said since the last time."""
        feed: Child | None = getattr(self, "_feed", None)
        for line in feed.said() if feed else ():
            self.board.acknowledged = line["acknowledged"]
            if line.get("lost"):
                raise self._failed(feed, f"Kafka did not acknowledge {line['lost']} orders, so there is no truth to compare with")
        for line in next(self._journal):
            row = self.board.hear(line)
            if row is not None:
                self._view.ended(row)
                if row.failures:
                    raise self._failed(None, f"batch {self._text(row.batch)} failed: {row.failures[0].splitlines()[0]}")
        self._view.refresh()

    def _failed(self, child: Child | None, what: str) -> DemoError:
        log = child.log if child is not None else self.folder / "driver.log"
        said = f": {child.last_words()}" if child is not None else ""
        return DemoError(f"{what}{said} (see {log})", log=str(log))

    def _text(self, batch: int) -> str:
        return batch_text(batch, self._script.interval)

    # -- evidence

    def _evidence(self) -> Evidence:
        truth = json.loads((self.folder / "truth.json").read_text())
        ends: dict[int, int] = {}
        for _, _, _, partition, offset in truth:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        batches = {t: [Order(*row) for row in rows] for t, rows in _by_time(self._out / "batches")}
        windows = {t: {k: (v[0], v[1]) for k, v in totals.items()} for t, totals in _by_time(self._out / "windows")}
        attempts = [Attempt(r.batch, r.driver, tuple(r.ranges)) for r in self.board.rows.values() if r.tried and r.ranges]
        return Evidence(
            [Order(*row[:3]) for row in truth], ends, batches, windows, attempts, self.pending, self._script.interval, self._script.window
        )


def ranges_of(inputs: dict[int, Any]) -> list[Range]:
    """All Kafka ranges of a plan."""
    return [r for data in inputs.values() for r in kafka_ranges(data) or []]


def _by_time(folder: Path) -> Iterator[tuple[int, Any]]:
    for path in sorted(folder.glob("*.json")):
        yield int(path.stem), json.loads(path.read_text())


@contextmanager
def open_stage(script: Script, board: Board, view: View) -> Generator[Stage]:
    """The stage, with the view open around it."""
    with view, Stage(script, board, view) as stage:
        yield stage
