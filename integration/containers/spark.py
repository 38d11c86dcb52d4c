"""Spark in containers: the master and workers of the fixtures, on the machine's own network, and others on a network of containers.

The image has a Java and a Python. The checkout, pyspark and all packages are the machine's, mounted at their paths.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from integration.containers.container import Container, ContainerNetwork
from integration.containers.daemon import ContainerError
from integration.spark_cluster import SparkCluster, SparkClusterError

ROOT = Path(__file__).resolve().parents[2]
_SPARK_HOME = Path(pyspark.__file__).parent
_PORT = 7077
_START_S = 120
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xss512k"


def checkout() -> list[Path]:
    """The folders that a Python in a container needs: the checkout and where packages are installed."""
    packages = _SPARK_HOME.resolve().parent
    return [ROOT] if packages.is_relative_to(ROOT) else [ROOT, packages]


def own_files() -> dict[str, str]:
    """The variables by which it finds them, and writes no byte code among them."""
    path = [str(ROOT), str(ROOT / "connectors"), str(_SPARK_HOME.resolve().parent)]
    return {"PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"}


def spark_container(
    image: str, *command: str, written: Sequence[Path] = (), environment: Mapping[str, object] | None = None, **more: Any
) -> Container:
    """A container of Spark's image that runs this command as this user, and may write to the folders of `written`."""
    given = {
        **own_files(), "SPARK_HOME": _SPARK_HOME.resolve(), "PYSPARK_PYTHON": "python3", "SPARK_LOCAL_DIRS": "/tmp/spark",
        "SPARK_WORKER_DIR": "/tmp/work", "SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": _JVM, "USER": "kstream",
        **(environment or {}),
    }  # fmt: skip
    user = f"{os.getuid()}:{os.getgid()}"
    return Container(
        image, *command, environment=given, mounts=checkout(), written=written, user=user, entrypoint=[], working_dir="/tmp", **more
    )


def _deploy(main: str, *arguments: object) -> list[str]:
    return [str(_SPARK_HOME.resolve() / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *map(str, arguments)]


class NetworkedSpark:
    """A master and workers on a network of containers, where they are `spark-master`, `spark-worker-1` and so on."""

    def __init__(self, image: str, network: ContainerNetwork, workers: int, written: Sequence[Path], memory: str) -> None:
        def container(alias: str, *command: str) -> Container:
            return spark_container(image, *command, written=written, network=network, alias=alias)

        arguments = ["--host", "spark-master", "--port", _PORT, "--webui-port", 8080]
        self.url = f"spark://spark-master:{_PORT}"
        self.master = container("spark-master", *_deploy("master.Master", *arguments))
        self.workers = {
            n: container(
                f"spark-worker-{n}",
                *_deploy("worker.Worker", "--host", f"spark-worker-{n}", "--cores", 1, "--memory", memory, "--webui-port", 0, self.url),
            )
            for n in range(1, workers + 1)
        }

    def start(self) -> None:
        """Returns when all workers have registered."""
        self.master.start()
        self.master.wait_until_it_says("I have been elected leader", _START_S, "Spark's master")
        for worker in self.workers.values():
            worker.start()
        for number in self.workers:
            self.wait_for_worker(number)

    def wait_for_worker(self, number: int) -> None:
        self.workers[number].wait_until_it_says("Successfully registered with master", _START_S, f"Spark's worker {number}")

    def remove(self) -> None:
        for container in (*self.workers.values(), self.master):
            container.remove()


class ContainerSparkCluster(SparkCluster):
    """The cluster of the fixtures, each master and worker in a container on the machine's own network. `remove` it when done."""

    python = "python3"

    def __init__(self, image: str, folder: Path, workers: int, cores: int, memory: str) -> None:
        super().__init__(folder, workers, cores, memory)
        self._image = image
        self._containers: list[Container] = []

    def remove(self) -> None:
        for container in self._containers:
            container.remove()

    def _begin(self, name: str, command: list[str], environment: Mapping[str, str]) -> _ContainerProcess:
        """All folders of the tests are there: a job may write anywhere in them."""
        kept = {key: value for key, value in environment.items() if key.startswith("SPARK_")} | {"SPARK_HOME": str(_SPARK_HOME.resolve())}
        shell = ["bash", "-c", 'exec "$@" > "$0" 2>&1', str(self._log(name)), *command]
        with _sparks_error():
            container = spark_container(self._image, *shell, written=[self.folder.parent], environment=kept, network_mode="host")
            self._containers.append(container)
            container.start()
        return _ContainerProcess(container)


class _ContainerProcess:
    """A container as a process: with the methods of subprocess.Popen that a cluster uses."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self.pid = container.pid

    def poll(self) -> int | None:
        return self._container.exit_code

    def terminate(self) -> None:
        self._container.stop()

    def kill(self) -> None:
        self._container.kill()

    def wait(self, timeout: float | None = None) -> int:
        """It has been stopped or killed: these have waited."""
        return self._container.exit_code or 0


@contextmanager
def running_containers(image: str, folder: Path, workers: int = 3, cores: int = 2, memory: str = "1g") -> Iterator[ContainerSparkCluster]:
    """A cluster for the length of a with block; all workers have registered."""
    cluster = ContainerSparkCluster(image, folder, workers, cores, memory)
    try:
        cluster.start()
        yield cluster
        cluster.stop()
    finally:
        with _sparks_error():
            cluster.remove()


@contextmanager
def _sparks_error() -> Iterator[None]:
    try:
        yield
    except ContainerError as e:
        raise SparkClusterError(str(e)) from e
