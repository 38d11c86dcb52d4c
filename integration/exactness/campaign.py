"""Feeds a topic, kills the driver again and again, lets it finish, and asks for the verdict."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from integration.campaign import wait_while_it_works
from integration.driver_process import running
from integration.exactness.changed_code import LOG, STARTED, accepting, changes_in
from integration.exactness.database import DIE_IN_WRITE
from integration.exactness.kafka_sink import KEYS, Code
from integration.exactness.sinks import breaches_of, places, records_of, repeats_of_the_naive
from integration.exactness.verdict import Verdict, judge, read_lines
from kstream import crash_point
from kstream.checkpoint import names
from kstream.scheduler.retry_policy import HOLD
from kstream.scheduler.settings import FAILED_BATCH

RANDOM, IN_WRITE = "random", "in-write"
PARTITIONS = 2
PATIENT_STOP = {"spark.streaming.stopGracefullyOnShutdown": "true", "spark.streaming.gracefulStopTimeout": "100s"}
"""The last driver is to end with nothing left undone, also on a busy machine: what it leaves is no breach, but cannot be judged."""


@dataclass(frozen=True)
class Kill:
    """One death: at the nth pass of a crash point, in the nth write of a worker to the sink, or so many seconds after the driver has
    started."""

    point: str
    nth: int = 1
    after_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.point} after {self.after_s:.2f} s" if self.point == RANDOM else f"{self.point} (pass {self.nth})"


def plan_kills(count: int, seed: int, in_write: bool = False, points: Sequence[str] = ()) -> list[Kill]:
    """Every crash point equally often, at a different pass each time, and random moments in between; shuffled.

    `in_write`: and in the middle of a write to the sink, as often. `points`: these equally often, in place of all.
    """
    rng = random.Random(seed)
    every = [*crash_point.CRASH_POINTS, *([RANDOM] if count > len(crash_point.CRASH_POINTS) else []), *([IN_WRITE] if in_write else [])]
    points = points or every
    kills = [Kill(point, nth=rng.randint(1, 5), after_s=rng.uniform(0, 3)) for point in (points[i % len(points)] for i in range(count))]
    rng.shuffle(kills)
    return kills


@dataclass
class Campaign:
    """One topic, one checkpoint, many drivers. `produce(topic, records)` feeds; `bootstrap` is the broker's address."""

    bootstrap: str
    topic: str
    directory: Path
    produce: Any
    conf: dict[str, str] = field(default_factory=dict)
    checkpoint: str | None = None
    """Path or URL; a local directory beside the other records unless given."""
    environment: dict[str, str] = field(default_factory=dict)
    """More of it for the drivers: where the checkpoint's store is, and its credentials."""
    interval: float = 1.5
    window: int = 10
    rate: int = 200
    patience_s: float = 120
    """How long a driver may take to get to where it is killed, or to the end."""
    say: Any = print
    params: dict[str, str] = field(default_factory=dict)
    """Of the driver's stream, besides the address."""
    endure: bool = False
    """Whether the driver goes on after a batch that failed; else it ends with the error, as most users' programs do."""
    refusals: int = 0
    """How often the sink refuses every fifth batch."""
    sink: str = ""
    """File or URL of a database, or kafka://host:port, to which the driver writes every record, too."""
    last_conf: dict[str, str] = field(default_factory=dict)
    """Settings of the last driver that differ from those before."""
    code: Code = field(default_factory=Code)
    """What becomes of records on their way to topics of Kafka. If it changes, each driver has another version of it."""
    partitions: int = PARTITIONS
    """Of the topic."""
    grow: Callable[[], int] | None = None
    """Gives the topic more partitions, and returns how many. Called when a driver runs, after half of the kills."""
    drivers: int = 0
    """How many have been started."""

    def run(self, kills: list[Kill]) -> Verdict:
        """Blocks until all kills are done and the last driver has drained the topic; the verdict on everything."""
        fed = self.kill_all(kills)
        return self.judged(fed)

    def judged(self, fed: Mapping[int, int]) -> Verdict:
        """The verdict on what the drivers have made of so many records of each partition."""
        holds = self.conf.get(FAILED_BATCH.key) == HOLD or bool(self.sink)  # the output to the sink is ordered
        verdict = judge(self.directory, fed, round(self.interval * 1000), self.window, holds)
        if self.sink:
            verdict.breaches += breaches_of(self.sink, places(fed), accepts=self.code.changes == KEYS)
            if not repeats_of_the_naive(self.sink):
                verdict.breaches.append("the naive output has nothing twice: the kills met no batch in the middle")
        if self.code.changes:
            changes = changes_in(self.code, records_of(self.sink), self.directory)
            self.say(changes)
            verdict.breaches += changes.breaches
        return verdict

    def kill_all(self, kills: list[Kill]) -> dict[int, int]:
        """Blocks until all kills are done and the last driver has drained the topic; the number of records by partition."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            if self.code.changes == KEYS:
                stack.enter_context(accepting(self.directory, self._checkpoint))
            with self._feeding() as fed:
                for number, kill in enumerate(kills, 1):
                    began = time.monotonic()
                    self._kill_once(kill, grows=2 * number > len(kills))
                    self.say(f"kill {number}/{len(kills)}: {kill}, {time.monotonic() - began:.1f} s")
            self._drain(dict(fed))
        return dict(fed)

    @property
    def _checkpoint(self) -> str:
        return self.checkpoint or str(self.directory / "checkpoint")

    # -- drivers

    def _start_driver(self, crash_at: str | None, in_write: int = 0) -> subprocess.Popen[bytes]:
        self.drivers += 1
        code = self.code if not self.code.changes else replace(self.code, version=self.drivers, keeps=self.drivers % 4 == 0)
        narrow_and_changed = self.code.changes and not self.code.is_reduced
        options = {
            "bootstrap": self.bootstrap, "topic": self.topic, "directory": str(self.directory), "interval": self.interval,
            "window": self.window, "conf": {**PATIENT_STOP, **self.conf},
            "params": self.params, "endure": self.endure, "refusals": self.refusals, "sink": self.sink, "code": asdict(code),
            "checkpoint": self._checkpoint,
            **({"losses": "skip"} if narrow_and_changed else {}),  # then each partition is computed, also one that is written
        }  # fmt: skip
        path = self.directory / "options.json"
        path.write_text(json.dumps(options))
        environment = {k: v for k, v in os.environ.items() if k != crash_point.VARIABLE}
        environment.update(self.environment)
        if crash_at is not None:
            environment[crash_point.VARIABLE] = crash_at
        if in_write:
            environment[DIE_IN_WRITE] = str(in_write)
        with open(self.directory / LOG, "ab") as log:
            log.write(f"{STARTED}{self.drivers}\n".encode())
            log.flush()
            return subprocess.Popen(
                [sys.executable, "-m", "integration.exactness.job", str(path)],
                env=environment, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def _kill_once(self, kill: Kill, grows: bool = False) -> None:
        crash_at = None if kill.point in (RANDOM, IN_WRITE) else f"{kill.point}:{kill.nth}"
        driver = self._start_driver(crash_at, kill.nth if kill.point == IN_WRITE else 0)
        with running(driver):
            if kill.point == RANDOM:
                self._wait_started(driver)
                if grows and self.grow is not None:
                    self.partitions, self.grow = self.grow(), None
                time.sleep(kill.after_s)
                driver.kill()
            status = driver.wait(self.patience_s)
        if status != -signal.SIGKILL:
            raise AssertionError(f"the driver was to die at {kill} and ended with {status}:\n{self._log_tail()}")

    def _wait_started(self, driver: subprocess.Popen[bytes]) -> None:
        self._wait(driver, lambda: any(r["pid"] == driver.pid for r in read_lines(self.directory / "started.jsonl")), "start")

    def _drain(self, ends: dict[int, int]) -> None:
        """A last driver, whose sink refuses nothing, runs until everything fed was read and a whole window later, then gets SIGTERM."""
        (self.directory / "accepts").touch()
        self.conf = {**self.conf, **self.last_conf}
        driver = self._start_driver(None)
        with running(driver):
            self._wait(driver, lambda: self._read_up_to() == ends, "read to the end")
            batches = self._tried()
            self._wait(driver, lambda: self._tried() > batches + self.window, "go on")
            driver.terminate()
            if driver.wait(self.patience_s) != 0:
                raise AssertionError(f"the graceful stop ended with {driver.returncode}:\n{self._log_tail()}")

    def _read_up_to(self) -> dict[int, int]:
        position: dict[int, int] = {}
        for attempt in read_lines(self.directory / "attempts.jsonl"):
            for _topic, partition, _start, until in attempt["ranges"]:
                position[partition] = max(until, position.get(partition, 0))
        return position

    def _wait(self, driver: subprocess.Popen[bytes], reached: Any, what: str) -> None:
        wait_while_it_works(driver, reached, what, self._tried, self._log_tail, self.patience_s)

    def _tried(self) -> int:
        """How often a batch was begun."""
        return len(read_lines(self.directory / "attempts.jsonl"))

    def _newest_ms(self) -> int:
        """The newest batch that has a completion; 0 without one."""
        folder = Path(self._checkpoint) / names.DONE
        return max((int(path.name.split("-")[0]) for path in folder.glob("[0-9]*")), default=0)

    def _wait_completed(self, driver: subprocess.Popen[bytes], batches: int) -> None:
        """Returns when so many batches more have a completion, the first of which may be there. The checkpoint is on the local disk."""
        self._wait(driver, self._newest_ms, "complete a batch")
        until = self._newest_ms() + round((batches - 1) * self.interval * 1000)
        self._wait(driver, lambda: self._newest_ms() >= until, f"complete {batches} batches")

    def _log_tail(self) -> str:
        return (self.directory / LOG).read_text(errors="replace")[-4000:]

    # -- the feed

    @contextmanager
    def _feeding(self) -> Iterator[dict[int, int]]:
        """Feeds `rate` records a second from a thread; yields the records fed per partition, final at the end."""
        fed = dict.fromkeys(range(self.partitions), 0)
        stop = threading.Event()

        def feed() -> None:
            while not stop.wait(0.1):
                records = []
                partitions = self.partitions
                for i in range(max(1, self.rate // 10)):
                    partition = i % partitions
                    offset = fed.get(partition, 0)
                    records.append((f"key-{partition}", f"{partition}:{offset}", partition))
                    fed[partition] = offset + 1
                self.produce(self.topic, records)

        thread = threading.Thread(target=feed, name="feed", daemon=True)
        thread.start()
        try:
            yield fed
        finally:
            stop.set()
            thread.join()
