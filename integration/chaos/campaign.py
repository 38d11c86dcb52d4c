"""Kills leaders and drivers on a timetable while a producer feeds, restarts them, lets the last driver finish and asks for the verdict.

On a cluster of Spark it kills executors and workers, too.
"""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration.chaos.producer import breaches_of, producing
from integration.exactness.campaign import Campaign
from integration.exactness.verdict import Verdict, read_lines
from integration.kafka_cluster import NODES, KafkaCluster
from integration.masters import IN_PROCESS, Master

PARTITIONS = 3
DRIVER, EXECUTOR, WORKER = "driver", "executor", "worker"
DEAD_S = 2.0
"""How long a killed node stays down."""
STEP_S = 0.1
REST_S = 300
START_S = 60
"""How long a driver may take to start before it is killed in the middle of that."""
_ERROR = re.compile(r"^(?:\S+\.)?(\w+Error): ", re.MULTILINE)
_UNPLANNED = re.compile(r"Error generating jobs for time (\d+)")
_FAILED = re.compile(r"Error running job \S+ (\d+)|Error running job (\S+)")


@dataclass
class Report:
    """What a campaign did and what came of it."""

    leader_kills: int = 0
    kills: Counter[str] = field(default_factory=Counter[str])
    """By what was killed: DRIVER, EXECUTOR, WORKER."""
    nodes_ended: int = 0
    """Nodes that gave up by themselves, as on a machine that is too busy, and were started again."""
    driver_ends: Counter[str] = field(default_factory=Counter[str])
    """How often the driver ended by itself, by the error it ended with."""
    unplanned: int = 0
    """Batches that could not be planned: their records were planned with the next one."""
    failed: int = 0
    """Errors of jobs; each such batch waited for the next restart."""
    produced: dict[str, Any] = field(default_factory=dict)
    verdict: Verdict = field(default_factory=Verdict)

    def lines(self) -> list[str]:
        killed = ", ".join(f"{n} {kind}s" for kind, n in self.kills.items())
        ends = ", ".join(f"{n} {name}" for name, n in self.driver_ends.items()) or "never"
        return [
            f"kills: {self.leader_kills} leaders, {killed}; ended by themselves: the driver {ends}, nodes {self.nodes_ended} times",
            f"batches that were not planned: {self.unplanned}, jobs that failed: {self.failed}, "
            f"longest silence of the brokers: {self.produced.get('longest_gap_s')} s",
            *self.verdict.lines(),
        ]


class ChaosCampaign(Campaign):
    """One topic of three replicas, one checkpoint, many drivers. Call `unleash` from the main thread: it restarts nodes."""

    def __init__(
        self, cluster: KafkaCluster, topic: str, directory: Path, seed: int = 1, master: Master = IN_PROCESS, **settings: Any
    ) -> None:
        given = {"interval": 2.0, "window": 4, "rate": 5000, **settings}
        given |= {"conf": {**master.settings, **given.get("conf", {})}, "environment": dict(master.environment)}
        super().__init__(cluster.bootstrap, topic, directory, None, **given)
        self.cluster = cluster
        self.report = Report()
        self._random = random.Random(seed)
        self._driver: subprocess.Popen[bytes] | None = None
        self._down: int | None = None
        self._restart_at = 0.0
        self._spark = master.cluster

    def unleash(self, seconds: float, kills: Mapping[str, int], leader_kill_every_s: float = 10) -> Report:
        """Blocks until the time is over, all is up again and the last driver has read all there is; the verdict on everything."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.cluster.create_topic(self.topic, PARTITIONS, {"min.insync.replicas": "2"})
        try:
            with producing(self.bootstrap, self.topic, PARTITIONS, self.rate) as self.report.produced:
                self._rage(seconds, kills, leader_kill_every_s)
                self._come_to_rest()
            ends = dict(enumerate(self.report.produced["acked"]))
            self._drain(ends)
        finally:
            self._kill_driver()
        said = self._said()
        self.report.unplanned, self.report.failed = len(_UNPLANNED.findall(said)), len(_FAILED.findall(said))
        self.report.verdict = self.judged(ends)
        self.report.verdict.breaches += breaches_of(self.report.produced)
        return self.report

    # -- while it lasts

    def _rage(self, seconds: float, kills: Mapping[str, int], every_s: float) -> None:
        began = time.monotonic()
        next_leader = began + every_s
        # In each equal part of the time one death of each kind, at any moment of it: but of a driver that has come to read something.
        deaths = sorted(
            (began + seconds / (count + 1) * (n + self._random.uniform(0.5, 1.5)), kind)
            for kind, count in kills.items()
            for n in range(count)
        )
        while (now := time.monotonic()) < began + seconds or deaths:
            self._keep_driver()
            if deaths and now >= deaths[0][0] and self._streaming(now - deaths[0][0]):
                victim = self._strike(deaths[0][1])
                if victim is not None:
                    self.report.kills[deaths.pop(0)[1]] += 1
                    self.say(f"{now - began:6.1f} s: {victim} killed")
            self._raise_the_dead(now)
            if now >= next_leader and self._whole(replicas=2):
                next_leader = now + every_s
                self._kill_leader(now - began)
            time.sleep(STEP_S)

    def _strike(self, kind: str) -> str | None:
        """Kills one of that kind, and says which; None if none lives now."""
        if kind == DRIVER:
            self._kill_driver()
            return kind
        assert self._spark is not None
        living = list(self._spark.workers()) if kind == WORKER else self._spark.executors()
        if not living:
            return None
        victim = self._random.choice(living)
        if kind == WORKER:
            self._spark.kill_worker(victim)
        else:
            self._spark.kill_executor(victim)
        return f"{kind} {victim}"

    def _streaming(self, late_s: float) -> bool:
        """Whether this driver has started its stream; a driver that cannot for a long time is killed all the same."""
        started = {line["pid"] for line in read_lines(self.directory / "started.jsonl")}
        return late_s > START_S or (self._driver is not None and self._driver.pid in started)

    def _kill_leader(self, at: float) -> None:
        partition = self._random.randrange(PARTITIONS)
        self._down = self.cluster.leader(self.topic, partition)
        self.cluster.kill9(self._down)
        self._restart_at = time.monotonic() + DEAD_S
        self.report.leader_kills += 1
        self.say(f"{at:6.1f} s: node {self._down} killed, leader of partition {partition}")

    def _raise_the_dead(self, now: float) -> None:
        """The node and the workers that were killed, in their time, and any node that gave up by itself."""
        if self._spark is not None:
            self._spark.begin_killed_workers(DEAD_S)
        if self._down is not None and now >= self._restart_at:
            self.cluster.begin_restart(self._down)
            self._down = None
        for node in NODES:
            if node != self._down and not self.cluster.running(node):
                self.report.nodes_ended += 1
                self.say(f"node {node} ended by itself")
                self.cluster.begin_restart(node)

    def _whole(self, replicas: int = len(NODES)) -> bool:
        """Whether all nodes serve, and so many replicas of each partition are in sync: fewer than two, and the cluster stands still."""
        if self._down is not None or not all(self.cluster.ready(node) for node in NODES):
            return False
        return all(len(self.cluster.in_sync(self.topic, p)) >= replicas for p in range(PARTITIONS))

    def _come_to_rest(self) -> None:
        """All nodes up and in sync."""
        if self._spark is not None:
            self._spark.begin_killed_workers()
        self._raise_the_dead(self._restart_at)
        end = time.monotonic() + REST_S
        while not self._whole():
            if time.monotonic() > end:
                raise AssertionError(f"the cluster did not become whole again within {REST_S} s")
            self._raise_the_dead(time.monotonic())
            self._keep_driver()
            time.sleep(0.2)
        self._kill_driver()

    # -- the driver

    def _keep_driver(self) -> None:
        """Starts one where none runs, as whoever operates it would."""
        if self._driver is not None and self._driver.poll() is not None:
            found = _ERROR.findall(self._said())
            name = found[-1] if found else f"exit status {self._driver.returncode}"
            self.report.driver_ends[name] += 1
            self.say(f"the driver ended by itself: {name}")
            self._driver = None
        if self._driver is None:
            self._driver = self._start_driver(None)

    def _kill_driver(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.kill()
            driver.wait()

    def _said(self) -> str:
        return (self.directory / "driver.log").read_text(errors="replace")
