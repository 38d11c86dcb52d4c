"""Kills executors, workers, drivers and the broker of one `kstream run`, on a cluster or in one process, and finds out what came of it.

The broker may also be paused.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration import kstream_run
from integration.campaign import in_any_order, in_words
from integration.chaos.producer import breaches_of, producing
from integration.clustered.catch_up import ON_TIME, CatchUp, catch_ups
from integration.clustered.job import ORDERS, OUTPUTS, PAYMENTS, VARIABLE
from integration.clustered.verdict import Recount, recount
from integration.exactness import sinks
from integration.exactness.verdict import read_lines
from integration.kafka_broker import KafkaBroker
from integration.masters import Master
from integration.night.campaign import BATCH_LINE
from integration.received.processes import children_of
from integration.spark_cluster import SparkCluster

EXECUTOR, WORKER, DRIVER, BROKER, PAUSE = "executor", "worker", "driver", "broker", "pause"
PAUSE_S = (12.0, 90.0)
"""For how long a pause stops the broker (SIGSTOP), at least and at most."""
PARTITIONS = 6
DEAD_S = 3.0
"""How long a killed worker, and a killed broker, stays down."""
PATIENCE_S = 300.0
CATCH_UP_S = 600.0
MOST_LINES = 300
"""Of the log, besides those of batches."""
_END = re.compile(r"driver (\d+) ended after (.*?); it is (?:not )?started again")
_CATEGORY = re.compile(r"\b(?:kstream|integration|pyspark|py4j|org)[\w.]*\b|\b(?:WARN|ERROR) \w+")


@dataclass
class Report:
    """What a campaign did and what came of it."""

    kills: Counter[str] = field(default_factory=Counter[str])
    driver_ends: list[str] = field(default_factory=list[str])
    """Drivers that ended by themselves, in the supervisor's words."""
    restarts: int = 0
    exit_code: int | None = None
    lines: int = 0
    """Of the log, besides those of batches."""
    loud: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Who logs the most of them."""
    away: list[CatchUp] = field(default_factory=list[CatchUp])
    failed: int = 0
    """How often a batch has failed, and how often its sink had refused it."""
    refused: int = 0
    recount: Recount = field(default_factory=Recount)
    breaches: list[str] = field(default_factory=list[str])

    @property
    def missed(self) -> list[str]:
        """Everything that is wrong: the breaches, and the bars of time, which hold on a machine that does nothing else."""
        return [*self.breaches, *(f"too slow: {one}" for one in self.away if one.is_slow)]

    def judge(self) -> None:
        """Adds what is wrong with the run itself to the breaches."""
        lines = self.lines - 2 * self.refused  # the try that the sink refuses has a line, and the success after it
        wrong = {
            f"{lines} lines of log besides those of batches, at most {MOST_LINES - 1} are allowed": lines >= MOST_LINES,
            f"exit code {self.exit_code} after SIGTERM": self.exit_code != 0,
            f"batches failed {self.failed} times, the sink refused {self.refused}": self.failed > self.refused and not self.kills[DRIVER],
        }
        self.breaches += [words for words, breached in wrong.items() if breached]
        self.breaches += [f"a driver ended that nobody killed: {end}" for end in self.driver_ends]
        self.breaches += [breach for one in self.away for breach in one.breaches]
        self.breaches += self.recount.breaches

    def lines_of(self) -> list[str]:
        slow = len(self.missed) > len(self.breaches)
        return [
            f"kills: {in_words(self.kills)}; restarts: {self.restarts}, of drivers that nobody had killed: {len(self.driver_ends)}",
            *self.recount.lines(),
            *(f"restart: {one}" for one in self.away),
            f"batches that failed: {self.failed}, refused by the sink: {self.refused}",
            f"lines of log besides those of batches: {self.lines}, of which {', '.join(f'{n} {who}' for who, n in self.loud)}",
            *(f"BREACH: {words}" for words in self.missed),
            f"verdict: {'exact' if not self.breaches else f'{len(self.breaches)} breaches'}{', too slow' if slow else ''}",
        ]


class ClusterCampaign:
    """One job, one checkpoint, many drivers. Call `run` once, from the main thread, with which the processes end.

    `behind`: for how many batches the driver stays away after one kill of it in two; 0 for never. `pattern`: whether orders is read by a
    pattern. `refusals`: how often the sink of orders refuses every fifth batch. `sink`: to which each order is written once, too, as
    `sinks.write_to` takes it; "" for none.
    """

    def __init__(
        self,
        broker: KafkaBroker,
        master: Master,
        directory: Path,
        *,
        seed: int = 1,
        rate: int = 500,
        interval: float = 2.0,
        behind: int = 0,
        pattern: bool = False,
        refusals: int = 0,
        sink: str = "",
        conf: Mapping[str, str] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self._broker, self._master = broker, master
        self._directory, self._checkpoint = directory, str(directory / "checkpoint")
        self._rate, self._interval, self._behind, self._told = rate, interval, behind, say
        self._pattern, self._refusals, self._sink = pattern, refusals, sink
        self._settings = {**master.settings, **(conf or {})}
        self._random = random.Random(seed)
        self._report = Report()
        self._killed_drivers: set[int] = set()
        self._broker_up_at: float | None = None
        self._run: subprocess.Popen[bytes] | None = None
        self._began = time.monotonic()
        self._limit = math.inf

    def run(self, kills: Mapping[str, int], seconds: float, limit_s: float = math.inf, least_batches: int = 0) -> Report:
        """Blocks until all kills are done and the last driver has read all there is. The kills are spread over so many seconds, to which
        downtimes are added; the producers go on until `least_batches` have ended. What goes wrong is a breach of the report, also that
        all of it takes longer than `limit_s`."""
        self._limit = time.monotonic() + limit_s
        self._directory.mkdir(parents=True, exist_ok=True)
        for name in (ORDERS, PAYMENTS):
            for folder in ("sink", "refused"):
                (self._directory / name / folder).mkdir(parents=True)
            self._broker.create_topic(name, PARTITIONS)
        for name in OUTPUTS:
            (self._directory / name).mkdir()
        command = ["integration.clustered.job:setup", "--checkpoint", self._checkpoint]
        environment = {**self._master.environment, VARIABLE: json.dumps(self._options())}
        ends: dict[str, dict[int, int]] = {}
        with kstream_run.running(self._directory, *command, **environment) as self._run:
            try:
                ends = self._live(kills, seconds, least_batches)
                self._stop(ends)
            except (AssertionError, OSError) as e:
                self._report.breaches.append(f"the campaign was cut short: {e}")
        self._find_out(ends)
        return self._report

    def _options(self) -> dict[str, Any]:
        return {
            "bootstrap": self._broker.bootstrap, ORDERS: ORDERS, PAYMENTS: PAYMENTS, "directory": str(self._directory),
            "interval": self._interval, "settings": self._settings, "pattern": self._pattern, "refusals": self._refusals,
            "sink": self._sink,
        }  # fmt: skip

    # -- while it lasts

    def _live(self, kills: Mapping[str, int], seconds: float, least_batches: int) -> dict[str, dict[int, int]]:
        """The kills, and the batches; the number of records by partition, by topic."""
        kinds = in_any_order(kills, self._random)
        gap = seconds / (len(kinds) + 1)
        bootstrap = self._broker.bootstrap
        with (
            producing(bootstrap, ORDERS, PARTITIONS, self._rate) as orders,
            producing(bootstrap, PAYMENTS, PARTITIONS, max(PARTITIONS, self._rate // 10)) as payments,
        ):
            self._wait(self._runs, "the first batch")
            for kind in kinds:
                self._pause(gap * self._random.uniform(0.5, 1.5))
                self._strike(kind)
            self._pause(max(gap, 2 * DEAD_S))
            self._wait(lambda: self._broker_up_at is None and self._workers_are_up(), "workers and broker")
            self._wait(lambda: self._ended() >= least_batches, f"{least_batches} batches", math.inf)
        self._report.breaches += [*breaches_of(orders), *breaches_of(payments)]
        return {name: dict(enumerate(told["acked"])) for name, told in ((ORDERS, orders), (PAYMENTS, payments))}

    @property
    def _spark(self) -> SparkCluster:
        assert self._master.cluster is not None, "one process has no executors and no workers to kill"
        return self._master.cluster

    def _strike(self, kind: str) -> None:
        """One kill, as soon as there is one of that kind to kill."""
        if kind == EXECUTOR:
            self._wait(lambda: bool(self._spark.executors()), "an executor")
            victim = self._random.choice(self._spark.executors())
            self._spark.kill_executor(victim)
        elif kind == WORKER:
            self._wait(lambda: bool(self._spark.workers()), "a worker")
            victim = self._random.choice(list(self._spark.workers()))
            self._spark.kill_worker(victim)
        elif kind == BROKER:
            self._wait(lambda: self._broker_up_at is None, "the broker")
            victim = self._broker.pid
            self._broker.kill9()
            self._broker_up_at = time.monotonic() + DEAD_S
        elif kind == PAUSE:
            victim = self._pause_broker()
        else:
            victim = self._kill_driver()
        self._report.kills[kind] += 1
        self._say(f"{kind} {victim}" if kind == PAUSE else f"{kind} {victim} killed")

    def _pause_broker(self) -> str:
        """The broker answers nobody for a while, and then again. The job has caught up when this returns."""
        self._wait(lambda: self._broker_up_at is None and self._runs(), "the broker and a batch")
        seconds = self._random.uniform(*PAUSE_S)
        os.kill(self._broker.pid, signal.SIGSTOP)
        self._pause(seconds)
        os.kill(self._broker.pid, signal.SIGCONT)
        resumed = time.time()
        self._wait(lambda: self._newest()["at"] > resumed, "a batch after the pause")
        self._let_it_catch_up()
        return f"of {seconds:.0f} s"

    def _kill_driver(self) -> str:
        """Its Python, its JVM, or both at once, by turns; one in two comes back after a downtime, and has caught up when this returns."""
        self._wait(self._runs, "a batch of the new driver")
        number = self._report.kills[DRIVER]
        way = ("Python", "JVM", "both")[number % 3]
        away = self._behind > 0 and number % 2 == 0
        driver = self._driver()
        assert driver is not None and self._run is not None
        jvms = [pid for pid in children_of(driver) if _program(pid) == "java"]
        self._killed_drivers.add(driver)
        if away:
            self._run.send_signal(signal.SIGSTOP)  # nobody starts a driver meanwhile
        for pid in {"Python": [driver], "JVM": jvms, "both": [driver, *jvms]}[way]:
            os.kill(pid, signal.SIGKILL)
        if away:
            self._pause(self._behind * self._interval)
            self._run.send_signal(signal.SIGCONT)
            self._let_it_catch_up()
        return f"{driver} ({way}{f', away for {self._behind} batches' if away else ''})"

    def _let_it_catch_up(self) -> None:
        """A job that does not is a breach, and the campaign goes on."""
        end = time.monotonic() + CATCH_UP_S
        while not (self._runs() and self._behind_s() < ON_TIME * self._interval):
            if time.monotonic() > end:
                self._report.breaches.append(f"{self._behind_s():.0f} s behind, {CATCH_UP_S:.0f} s after a downtime")
                return
            self._pause(0.5)

    def _behind_s(self) -> float:
        """How old the newest batch was at its end."""
        newest = self._newest()
        return newest["at"] - newest["time"] / 1000

    def _newest(self) -> Mapping[str, Any]:
        """The batch that has ended last."""
        return read_lines(self._directory / "ended.jsonl")[-1]

    def _ended(self) -> int:
        """How many batches have ended."""
        return len({e["time"] for e in read_lines(self._directory / "ended.jsonl")})

    def _driver(self) -> int | None:
        """The driver of this moment; None while there is none."""
        assert self._run is not None
        found = [pid for pid in children_of(self._run.pid) if _program(pid).startswith("python") and "--no-restart" in _words(pid)]
        return found[0] if found else None

    def _runs(self) -> bool:
        """Whether the driver of this moment has ended a batch."""
        driver, ended = self._driver(), read_lines(self._directory / "ended.jsonl")
        return driver is not None and driver not in self._killed_drivers and bool(ended) and ended[-1]["pid"] == driver

    def _pause(self, seconds: float) -> None:
        """Lets so much time pass, in which the dead come back in their time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._raise_the_dead()
            time.sleep(0.1)

    def _wait(self, reached: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        assert self._run is not None
        end = time.monotonic() + patience_s
        while not reached():
            self._raise_the_dead()
            assert self._run.poll() is None, f"kstream run has ended with {self._run.returncode} while {what} was waited for"
            assert time.monotonic() < min(end, self._limit), f"{what} did not come in time"
            time.sleep(0.2)

    def _raise_the_dead(self) -> None:
        self._workers_are_up()
        if self._broker_up_at is not None and time.monotonic() >= self._broker_up_at:
            self._broker.restart()
            self._broker_up_at = None

    def _workers_are_up(self) -> bool:
        """Start the workers again that were killed, in their time. Whether all are started now."""
        return self._master.cluster is None or self._master.cluster.begin_killed_workers(DEAD_S)

    def _say(self, what: str) -> None:
        self._told(f"{time.monotonic() - self._began:6.1f} s: {what}")

    # -- the end

    def _stop(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """When the batch that has the last records has ended, SIGTERM; the job ends gracefully."""
        assert self._run is not None
        self._wait(lambda: all(self._read(name) == dict(ends[name]) for name in ends), "the last records", 2 * PATIENCE_S)
        batch = read_lines(self._directory / ORDERS / "attempts.jsonl")[-1]["time"]
        self._wait(lambda: any(e["time"] >= batch for e in read_lines(self._directory / "ended.jsonl")), "the last batch")
        self._run.send_signal(signal.SIGTERM)
        self._report.exit_code = self._run.wait(PATIENCE_S)

    def _read(self, name: str) -> dict[int, int]:
        attempts = read_lines(self._directory / name / "attempts.jsonl")
        return {p: until for _, p, _, until in attempts[-1]["ranges"]} if attempts else {}

    def _find_out(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        report, log = self._report, (self._directory / "log").read_text(errors="replace").splitlines()
        told = [(int(found[1]), found[0]) for line in log if (found := _END.search(line))]
        report.restarts = sum("it is started again" in words for _, words in told)
        report.driver_ends = [words for pid, words in told if pid not in self._killed_drivers and "the job has ended" not in words]
        others = [line for line in log if not BATCH_LINE.search(line)]
        report.lines = len(others)
        report.failed = sum(line.endswith(", failed") for line in log if BATCH_LINE.search(line))
        report.refused = len(list((self._directory / ORDERS / "refused").iterdir()))
        report.loud = Counter(found[0] if (found := _CATEGORY.search(line)) else "others" for line in others).most_common(6)
        report.away = catch_ups(self._directory, self._interval, self._rate, self._behind)
        report.recount = recount(self._directory, self._checkpoint, ends, round(self._interval * 1000))
        if self._sink and ends:
            report.breaches += sinks.breaches_of(self._sink, sinks.places(ends[ORDERS]))
        report.judge()


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:  # it has ended
        return [""]


def _program(pid: int) -> str:
    return Path(_words(pid)[0]).name
