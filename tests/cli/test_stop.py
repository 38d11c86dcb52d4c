"""`kstream stop`: how it asks, what it waits for, and what it says of a driver that is not there; with a real driver in a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kstream.batch import InputOutcome
from kstream.batch_time import Time
from kstream.checkpoint import take_epoch
from kstream.checkpoint.driver_status import GONE_MS
from kstream.checkpoint.stop_request import read_stop
from kstream.cli import main, stop
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.stop import wait_for_the_end
from kstream.storage import LocalFileStore
from tests.cli.test_status import checkpoint, last_batch, leave, living, now_ms

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 120


def asked(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["stop", str(folder), "--timeout", "0", *options])


# -- asking


@pytest.mark.parametrize(("options", "now"), [((), False), (("--after-batch",), False), (("--now",), True)])
def test_the_request_is_for_the_driver_that_lives(tmp_path: Path, options: tuple[str, ...], now: bool) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, living())
    result = asked(tmp_path, *options)
    assert f"asked the driver of epoch 1 (host-1, pid 4711) to stop {'at once' if now else 'after its planned batches'}" in result.output
    assert result.exit_code == ReadingCode.BEHIND and "has not ended within 0 s" in result.stderr and "the request stands" in result.stderr
    request = read_stop(LocalFileStore(tmp_path), 1)
    assert request is not None and request.now is now and f"pid {os.getpid()}" in request.asked_by


def test_a_driver_that_has_ended_is_no_error_and_gets_no_request(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, living(ended="gracefully"))
    result = asked(tmp_path)
    assert result.exit_code == 0 and "no driver runs: the driver of epoch 1 (host-1, pid 4711) ended" in result.output
    assert read_stop(LocalFileStore(tmp_path), 1) is None


def test_after_a_driver_that_ended_by_an_error_the_next_one_may_come_from_its_supervisor(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, living(ended="after an error"))
    result = asked(tmp_path)
    assert result.exit_code == ReadingCode.DEAD and "ended" in result.stderr and "stop the supervisor (SIGTERM)" in result.stderr


def test_a_driver_that_is_dead_or_fenced_is_told_so_and_gets_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop, "WAIT_S", 0)
    checkpoint(tmp_path)
    leave(tmp_path, replace(living(), written_ms=now_ms() - 2 * GONE_MS))
    dead = asked(tmp_path)
    assert dead.exit_code == ReadingCode.DEAD and "there is no driver to stop: dead: the driver of epoch 1" in dead.stderr
    leave(tmp_path, living())
    take_epoch(LocalFileStore(tmp_path), now_ms())
    fenced = asked(tmp_path)
    assert fenced.exit_code == ReadingCode.DEAD and "was fenced by epoch 2" in fenced.stderr
    assert not (tmp_path / "stop").exists()


def test_a_damaged_log_and_a_damaged_ledger_keep_nobody_from_stopping_a_driver(tmp_path: Path) -> None:
    log = checkpoint(tmp_path)
    log.complete(last_batch(), 1, now_ms(), {0: InputOutcome([], [{"topic": "orders", "partition": 1, "from": 5, "until": 8}])})
    leave(tmp_path, living())
    for record in (*(tmp_path / "lost").iterdir(), *(tmp_path / "plans").iterdir()):
        record.write_bytes(b"damaged")
    assert "asked the driver of epoch 1" in asked(tmp_path).output
    assert read_stop(LocalFileStore(tmp_path), 1) is not None
    leave(tmp_path, living(ended="gracefully"))
    assert asked(tmp_path).exit_code == ReadingCode.WELL


def test_a_request_needs_no_store_with_an_exclusive_create(tmp_path: Path) -> None:
    """As `skip` and `ledger ack`: a store for a single writer, and HDFS, which only Hadoop reaches."""
    checkpoint(tmp_path)
    leave(tmp_path, living())
    result = CliRunner().invoke(main, ["stop", f"local://{tmp_path}", "--timeout", "0", "--now"])
    assert "asked the driver of epoch 1" in result.output, result.output
    request = read_stop(LocalFileStore(tmp_path), 1)
    assert request is not None and request.now


def test_a_place_without_a_checkpoint_is_exit_code_3(tmp_path: Path) -> None:
    result = asked(tmp_path)
    assert result.exit_code == ReadingCode.UNREADABLE and "there is no checkpoint in" in result.stderr


# -- waiting


class Waiting:
    """Waits for the end of epoch 1 without time passing; `then(seconds)` happens before each look after the first."""

    def __init__(self, folder: Path) -> None:
        self.store, self.seconds = LocalFileStore(folder), 0.0

    def until(self, then: Callable[[float], Any], timeout: float = 300) -> tuple[str, ReadingCode]:
        def sleep(seconds: float) -> None:
            self.seconds += seconds
            then(self.seconds)

        return wait_for_the_end(self.store, 1, timeout, sleep, lambda: self.seconds)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ended": "gracefully"}, "the driver of epoch 1 has ended: gracefully"),
        (
            {"ended": "at once", "unfinished": 2, "oldest_unfinished": Time(0)},
            "the driver of epoch 1 has ended: at once, 2 batches left: the next start runs them",
        ),
    ],
)
def test_the_end_is_told_with_what_is_left(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    leave(tmp_path, living())
    end = living(**changes)
    assert Waiting(tmp_path).until(lambda s: leave(tmp_path, end) if s > 5 else None) == (said, ReadingCode.WELL)


def test_a_driver_that_dies_while_it_stops_is_told_so(tmp_path: Path) -> None:
    leave(tmp_path, living())
    told, code = Waiting(tmp_path).until(lambda _: None)
    assert code is ReadingCode.DEAD and "the driver of epoch 1 died: it has not renewed its status for 61 s" in told


def test_a_driver_that_renews_is_waited_for_until_the_timeout(tmp_path: Path) -> None:
    status = leave(tmp_path, living(unfinished=1, oldest_unfinished=Time(0)))

    def renew(seconds: float) -> None:
        leave(tmp_path, replace(status, written_ms=status.written_ms + round(seconds * 1000)))

    told, code = Waiting(tmp_path).until(renew, 200)
    assert code is ReadingCode.BEHIND and "has not ended within 200 s (1 batch did not end); the request stands" in told


@pytest.mark.parametrize(
    ("changes", "said", "code"),
    [
        ({"ended": "fenced"}, "the driver of epoch 1 was fenced: another driver has taken the checkpoint", ReadingCode.DEAD),
        ({"epoch": 2}, "the driver of epoch 1 no longer runs: the driver of epoch 2 has taken its place", ReadingCode.BEHIND),
    ],
)
def test_another_driver_that_came_meanwhile_is_told(tmp_path: Path, changes: dict[str, Any], said: str, code: ReadingCode) -> None:
    leave(tmp_path, living())
    assert Waiting(tmp_path).until(lambda _: leave(tmp_path, replace(living(), **changes))) == (said, code)


# -- in a terminal

JOB = """
import threading
from pyspark import SparkConf
from kstream import StreamingContext


def setup():
    conf = SparkConf().setMaster("local[1]").setAppName("orders").set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
    ssc = StreamingContext(conf, 0.5)
    ssc.textFileStream("in").foreachRDD(lambda rdd: open("ran", "w").close())
    return ssc
"""
FAILING = """

def fail_while_it_stops(rdd):
    open("ran", "w").close()
    while not StreamingContext.getActive().stop_requested:
        threading.Event().wait(0.1)
    raise ValueError("sink away")
"""


def kstream(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kstream.cli", *words]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@contextmanager
def running(folder: Path, job: str) -> Generator[subprocess.Popen[bytes]]:
    """Runs a job under its supervisor. The body begins when its first batch has begun; at the end the job is ended."""
    (folder / "job_stop.py").write_text(job)
    (folder / "in").mkdir()
    command = [sys.executable, "-m", "kstream.cli", "run", "job_stop.py:setup", "--checkpoint", "checkpoint"]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=log, stderr=log)
    try:
        while not (folder / "ran").exists():
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.1)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(SECONDS)


def test_a_driver_under_its_supervisor_is_seen_and_stopped_from_another_terminal(tmp_path: Path) -> None:
    with running(tmp_path, JOB) as job:
        seen = kstream(tmp_path, "status", "checkpoint", "--max-behind", "100")
        assert seen.returncode == 0 and "driver: orders, epoch 1, " in seen.stdout, seen.stdout + seen.stderr
        stopped = kstream(tmp_path, "stop", "checkpoint")
        assert stopped.returncode == 0, stopped.stdout + stopped.stderr
        assert stopped.stdout.splitlines()[-1] == "the driver of epoch 1 has ended: gracefully"
        assert job.wait(SECONDS) == 0, (tmp_path / "log").read_text()
    log_text = (tmp_path / "log").read_text()
    assert "stop request of " in log_text and "the context stops after its planned batches" in log_text
    ended = kstream(tmp_path, "status", "checkpoint")
    assert ended.returncode == ReadingCode.DEAD and "ended" in ended.stdout
    assert kstream(tmp_path, "stop", "checkpoint").returncode == 0, "a second stop is no error"


def test_a_batch_that_fails_during_the_stop_ends_neither_in_a_flood_of_warnings_nor_in_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, JOB.replace('lambda rdd: open("ran", "w").close()', "fail_while_it_stops") + FAILING) as job:
        stopped = kstream(tmp_path, "stop", "checkpoint")
        assert stopped.returncode == 0, stopped.stdout + stopped.stderr
        assert " left: the next start runs " in stopped.stdout.splitlines()[-1]
        assert job.wait(SECONDS) == 0
    warnings = [line for line in (tmp_path / "log").read_text().splitlines() if "error while the context stops as asked" in line]
    assert len(warnings) == 1 and "sink away" in warnings[0]
