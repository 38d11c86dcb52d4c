"""The standalone cluster that the campaigns and the tests of several executors share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.masters import Master
from integration.spark_cluster import running_cluster

JOB = """
import json, sys
from kstream.spark.executors import executors
from kstream.spark.spark_context import make_spark_context
from pyspark import SparkConf
sc = make_spark_context(SparkConf().setAppName("idle").set("spark.ui.enabled", "false").setAll(list(json.loads(sys.argv[1]).items())))
print(sc.applicationId, flush=True)
for _ in sys.stdin:
    print(len(executors(sc)), flush=True)
"""


def wait(reached: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < end, what
        time.sleep(0.1)


@pytest.mark.timeout(400)
def test_executors_and_workers_that_are_killed_are_replaced(cluster: Master) -> None:
    spark = cluster.cluster
    assert spark is not None
    command = [sys.executable, "-c", JOB, json.dumps(dict(cluster.settings))]
    environment = {**os.environ, **cluster.environment}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as job:
        assert job.stdin is not None and job.stdout is not None
        asked, told = job.stdin, job.stdout
        application = told.readline().strip()

        def registered() -> int:
            """How many executors the job knows: they have come up."""
            print(file=asked, flush=True)
            return int(told.readline())

        wait(lambda: registered() == 3, "an executor on each worker")
        first, *others = spark.executors(application)
        spark.kill_executor(first)
        wait(lambda: registered() == 2, "the loss of an executor")
        wait(lambda: registered() == 3, "another executor for the killed one")
        assert first not in spark.executors() and set(others) < set(spark.executors(application))
        spark.kill_worker(2)
        wait(lambda: registered() == len(spark.executors(application)) == 2, "the end of the executor of the killed worker")
        assert set(spark.workers()) == {1, 3}
        spark.begin_worker(2)
        wait(lambda: registered() == 3, "an executor on the worker that has come back")
        job.stdin.close()
        assert job.wait(60) == 0
    wait(lambda: spark.executors() == [], "the end of the executors, which belong to the job")


@pytest.mark.timeout(200)
def test_at_its_end_a_cluster_leaves_no_process(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "spark", workers=1, cores=1) as spark:
        worker = spark.workers()[1]
    assert spark.workers() == {} and not Path(f"/proc/{worker}").exists() and spark.executors() == []
