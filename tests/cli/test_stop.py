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

from kstream.batch import BatchOutcome, InputOutcome
from kstream.batch_time import Time
from kstream.checkpoint import take_epoch
from kstream.checkpoint.driver_status import GONE_MS, DriverStatus, read_status
from kstream.checkpoint.sign_of_life import mark_of_this_process
from kstream.checkpoint.stop_request import read_stop
from kstream.cli import main, stop
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.stop import stop_drivers, wait_for_the_end
from kstream.storage import LocalFileStore
from tests.cli.status_records import checkpoint, last_batch, leave, living, now_ms

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
    log.complete(
        last_batch(), 1, BatchOutcome(now_ms(), {0: InputOutcome([], [{"topic": "orders", "partition": 1, "from": 5, "until": 8}])})
    )
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
        return wait_for_the_end(self.store, 1, timeout, self._sleep(then), lambda: self.seconds)

    def stop(self, driver: DriverStatus, then: Callable[[float], Any], timeout: float = 300) -> tuple[str, ReadingCode]:
        """Asks this driver, and those after it, to stop at once."""
        return stop_drivers(self.store, driver, True, timeout, self._sleep(then), lambda: self.seconds)

    def _sleep(self, then: Callable[[float], Any]) -> Callable[[float], None]:
        def sleep(seconds: float) -> None:
            self.seconds += seconds
            then(self.seconds)

        return sleep


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


def test_a_driver_whose_process_is_gone_is_not_waited_for_if_no_supervisor_starts_the_next_one(tmp_path: Path) -> None:
    mark = f"{(mark_of_this_process() or '').rpartition(' ')[0]} 1"
    leave(tmp_path, living(process=mark))
    died = "the driver of epoch 1 died: its process is gone"
    assert Waiting(tmp_path).until(lambda _: pytest.fail("waited")) == (died, ReadingCode.DEAD)
    leave(tmp_path, living(process=mark, supervised=True))
    told, code = Waiting(tmp_path).until(lambda s: leave(tmp_path, living(epoch=2)) if s > 5 else None)
    assert code is ReadingCode.BEHIND and "the driver of epoch 2 has taken its place" in told


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


def test_a_driver_that_takes_the_place_of_a_dead_one_is_asked_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    waiting, second = Waiting(tmp_path), living(epoch=2, pid=4712, supervised=True)
    first = leave(tmp_path, living(supervised=True))

    def supervised(seconds: float) -> None:
        """The first driver is killed. Its supervisor starts the next one, which looks for a request to itself and stops."""
        asked = read_stop(waiting.store, 2)
        leave(tmp_path, replace(second, ended="gracefully") if asked is not None and asked.now else second)

    assert waiting.stop(first, supervised) == ("the driver of epoch 2 has ended: gracefully", ReadingCode.WELL)
    assert capsys.readouterr().out.splitlines() == [
        "asked the driver of epoch 1 (host-1, pid 4711) to stop at once",
        "the driver of epoch 1 no longer runs: the driver of epoch 2 has taken its place",
        "asked the driver of epoch 2 (host-1, pid 4712) to stop at once",
    ]


@pytest.mark.parametrize("newer", [{"supervised": False}, {"host": "host-2"}], ids=["without a supervisor", "from another machine"])
def test_a_driver_that_no_supervisor_of_the_asked_one_has_started_is_not_asked(tmp_path: Path, newer: dict[str, Any]) -> None:
    """The new version of a job, say, that takes over while the old one stops."""
    waiting, first = Waiting(tmp_path), leave(tmp_path, living(supervised=True))
    second = living(**{"epoch": 2, "supervised": True, **newer})
    told, code = waiting.stop(first, lambda _: leave(tmp_path, second))
    assert code is ReadingCode.BEHIND and "the driver of epoch 2 has taken its place" in told
    assert read_stop(waiting.store, 2) is None


def test_after_a_driver_that_failed_before_it_saw_the_request_the_next_one_is_waited_for_and_asked(tmp_path: Path) -> None:
    """Its supervisor waits a minute at most. No status is renewed meanwhile."""
    waiting = Waiting(tmp_path)
    first = leave(tmp_path, living(supervised=True))

    def supervised(seconds: float) -> None:
        if seconds < 70:
            leave(tmp_path, replace(first, ended="after an error"))
        else:
            leave(tmp_path, living(epoch=2, supervised=True, ended=None if read_stop(waiting.store, 2) is None else "at once"))

    assert waiting.stop(first, supervised) == ("the driver of epoch 2 has ended: at once", ReadingCode.WELL)


def test_a_next_driver_that_does_not_come_is_told_and_the_supervisor_named(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    first = leave(tmp_path, living(supervised=True))
    told, code = waiting.stop(first, lambda _: leave(tmp_path, replace(first, ended="after an error")), timeout=90)
    assert code is ReadingCode.BEHIND and "the driver of epoch 1 has ended: after an error, and no next one has come within 90 s" in told
    assert "stop the supervisor (SIGTERM)" in told


def test_a_driver_without_a_supervisor_that_ends_by_an_error_has_ended(tmp_path: Path) -> None:
    first = leave(tmp_path, living())
    ended = replace(first, ended="after an error")
    assert Waiting(tmp_path).stop(first, lambda _: leave(tmp_path, ended)) == (
        "the driver of epoch 1 has ended: after an error",
        ReadingCode.WELL,
    )


def test_drivers_that_come_again_and_again_are_not_asked_for_ever(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    first = leave(tmp_path, living(supervised=True))
    told, code = waiting.stop(first, lambda seconds: leave(tmp_path, living(epoch=1 + round(seconds), supervised=True)))
    assert code is ReadingCode.BEHIND and f"{stop.MOST_DRIVERS} drivers were asked, and a new one came each time" in told
    assert "Stop the supervisor (SIGTERM)" in told
    assert [read_stop(waiting.store, epoch) is not None for epoch in (1, 2, 3, 4)] == [True, True, True, False]


def test_all_drivers_share_the_timeout(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    first = leave(tmp_path, living(supervised=True))
    told, code = waiting.stop(
        first, lambda seconds: leave(tmp_path, living(epoch=2, supervised=True, written_ms=round(seconds * 1000))), timeout=50
    )
    assert code is ReadingCode.BEHIND and "the driver of epoch 2 has not ended within 49 s" in told and waiting.seconds == 50


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
        record = read_status(LocalFileStore(tmp_path / "checkpoint"))
        assert record is not None and record.supervised
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
