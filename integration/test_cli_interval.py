"""`kstream run` with another batch interval: refused with the command that changes it, and changed by that command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kstream.batch_time import Time
from kstream.checkpoint import read_log
from kstream.cli.exit_codes import RunCode
from kstream.storage import open_store

SECONDS = 120
JOB = """
import os

from pyspark import SparkConf

from kstream import StreamingContext


def setup():
    conf = SparkConf().setMaster("local[1]").set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    ssc = StreamingContext(conf.set("spark.streaming.stopGracefullyOnShutdown", "true"), float(os.environ["JOB_INTERVAL"]))
    ssc.textFileStream("incoming").foreachRDD(lambda time, rdd: print("batch", time.milliseconds, flush=True))
    return ssc
"""
ROOT = Path(__file__).resolve().parent.parent


def kstream(*words: str) -> list[str]:
    return [sys.executable, "-m", "kstream.cli", *words]


@contextmanager
def running(folder: Path, interval: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`kstream run` of JOB in `folder`. What it says is in `folder`/log."""
    environment = {**os.environ, "JOB_INTERVAL": interval, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "connectors")])}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            kstream("run", "job_files:setup", "--checkpoint", "checkpoint", *options), cwd=folder, env=environment, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.1)


def ran(folder: Path, after: int = 0) -> list[int]:
    batches = map(int, re.findall(r"^batch (\d+)", (folder / "log").read_text(), re.MULTILINE))
    return [batch for batch in batches if batch > after]


def stop(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == RunCode.ENDED, (folder / "log").read_text()


@pytest.mark.timeout(4 * SECONDS)
def test_an_interval_is_changed_by_the_command_that_the_refused_start_names(tmp_path: Path) -> None:
    (tmp_path / "job_files.py").write_text(JOB)
    (tmp_path / "incoming").mkdir()
    with running(tmp_path, "1") as process:
        until(lambda: len(ran(tmp_path)) >= 2, process, tmp_path)
        stop(process, tmp_path)
    last = read_log(open_store(str(tmp_path / "checkpoint"))).last_planned
    assert last is not None
    with running(tmp_path, "3") as process:
        assert process.wait(SECONDS) == RunCode.REFUSED, (tmp_path / "log").read_text()
    assert f"kstream run --interval-changed-at {last.milliseconds}" in (tmp_path / "log").read_text()
    assert not (tmp_path / "checkpoint" / "epoch-2").exists()
    with running(tmp_path, "3", "--interval-changed-at", str(last.milliseconds)) as process:
        until(lambda: len(ran(tmp_path, last.milliseconds)) >= 2, process, tmp_path)
        stop(process, tmp_path)
    made = [Time(batch) for batch in ran(tmp_path, last.milliseconds)]
    assert all(batch.milliseconds % 3000 == 0 for batch in made) and made[1].since(made[0]).milliseconds == 3000
    shown = subprocess.run(
        kstream("checkpoint", "show", "checkpoint"), cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True
    )
    said = " ".join(shown.stdout.decode().split())
    assert "batch interval 3000 ms" in said and f"(after batch {last}, the last one of another interval)" in said
