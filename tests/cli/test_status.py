"""`kstream status`: what it says of a driver that lives, that is late, that has died, and where clocks differ."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kstream.batch import BatchOutcome, InputOutcome
from kstream.batch_time import Duration
from kstream.checkpoint import take_epoch
from kstream.checkpoint.driver_status import GONE_MS, BatchFigures, LastError, StreamLag
from kstream.checkpoint.history import acknowledge, read_ledger
from kstream.checkpoint.sign_of_life import mark_of_this_process
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.status import lag_line, look
from kstream.storage import LocalFileStore
from tests.cli.status_records import checkpoint, last_batch, leave, living, now_ms, status


def told(folder: Path, *options: str) -> dict[str, Any]:
    return json.loads(status(folder, "--json", *options).stdout)


def test_a_driver_that_is_well_is_exit_code_0_and_told_with_its_figures(tmp_path: Path) -> None:
    log = checkpoint(tmp_path)
    log.complete(
        last_batch(), 1, BatchOutcome(now_ms(), {0: InputOutcome([], [{"topic": "orders", "partition": 1, "from": 5, "until": 8}])})
    )
    error = LastError(now_ms(), "ValueError: boom", last_batch(), "0, pprint at job.py:7")
    leave(tmp_path, living(lag=(StreamLag(0, "Kafka[Subscribe[orders]]", 17),), last_error=error))
    result = status(tmp_path)
    assert result.exit_code == ReadingCode.WELL, result.output
    lines = result.output.splitlines()
    assert lines[:2] == [str(tmp_path), "well: batches succeed, and none is late"]
    assert any(line.startswith("driver: orders, epoch 1, host-1, pid 4711, since ") for line in lines)
    assert "rates: 40.0 records a second, 80 a second of processing (last 1 batch)" in lines
    assert "lag of stream 0: 17 records in no batch yet (Kafka[Subscribe[orders]])" in lines
    assert "pending: 0 batches" in lines and "ledger: 1 entry that nobody has acknowledged or asked for" in lines
    assert any(
        line.startswith("last error: ")
        and line.endswith("in output operation 0, pprint at job.py:7: ValueError: boom (the batch has succeeded since)")
        for line in lines
    )
    data = told(tmp_path)
    assert (data["alive"], data["state"], data["exit_code"], data["ledger"]) == (True, "well", 0, 1)
    assert data["status"]["host"] == "host-1" and data["seconds_behind"] == 0 and data["input_rate"] == 40


@pytest.mark.parametrize("failed", [False, True])
def test_an_error_whose_batch_has_succeeded_since_is_marked(tmp_path: Path, failed: bool) -> None:
    checkpoint(tmp_path)
    error = LastError(now_ms(), "ValueError: boom", last_batch(), "0, pprint at job.py:7")
    leave(tmp_path, replace(living(last_error=error), recent=(BatchFigures(error.batch or last_batch(), 40, 3, 500, failed=failed),)))
    (line,) = [line for line in status(tmp_path).output.splitlines() if line.startswith("last error: ")]
    assert line.endswith("ValueError: boom" if failed else "ValueError: boom (the batch has succeeded since)")


def test_the_limit_of_the_last_batch_stands_beside_the_lag() -> None:
    assert lag_line(StreamLag(0, "Kafka[t]", 17, "backpressure")) == (
        "lag of stream 0: 17 records in no batch yet (Kafka[t]); the newest batch is limited by backpressure"
    )


def test_a_lag_says_how_many_of_its_records_are_in_no_batch_and_of_when_it_is() -> None:
    at_ms = round(datetime(2026, 11, 22, 11, 23, 1).timestamp() * 1000)
    assert lag_line(StreamLag(0, "Kafka[t]", 1017, unplanned=17, at_ms=at_ms)) == (
        "lag of stream 0: 1017 records, 17 of them in no batch yet (Kafka[t]), as of 2026-11-22 11:23:01"
    )
    assert lag_line(StreamLag(0, "Kafka[t]", 0, unplanned=0, at_ms=at_ms)) == (
        "lag of stream 0: 0 records (Kafka[t]), as of 2026-11-22 11:23:01"
    )


def test_the_rates_of_back_pressure_are_lines_of_their_own(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, living(rates={0: 1700}))
    assert "back-pressure: stream 0 may take 1,700 records a second" in status(tmp_path).stdout.splitlines()
    assert told(tmp_path)["status"]["rates"] == {"0": 1700}


def test_a_driver_that_is_behind_is_exit_code_1_with_batches_and_seconds(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    oldest = last_batch() - Duration(120_000)
    written = leave(tmp_path, living(unfinished=3, oldest_unfinished=oldest))
    result, data = status(tmp_path), told(tmp_path)
    assert result.exit_code == ReadingCode.BEHIND and "behind: the oldest batch has been due for 2 min" in result.output
    assert (data["pending"], data["oldest_pending"], data["batches_behind"]) == (
        3,
        oldest.milliseconds,
        written.batches_behind(written.written_ms),
    )
    assert 120 <= data["seconds_behind"] < 122
    assert status(tmp_path, "--max-behind", "600").exit_code == ReadingCode.WELL


def test_batches_that_were_due_and_not_planned_count_as_behind(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, replace(living(), last_planned=last_batch() - Duration(60_000)))
    data = told(tmp_path)
    assert data["state"] == "behind" and 59 <= data["seconds_behind"] <= 61 and 59 <= data["batches_behind"] <= 61


def test_a_driver_with_a_failed_batch_is_exit_code_1(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, living(unfinished=1, oldest_unfinished=last_batch(), failed=1))
    result = status(tmp_path)
    assert result.exit_code == ReadingCode.BEHIND and "failing: 1 batch failed\n" in result.output


def test_a_driver_whose_batches_wait_for_a_retry_is_exit_code_1(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, living(unfinished=3, oldest_unfinished=last_batch(), waiting=3))
    result = status(tmp_path)
    assert result.exit_code == ReadingCode.BEHIND and "failing: 3 batches wait for a retry or for an earlier batch" in result.output


def test_a_failed_batch_and_batches_that_wait_for_it_are_told_together(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, living(unfinished=2, oldest_unfinished=last_batch(), failed=1, waiting=1))
    assert "failing: 1 batch failed, 1 batch waits for a retry or for an earlier batch" in status(tmp_path).output


def test_a_driver_that_no_longer_renews_is_dead_and_its_log_tells_what_is_pending(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, replace(living(), written_ms=now_ms() - GONE_MS - 60_000))
    result, data = status(tmp_path), told(tmp_path)
    assert result.exit_code == ReadingCode.DEAD
    assert "dead: the driver of epoch 1 (host-1, pid 4711) has not renewed its status for 2 min" in result.output
    assert (data["alive"], data["pending"]) == (False, 1)


def test_a_driver_that_ended_is_told_with_its_reason(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, living(ended="gracefully"))
    result = status(tmp_path)
    assert result.exit_code == ReadingCode.DEAD and "no driver runs: the driver of epoch 1 (host-1, pid 4711) ended" in result.output
    assert told(tmp_path)["state"] == "ended" and "gracefully" in result.output


def test_the_lag_of_a_driver_that_lives_no_more_is_said_to_be_of_its_last_record(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    said = f"lag now: the record of that driver is no longer renewed; `kstream lag {tmp_path}` asks the brokers"
    leave(tmp_path, living(lag=(StreamLag(0, "Kafka[t]", 17),), ended="gracefully"))
    assert said in status(tmp_path).output.splitlines()
    leave(tmp_path, living(lag=(StreamLag(0, "Kafka[t]", 17),)))
    assert said not in status(tmp_path).output.splitlines()


def test_a_driver_that_was_fenced_by_one_without_a_sign_of_life_is_dead(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, living())
    take_epoch(LocalFileStore(tmp_path), now_ms())
    result = status(tmp_path)
    assert result.exit_code == ReadingCode.DEAD and "was fenced by epoch 2" in result.output


def test_a_checkpoint_without_a_record_is_told_so(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    result = status(tmp_path)
    assert result.exit_code == ReadingCode.DEAD and "no driver has left a sign of life" in result.output
    assert told(tmp_path)["status"] is None


def test_what_cannot_be_read_is_exit_code_3_and_one_line(tmp_path: Path) -> None:
    nothing = status(tmp_path)
    assert nothing.exit_code == ReadingCode.UNREADABLE and "there is no checkpoint in" in nothing.stderr
    checkpoint(tmp_path)
    leave(tmp_path, living())
    record = tmp_path / "status" / "000001"
    record.write_bytes(record.read_bytes().replace(b"host-1", b"host-2"))
    damaged = status(tmp_path)
    assert damaged.exit_code == ReadingCode.UNREADABLE and str(record) in damaged.stderr and len(damaged.stderr.splitlines()) == 1


def test_an_entry_of_the_ledger_counts_until_it_is_acknowledged_and_is_not_read_afterwards(tmp_path: Path) -> None:
    log = checkpoint(tmp_path)
    log.complete(
        last_batch(), 1, BatchOutcome(now_ms(), {0: InputOutcome([], [{"topic": "orders", "partition": 1, "from": 5, "until": 8}])})
    )
    leave(tmp_path, living())
    assert told(tmp_path)["ledger"] == 1
    (entry,) = read_ledger(LocalFileStore(tmp_path))
    acknowledge(LocalFileStore(tmp_path), entry, now_ms(), "a person")
    (tmp_path / entry.name).write_bytes(b"damaged")
    assert told(tmp_path)["ledger"] == 0


# -- clocks


def test_the_clock_of_a_driver_that_differs_from_the_stores_is_named_and_not_trusted(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, replace(living(), written_ms=now_ms() - 3_600_000), modified_ms=now_ms())
    result = status(tmp_path)
    assert result.exit_code != ReadingCode.DEAD, "the store has dated the record now"
    assert "clock skew: the clock of host-1 is 1 h 0 min behind the store's" in result.output


def test_a_clock_here_that_is_behind_the_stores_is_named(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, replace(living(), written_ms=now_ms() + 90_000))
    (skew,) = told(tmp_path)["clock_skew"]
    assert skew.startswith("the clock of this machine is ") and skew.endswith(" behind the store's")


def looked(folder: Path, sleep: Callable[[float], None]) -> Any:
    return look(LocalFileStore(folder), None, 20.0, sleep)


def test_before_a_driver_is_called_dead_its_next_renewal_is_waited_for(tmp_path: Path) -> None:
    """The clock here may be hours ahead of all others: a renewal proves the contrary."""
    checkpoint(tmp_path)
    old = leave(tmp_path, replace(living(), written_ms=now_ms() - 3_600_000, last_planned=last_batch() - Duration(3_600_000)))
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            leave(tmp_path, replace(old, written_ms=old.written_ms + 500))

    report = looked(tmp_path, sleep)
    assert (report.code, report.state) == (ReadingCode.WELL, "well") and len(waited) == 3
    assert [skew for skew in report.skews if "this machine is 59 min" in skew or "this machine is 1 h" in skew]


def when_waited_for(then: Callable[[], Any]) -> Callable[[float], None]:
    """A `sleep`: `then` happens in the first wait, and a second one fails."""
    steps = iter([then])

    def sleep(_seconds: float) -> None:
        step = next(steps, None)
        assert step is not None, "waited on"
        step()

    return sleep


def test_a_renewal_with_the_right_date_tells_no_difference_of_clocks(tmp_path: Path) -> None:
    """A driver was suspended, or cut off from its store: its record was old, and no clock is wrong."""
    checkpoint(tmp_path)
    old = leave(tmp_path, living(written_ms=now_ms() - 2 * GONE_MS))
    report = looked(tmp_path, when_waited_for(lambda: leave(tmp_path, replace(old, written_ms=now_ms()))))
    assert (report.state, report.skews) == ("well", [])


def test_a_driver_that_starts_while_an_older_one_is_waited_for_lives(tmp_path: Path) -> None:
    """As after a reboot: the old record is older than a minute, and the next driver starts."""
    checkpoint(tmp_path)
    leave(tmp_path, living(written_ms=now_ms() - 2 * GONE_MS))

    def start() -> None:
        take_epoch(LocalFileStore(tmp_path), now_ms())
        leave(tmp_path, living(epoch=2))

    report = looked(tmp_path, when_waited_for(start))
    assert (report.code, report.state, report.skews) == (ReadingCode.WELL, "well", [])
    assert report.sign.status.epoch == 2


def test_a_driver_that_renews_once_more_after_it_was_fenced_does_not_live(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    old = leave(tmp_path, living(written_ms=now_ms() - 2 * GONE_MS))

    def fence() -> None:
        take_epoch(LocalFileStore(tmp_path), now_ms())
        leave(tmp_path, replace(old, written_ms=now_ms()))

    assert looked(tmp_path, when_waited_for(fence)).state == "fenced"


def test_without_a_renewal_it_is_dead(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, replace(living(), written_ms=now_ms() - 3_600_000))
    waited: list[float] = []
    assert looked(tmp_path, waited.append).code == ReadingCode.DEAD
    assert sum(waited) == 20.0


def test_a_driver_whose_process_is_gone_is_dead_at_once_on_its_machine(tmp_path: Path) -> None:
    """Right after `kill -9` the record is fresh."""
    checkpoint(tmp_path)
    here = (mark_of_this_process() or "").rpartition(" ")[0]
    leave(tmp_path, living(process=f"{here} 1", supervised=True))  # a process of this machine whose number another one has by now
    report = looked(tmp_path, lambda seconds: pytest.fail("waited"))
    said = "dead: the process of the driver of epoch 1 (host-1, pid 4711) is gone, and it did not say that it ended"
    said += ". `kstream run` starts the next one within a minute, if it still runs and a restart can help"
    assert (report.code, report.sentence) == (ReadingCode.DEAD, said)


@pytest.mark.parametrize(
    ("changes", "comes"),
    [
        ({"ended": "after an error", "supervised": True}, True),
        ({"ended": "start failed", "supervised": True}, True),
        ({"ended": "after an error"}, False),
        ({"ended": "gracefully", "supervised": True}, False),
    ],
)
def test_between_two_drivers_the_next_one_is_told(tmp_path: Path, changes: dict[str, Any], comes: bool) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, living(**changes))
    said = "`kstream run` starts the next one within a minute, if it still runs and a restart can help"
    assert (said in status(tmp_path).output) is comes and (said in told(tmp_path)["sentence"]) is comes


def test_without_a_driver_the_page_is_that_of_the_checkpoint(tmp_path: Path) -> None:
    """The page of the driver is gone with it."""
    checkpoint(tmp_path)
    leave(tmp_path, living(ended="after an error", ui_url="http://127.0.0.1:4050/"))
    lines = status(tmp_path).output.splitlines()
    assert [line for line in lines if line.startswith("page: ")] == [
        f"page: `kstream page {tmp_path}` shows its batches while no driver runs"
    ]


@pytest.mark.parametrize("sign", [{}, {"ended": "at once"}], ids=["alive", "ended"])
def test_nothing_is_waited_for_where_the_record_is_fresh_or_says_the_end(tmp_path: Path, sign: dict[str, str]) -> None:
    checkpoint(tmp_path)
    leave(tmp_path, living(**sign))
    looked(tmp_path, lambda seconds: pytest.fail("waited"))


# -- in a terminal


def test_the_command_in_a_terminal_needs_neither_pyspark_nor_pyarrow_nor_java(tmp_path: Path) -> None:
    checkpoint(tmp_path / "orders")
    leave(tmp_path / "orders", living())
    for name in ("pyspark", "pyarrow", "py4j"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not installed')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}
    command = [sys.executable, "-m", "kstream.cli", "status", str(tmp_path / "orders")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.splitlines()[1] == "well: batches succeed, and none is late"


# -- a driver with a port for metrics


def test_the_addresses_in_a_record_are_shown_and_nobody_asks_there(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as port:
        url = f"http://127.0.0.1:{port.getsockname()[1]}/metrics"
        leave(tmp_path, living(metrics_url=url, ui_url="http://127.0.0.1:4050/"))
        assert f"metrics: {url}\npage: http://127.0.0.1:4050/" in status(tmp_path).output
        port.setblocking(False)
        with pytest.raises(BlockingIOError):
            port.accept()


@pytest.mark.parametrize("end", [{"ended": "after an error"}, {"written_ms": 1000}], ids=["ended", "not renewed"])
def test_the_addresses_of_a_driver_that_lives_no_more_are_left_out(tmp_path: Path, end: dict[str, Any]) -> None:
    """Nobody answers there."""
    checkpoint(tmp_path)
    leave(tmp_path, living(metrics_url="http://127.0.0.1:4051/metrics", ui_url="http://127.0.0.1:4050/", **end))
    assert "http://" not in status(tmp_path).output


def test_record_errors_of_the_last_batches_are_told(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    recent = (BatchFigures(last_batch(), 40, 3, 500, record_errors=2), BatchFigures(last_batch(), 40, 3, 500, record_errors=1))
    leave(tmp_path, replace(living(), recent=recent))
    assert "record errors: 3 records failed and left out of the last 2 batches" in status(tmp_path).output
    assert [batch.get("record_errors") for batch in told(tmp_path)["status"]["recent"]] == [2, 1]
