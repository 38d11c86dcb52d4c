"""`kstream run` with another batch interval: refused with the command that changes it, and changed by that command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from integration.kstream_run import ROOT, SECONDS, running, stop, wait_for
from kstream.batch_time import Time
from kstream.checkpoint import read_log
from kstream.cli.exit_codes import RunCode
from kstream.storage import open_store

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
WORDS = ("job_files:setup", "--checkpoint", "checkpoint")


def ran(folder: Path, after: int = 0) -> list[int]:
    batches = map(int, re.findall(r"^batch (\d+)", (folder / "log").read_text(), re.MULTILINE))
    return [batch for batch in batches if batch > after]


@pytest.mark.timeout(4 * SECONDS)
def test_an_interval_is_changed_by_the_command_that_the_refused_start_names(tmp_path: Path) -> None:
    (tmp_path / "job_files.py").write_text(JOB)
    (tmp_path / "incoming").mkdir()
    with running(tmp_path, *WORDS, JOB_INTERVAL="1") as process:
        wait_for(lambda: len(ran(tmp_path)) >= 2, process, tmp_path)
        stop(process, tmp_path)
    last = read_log(open_store(str(tmp_path / "checkpoint"))).last_planned
    assert last is not None
    with running(tmp_path, *WORDS, JOB_INTERVAL="3") as process:
        assert process.wait(SECONDS) == RunCode.REFUSED, (tmp_path / "log").read_text()
    assert f"kstream run --interval-changed-at {last.milliseconds}" in (tmp_path / "log").read_text()
    assert not (tmp_path / "checkpoint" / "epoch-2").exists()
    with running(tmp_path, *WORDS, "--interval-changed-at", str(last.milliseconds), JOB_INTERVAL="3") as process:
        wait_for(lambda: len(ran(tmp_path, last.milliseconds)) >= 2, process, tmp_path)
        stop(process, tmp_path)
    made = [Time(batch) for batch in ran(tmp_path, last.milliseconds)]
    assert all(batch.milliseconds % 3000 == 0 for batch in made) and made[1].since(made[0]).milliseconds == 3000
    command = [sys.executable, "-m", "kstream.cli", "checkpoint", "show", "checkpoint"]
    shown = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    said = " ".join(shown.stdout.decode().split())
    assert "batch interval 3000 ms" in said and f"(after batch {last}, the last one of another interval)" in said
