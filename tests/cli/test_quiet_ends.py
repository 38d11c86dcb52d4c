"""A driver that a signal stops in the middle of a batch: its log in a file has no error, no trace of the JVM and no progress bar."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.daemon_trace import without_broken_pipes

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120
JOB = """
import time
from pyspark import SparkConf
from kstream import StreamingContext


def slow(number):
    time.sleep(60)
    return number, number


def write(rdd):
    open("ran", "w").close()
    rdd.context.parallelize(range(2), 2).map(slow).reduceByKey(lambda a, b: a).collect()


def setup():
    conf = SparkConf().setMaster("local[2]").setAppName("slow").set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
    ssc = StreamingContext(conf, 1)
    ssc.textFileStream("in").foreachRDD(write)
    return ssc
"""
BAR_COMES_AFTER_S = 1.5
"""Spark draws its bar for stages that run for half a second."""


def environment() -> dict[str, str]:
    given = {key: value for key, value in os.environ.items() if key not in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")}
    return {**given, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(
    ("number", "options", "code"), [(signal.SIGINT, [], 130), (signal.SIGTERM, [], 143), (signal.SIGINT, ["--no-restart"], 130)]
)
def test_a_signal_in_the_middle_of_a_batch_leaves_no_error_in_the_log(
    number: signal.Signals, options: list[str], code: int, tmp_path: Path
) -> None:
    (tmp_path / "job_slow.py").write_text(JOB)
    (tmp_path / "in").mkdir()
    command = [sys.executable, "-m", "kstream.cli", "run", "job_slow.py:setup", "--checkpoint", "checkpoint", *options]
    with open(tmp_path / "log", "wb") as log:
        job = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=log, stderr=log)
    try:
        while not (tmp_path / "ran").exists():
            with pytest.raises(subprocess.TimeoutExpired):
                job.wait(0.1)
        time.sleep(BAR_COMES_AFTER_S)
        job.send_signal(number)
        assert job.wait(SECONDS) == code, (tmp_path / "log").read_text()
    finally:
        if job.poll() is None:
            job.kill()
    said = without_broken_pipes((tmp_path / "log").read_text())
    wrong = [line for line in said.splitlines() if any(word in line for word in ("ERROR", "Exception", "Traceback", "\tat ", "[Stage"))]
    assert wrong == [], said
