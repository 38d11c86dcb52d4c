"""Kills drivers and executors of one query at random moments, lets it finish, and judges all that its drivers have left."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration.campaign import in_any_order, in_words, wait_while_it_works
from integration.chaos.producer import breaches_of, producing
from integration.exactness.verdict import Verdict, check_ranges, check_sink, ranges_by_time, read_lines
from integration.kafka_broker import KafkaBroker
from integration.masters import Master
from integration.received.processes import children_of, kill

DRIVER, JVM, EXECUTOR = "driver", "jvm", "executor"
"""The Python process of a driver; its JVM, which leaves the Python process alone in the middle of a batch; an executor."""
PARTITIONS = 4
PATIENCE_S = 120.0
FIRST_S, BATCH_S = 5.0, 0.7
"""For how long the first batch of a driver takes, and any other one, about: a kill comes at a random moment within."""
Driver = subprocess.Popen[bytes]


@dataclass
class StructuredReport:
    """What a campaign did and what came of it."""

    verdict: Verdict
    kills: Counter[str] = field(default_factory=Counter[str])
    drivers: int = 0

    def lines_of(self) -> list[str]:
        return [f"kills: {in_words(self.kills)}; drivers: {self.drivers}", *self.verdict.lines()]


class StructuredCampaign:
    """One query, one checkpoint, many drivers. Call `run` once, from the main thread."""

    def __init__(
        self,
        broker: KafkaBroker,
        topic: str,
        master: Master,
        directory: Path,
        *,
        seed: int = 1,
        rate: int = 400,
        options: Mapping[str, str] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """
        Args:
            broker: has the topic, with PARTITIONS partitions.
            topic: the topic; empty.
            master: where the query runs.
            directory: for the checkpoint and all that the drivers note; it is made.
            seed: of kinds, moments and victims.
            rate: records a second.
            options: of the source, besides the address and the topic.
            say: told of each kill.
        """
        self._broker, self._topic, self._master, self._directory = broker, topic, master, directory
        self._random, self._rate, self._options, self._say = random.Random(seed), rate, dict(options or {}), say
        self._kills, self._drivers = Counter[str](), 0

    def run(self, kills: Mapping[str, int]) -> StructuredReport:
        """Block until all kills are done and the last driver has read all there is. AssertionError if a driver does not go on."""
        self._directory.mkdir(parents=True)
        driver = self._start()
        try:
            with producing(self._broker.bootstrap, self._topic, PARTITIONS, self._rate) as told:
                for kind in in_any_order(kills, self._random):
                    driver = self._strike(kind, driver)
            ends = dict(enumerate(told["acked"]))
            self._wait(driver, lambda: self._reached() == ends, "read to the end")
            (self._directory / "stop").touch()
            self._wait_for_end(driver)
        finally:
            kill(*children_of(driver.pid), driver.pid)
            driver.wait()
        assert driver.returncode == 0, f"the last driver ended with {driver.returncode}:\n{self._log_tail()}"
        verdict = self._judge(ends)
        verdict.breaches += breaches_of(told)
        return StructuredReport(verdict, self._kills, self._drivers)

    def _judge(self, ends: dict[int, int]) -> Verdict:
        verdict = Verdict()
        batches = ranges_by_time(self._directory, verdict)
        check_ranges(batches, ends, verdict)
        check_sink(self._directory, batches, verdict)
        if sorted(batches) != list(range(len(batches))):
            verdict.breaches.append(f"the ids of the batches are {sorted(batches)}")
        return verdict

    # -- kills

    def _strike(self, kind: str, driver: Driver) -> Driver:
        """Kill at a random moment. Returns the driver that lives."""
        where = self._moment(kind, driver)
        assert driver.poll() is None, f"the driver ended with {driver.returncode}:\n{self._log_tail()}"
        self._kill(kind, driver)
        self._kills[kind] += 1
        self._say(f"kill {self._kills.total()}: {kind}, {where}")
        if driver.poll() is None:
            return driver
        self._look_at_what_is_left()
        return self._start()

    def _moment(self, kind: str, driver: Driver) -> str:
        """Returns at a random moment of the first batch or of a later one, and says of which."""
        first = kind != EXECUTOR and self._random.random() < 0.5
        if first:
            self._wait(driver, lambda: any(line["pid"] == driver.pid for line in self._lines("started")), "start")
        else:
            tried = self._tried() + self._random.randint(0, 3)
            self._wait(driver, lambda: self._tried() > tried, "begin a batch")
        time.sleep(self._random.uniform(0, FIRST_S if first else BATCH_S))
        return "at the first batch" if first else "at a later batch"

    def _look_at_what_is_left(self) -> None:
        """Called when a driver was killed, before the next one starts."""

    def _kill(self, kind: str, driver: Driver) -> None:
        """SIGKILL; returns when the driver is gone, if it is the driver's."""
        if kind == EXECUTOR:
            cluster = self._master.cluster
            assert cluster is not None, "one process has no executors to kill"
            self._wait(driver, lambda: bool(cluster.executors()), "get an executor")
            cluster.kill_executor(self._random.choice(cluster.executors()))
            return
        if kind == JVM:
            kill(*children_of(driver.pid))
        else:
            driver.kill()
        self._wait_for_end(driver)
        assert driver.returncode != 0, "the driver was killed and ended well"

    # -- drivers

    def _command(self) -> list[str]:
        """That of the driver, without its argument."""
        return [sys.executable, "-m", "integration.structured_kills.job"]

    def _given(self) -> dict[str, Any]:
        """What the driver is told."""
        return {
            "bootstrap": self._broker.bootstrap, "topic": self._topic, "directory": str(self._directory),
            "options": self._options, "settings": dict(self._master.settings),
        }  # fmt: skip

    def _start(self) -> Driver:
        path = self._directory / "options.json"
        path.write_text(json.dumps(self._given()))
        self._drivers += 1
        with open(self._directory / "driver.log", "ab") as log:
            return subprocess.Popen(
                [*self._command(), str(path)],
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, **self._master.environment},
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def _wait_for_end(self, driver: Driver) -> None:
        """Returns when it is gone. What is left of it after PATIENCE_S is a failure."""
        try:
            driver.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver does not end:\n{self._log_tail()}") from None

    def _wait(self, driver: Driver, reached: Callable[[], bool], what: str) -> None:
        wait_while_it_works(driver, reached, what, self._tried, self._log_tail, PATIENCE_S)

    def _tried(self) -> int:
        """How often a batch was begun."""
        return len(self._lines("attempts"))

    def _reached(self) -> dict[int, int]:
        """The next offset by partition, of the newest batch that is written."""
        last = max(self._lines("attempts"), key=lambda attempt: attempt["time"], default=None)
        if last is None or not (self._directory / "sink" / f"{last['time']}.json").exists():
            return {}
        return {partition: until for _, partition, _, until in last["ranges"]}

    def _lines(self, name: str) -> list[dict[str, Any]]:
        return read_lines(self._directory / f"{name}.jsonl")

    def _log_tail(self) -> str:
        return (self._directory / "driver.log").read_text(errors="replace")[-4000:]
