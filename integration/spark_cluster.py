"""A standalone cluster of Spark on loopback: a master, and workers each on an address of its own, so that Spark takes them for machines.

with running_cluster(directory) as cluster: cluster.url; cluster.kill_executor(cluster.executors()[0]); cluster.kill_worker(1)
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pyspark

from integration.class_archives import SPARK_VARIABLE
from integration.kafka_node import die_with_parent
from integration.received.processes import after, commands, kill

_PATIENCE_S = 120.0
_END_S = 15.0
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xss512k"
_OF_MASTER = "-Dspark.deploy.maxExecutorRetries=-1"  # an application is not given up, however many of its executors are killed
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class SparkClusterError(Exception):
    """It did not come up; its own words are in the message."""


class _Process(Protocol):
    """What a cluster asks of the process of its master or of a worker."""

    pid: int

    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class SparkCluster:
    """Master and workers, each a process; worker N has the address 127.0.0.N. Logs, work and blocks lie under `folder`.

    In containers: containers/spark.py.

    Call from the main thread whatever starts a process: it ends with the thread that starts it.
    """

    python = sys.executable
    """The Python of its executors."""

    def __init__(self, folder: Path, workers: int, cores: int, memory: str) -> None:
        self.folder = folder
        self.numbers = tuple(range(1, workers + 1))
        self._options = ["--webui-port", "0", "--cores", str(cores), "--memory", memory]
        self._port = _free_port()
        self._processes: dict[str, _Process] = {}
        self._killed: dict[int, float] = {}
        """The workers that were killed, and when."""

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    # -- life

    def start(self) -> None:
        """Starts all; returns when all workers have registered. SparkClusterError if one does not."""
        self.folder.mkdir(parents=True)
        self._run("master", ["master.Master", "--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"])
        self._wait("master", "I have been elected leader")
        for number in self.numbers:
            self.begin_worker(number)
        for number in self.numbers:
            self.wait_for_worker(number)

    def stop(self) -> None:
        """Ends workers, with their executors, then the master. Returns when all are gone; what outlives its worker is killed."""
        for process in reversed(self._processes.values()):
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + _END_S
        for process in self._processes.values():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        while (left := self.executors()) and time.monotonic() < end:
            time.sleep(0.1)
        kill(*left)

    # -- workers

    def workers(self) -> dict[int, int]:
        """The workers that live: number → pid."""
        found = {number: self._processes[f"worker{number}"] for number in self.numbers}
        return {number: process.pid for number, process in found.items() if process.poll() is None}

    def kill_worker(self, number: int) -> None:
        """SIGKILL; returns when it is gone. Its executors notice that, and end by themselves."""
        process = self._processes[f"worker{number}"]
        process.kill()
        process.wait()
        self._killed[number] = time.monotonic()

    def begin_killed_workers(self, dead_s: float = 0) -> bool:
        """Starts each worker again that was killed so long ago. Whether all workers are started now."""
        for number in [number for number, at in self._killed.items() if time.monotonic() - at >= dead_s]:
            self.begin_worker(number)
        return not self._killed

    def begin_worker(self, number: int) -> None:
        """Starts a worker, the first time or again, and does not wait for it."""
        self._killed.pop(number, None)
        self._run(f"worker{number}", ["worker.Worker", "--host", f"127.0.0.{number}", *self._options, self.url])

    def wait_for_worker(self, number: int) -> None:
        self._wait(f"worker{number}", "Successfully registered with master")

    # -- executors

    def executors(self, application: str | None = None) -> list[int]:
        """The pids of the executors that live, of that application or of all. One whose worker was killed lives on until it notices."""
        return [pid for pid, of in self._executors() if application in (None, of)]

    def kill_executor(self, pid: int) -> None:
        """SIGKILL. Its worker tells the master, and the application gets another one."""
        kill(pid)

    def said_by_executors(self) -> str:
        """The logs of all executors that there have been."""
        return "".join(log.read_text(errors="replace") for log in sorted(self.folder.glob("work/*/*/stderr")))

    def _executors(self) -> Iterator[tuple[int, str | None]]:
        """(pid, application) of each, told by its working directory, which lies under that of its worker."""
        for pid, command in commands():
            if _EXECUTOR in command:
                with suppress(OSError):  # it has ended
                    if Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(self.folder):
                        yield pid, after(command, "--app-id")

    # -- processes

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _run(self, name: str, arguments: list[str]) -> None:
        home = Path(pyspark.__file__).parent
        options = f"{_JVM} {os.environ.get(SPARK_VARIABLE, '')} {_OF_MASTER if name == 'master' else ''}"
        environment = {
            **os.environ, "SPARK_HOME": str(home), "SPARK_WORKER_DIR": str(self.folder / "work"),
            "SPARK_LOCAL_DIRS": str(self.folder / "local"), "SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": options,
            "PYSPARK_PYTHON": self.python,
        }  # fmt: skip
        environment.pop("SPARK_LOCAL_IP", None)  # each has its own address
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]]
        self._processes[name] = self._begin(name, command, environment)

    def _begin(self, name: str, command: list[str], environment: Mapping[str, str]) -> _Process:
        """Starts it; what it says goes to its log."""
        with open(self._log(name), "wb") as log:
            return subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, preexec_fn=die_with_parent
            )

    def _wait(self, name: str, words: str) -> None:
        end = time.monotonic() + _PATIENCE_S
        while words not in (said := self._log(name).read_text(errors="replace")):
            if self._processes[name].poll() is not None or time.monotonic() > end:
                raise SparkClusterError(f"{name} did not say {words!r}:\n{said[-3000:]}")
            time.sleep(0.1)


@contextmanager
def running_cluster(folder: Path, workers: int = 3, cores: int = 2, memory: str = "1g") -> Iterator[SparkCluster]:
    """A cluster for the length of a with block; all workers have registered. `cores` and `memory` are those of a worker."""
    cluster = SparkCluster(folder, workers, cores, memory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
