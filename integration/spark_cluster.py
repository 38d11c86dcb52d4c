"""A standalone cluster of Spark on loopback: a master, and workers each on an address of its own, so that Spark takes them for machines."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

_PATIENCE_S = 120.0


class SparkClusterError(Exception):
    """It did not come up; its own words are in the message."""


@contextmanager
def running_cluster(folder: Path, workers: int = 3, cores: int = 2, memory: str = "1g") -> Iterator[str]:
    """The master's URL; all workers have registered. Ended when the block ends."""
    folder.mkdir(parents=True)
    port, processes = _free_port(), list[subprocess.Popen[bytes]]()
    url = f"spark://127.0.0.1:{port}"
    try:
        master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        processes.append(_start(folder, "master", master))
        _wait(processes[-1], folder / "master.log", "I have been elected leader")
        for number in range(1, workers + 1):
            options = ["--host", f"127.0.0.{number}", "--webui-port", "0", "--cores", str(cores), "--memory", memory, url]
            processes.append(_start(folder, f"worker{number}", ["worker.Worker", *options]))
        for number in range(1, workers + 1):
            _wait(processes[number], folder / f"worker{number}.log", "Successfully registered with master")
        yield url
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def _start(folder: Path, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ, "SPARK_HOME": str(home), "SPARK_WORKER_DIR": str(folder / "work"), "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    environment.pop("SPARK_LOCAL_IP", None)  # each has its own address
    with open(folder / f"{name}.log", "wb") as log:
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]]
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=folder)


def _wait(process: subprocess.Popen[bytes], log: Path, words: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while words not in (said := log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > end:
            raise SparkClusterError(f"{log.stem} did not say {words!r}:\n{said[-3000:]}")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
