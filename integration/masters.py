"""Where the jobs of the campaigns run: in their own processes, or on a standalone cluster of three workers.

with running_master(options.cluster, directory) as master: start a job with master.settings and master.environment
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from integration.class_archives import SPARK_VARIABLE, use_spark_archive
from integration.spark_cluster import SparkCluster, running_cluster
from kstream.spark.java import ensure_java

LOCAL, STANDALONE = "local", "standalone"
EXECUTOR_MEMORY, WORKER_MEMORY = "512m", "600m"
"""A worker has room for one executor."""


@dataclass(frozen=True)
class Master:
    """What a job needs to run somewhere else than on its own `local[2]`; without a cluster nothing."""

    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of its SparkConf, `spark.master` among them. They win over the job's own."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the driver, besides its own."""
    cluster: SparkCluster | None = None

    def settings_with(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The settings, and these variables for the executors, too: where a store is, and its credentials."""
        given = environment if self.cluster is not None else {}
        return {**self.settings, **{f"spark.executorEnv.{name}": value for name, value in given.items()}}


IN_PROCESS = Master()
"""The job's own local master."""


def add_cluster_option(parser: argparse.ArgumentParser, default: str = LOCAL) -> None:
    words = f"where the job runs: three workers, or one process; default {default}"
    parser.add_argument("--cluster", choices=[LOCAL, STANDALONE], default=default, help=words)


@contextmanager
def running_master(kind: str, directory: Path, cores: int = 1) -> Iterator[Master]:
    """A master of that kind, LOCAL or STANDALONE, for the length of a with block. `cores` are those of a worker and its executor."""
    if kind == LOCAL:
        yield IN_PROCESS
        return
    ensure_java()
    use_spark_archive()
    with running_cluster(directory / "spark", cores=cores, memory=WORKER_MEMORY) as cluster:
        yield on_cluster(cluster)


def on_cluster(cluster: SparkCluster) -> Master:
    settings = {"spark.master": cluster.url, "spark.driver.host": "127.0.0.1", **executor_settings()}
    return Master(settings, {"PYSPARK_PYTHON": cluster.python, "SPARK_LOCAL_IP": "127.0.0.1"}, cluster)


def executor_settings() -> dict[str, str]:
    """Executors that are small, start quickly and import this checkout, whichever is installed."""
    return {
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.executor.extraJavaOptions": f"-XX:+UseSerialGC {os.environ.get(SPARK_VARIABLE, '')}".strip(),
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
