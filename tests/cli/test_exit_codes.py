"""The exit codes of the commands: each has one meaning, and the pages say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kstream.cli.driver import End, end_of
from kstream.cli.exit_codes import ReadingCode, RunCode
from kstream.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptRecordError,
    FencedError,
    IntervalChangedError,
    JavaNotFoundError,
    JvmLostError,
    MissingDependencyError,
    NotSerializableError,
    StorageError,
    StreamVanishedError,
    TopicsChangedError,
    UnsupportedStoreError,
    WindowChangedError,
    add_note,
)
from kstream.public_call import refused

PAGE = Path(__file__).parent.parent.parent / "docs" / "deployment.md"
MONITORING = PAGE.with_name("monitoring.md")


def test_each_code_has_one_meaning_and_only_those_that_a_restart_can_heal_are_not_final() -> None:
    assert len({code.meaning for code in RunCode}) == len(RunCode)
    assert {code for code in RunCode if not code.final} == {RunCode.FAILED, RunCode.FAILED_BATCH, RunCode.LOST_JVM, RunCode.KILLED}


def test_the_page_has_the_table_of_the_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|[^|]*\| (yes|no) \|$", PAGE.read_text(), re.MULTILINE)
    assert [(int(number), name.strip(), again) for number, name, again in rows] == [
        (code.value, code.name.lower().replace("_", " "), "no" if code.final else "yes") for code in RunCode
    ]


def test_the_page_has_the_codes_of_the_commands_that_read() -> None:
    section = MONITORING.read_text().partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \|", section, re.MULTILINE)
    assert [int(number) for number in rows] == list(ReadingCode)


@pytest.mark.parametrize(
    ("status", "code"),
    [(0, RunCode.ENDED), (5, RunCode.FENCED), (143, RunCode.TERMINATED), (-9, RunCode.KILLED), (-15, RunCode.KILLED), (77, RunCode.FAILED)],
)
def test_a_status_of_a_process_has_a_meaning(status: int, code: RunCode) -> None:
    assert RunCode.of_status(status) is code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("it is wrong", key="k"), RunCode.CONFIGURATION),
        (MissingDependencyError("it is not there"), RunCode.CONFIGURATION),
        (JavaNotFoundError("no Java"), RunCode.CONFIGURATION),
        (NotSerializableError("a lock"), RunCode.CONFIGURATION),
        (UnsupportedStoreError("no create-if-absent", path="p"), RunCode.CONFIGURATION),
        (ModuleNotFoundError("No module named 'x'", name="x"), RunCode.IMPORT),
        (ImportError("cannot import name 'y'"), RunCode.IMPORT),
        (SyntaxError("invalid syntax"), RunCode.IMPORT),
        (IntervalChangedError("1 s was 2 s", stored_ms=2000, given_ms=1000), RunCode.REFUSED),
        (WindowChangedError("3 s was 5 s", path="p", stored_ms=5000, given_ms=3000, streams=["s0"]), RunCode.REFUSED),
        (StreamVanishedError("it has gone", path="p", streams=[]), RunCode.REFUSED),
        (TopicsChangedError("others", path="p", streams=[]), RunCode.REFUSED),
        (CorruptRecordError("a byte", path="p", reason="r"), RunCode.REFUSED),
        (CheckpointError("another", path="p"), RunCode.REFUSED),
        (FencedError("another driver", path="p", epoch=1, newer_epoch=2), RunCode.FENCED),
        (StorageError("the store is away", path="p"), RunCode.FAILED),
        (KeyError("DB_URL"), RunCode.FAILED),
    ],
)
def test_an_error_before_the_context_has_started_has_its_code(error: Exception, code: RunCode) -> None:
    end = end_of(error, started=False, jvm_ended=False)
    assert end.code is code and "\n" not in end.reason and end.reason


@pytest.mark.parametrize(
    "error", [ValueError("no JSON"), ConfigurationError("raised by a job"), StorageError("away for too long", path="p")]
)
def test_an_error_of_the_streams_is_a_failed_batch_that_a_restart_runs_again(error: Exception) -> None:
    assert end_of(error, started=True, jvm_ended=False).code is RunCode.FAILED_BATCH


def test_a_fenced_driver_is_fenced_also_if_its_jvm_has_ended() -> None:
    fenced = FencedError("another driver", path="p", epoch=1, newer_epoch=2)
    assert end_of(fenced, started=True, jvm_ended=False).code is RunCode.FENCED
    assert end_of(fenced, started=True, jvm_ended=True).code is RunCode.FENCED


@pytest.mark.parametrize("started", [False, True])
def test_whatever_fails_without_the_jvm_is_put_down_to_the_jvm(started: bool) -> None:
    end = end_of(ConnectionRefusedError("py4j"), started, jvm_ended=True)
    assert end.code is RunCode.LOST_JVM and "Spark's JVM has ended" in end.reason and "ConnectionRefusedError: py4j" in end.reason


def test_an_error_that_names_the_lost_jvm_is_the_reason_itself() -> None:
    lost = JvmLostError("Spark's JVM (process 5) has ended", pid=5, status=-9)
    assert end_of(lost, started=True, jvm_ended=False) == End(RunCode.LOST_JVM, "Spark's JVM (process 5) has ended")


def test_ctrl_c_is_an_interruption_and_a_job_that_exits_is_taken_at_its_word() -> None:
    assert end_of(KeyboardInterrupt(), started=True, jvm_ended=False) == End(RunCode.INTERRUPTED)
    assert end_of(SystemExit(0), started=False, jvm_ended=False) == End(RunCode.ENDED)
    assert end_of(SystemExit(5), started=False, jvm_ended=False) == End(RunCode.FAILED, "the job called sys.exit(5)")


def test_the_reason_has_the_place_in_the_streams_or_in_the_code_of_the_user() -> None:
    try:
        raise ValueError("no JSON")
    except ValueError as e:
        assert end_of(e, started=False, jvm_ended=False).reason.startswith(f"ValueError: no JSON ({__file__}, line ")
        add_note(e, "in output operation 0, foreachRDD, of batch 1000 ms")
        assert (
            end_of(e, started=True, jvm_ended=False).reason == "ValueError: no JSON (in output operation 0, foreachRDD, of batch 1000 ms)"
        )


def test_an_error_of_setup_has_the_traceback_of_the_users_code() -> None:
    def connect(depth: int) -> None:
        if depth:
            connect(depth - 1)
        raise KeyError("DB_URL")

    try:
        connect(5)
    except KeyError as e:
        lines = end_of(e, started=False, jvm_ended=False).traceback.splitlines()
        assert end_of(e, started=True, jvm_ended=False).traceback == "", "the error of a batch has been logged"
    assert lines[0] == "Traceback (most recent call last):" and lines[1] == "  … 4 more" and lines[-1] == "KeyError: 'DB_URL'"
    assert [line.rpartition(" in ")[2] for line in lines if line.startswith("  File")] == ["connect"] * 3 and len(lines) <= 12


def test_an_error_of_kstream_itself_and_a_refused_argument_are_one_line_with_the_users_line() -> None:
    for error in (ConfigurationError("it is wrong", key="k"), refused(TypeError("f must be a function"))):
        try:
            raise error
        except (ConfigurationError, TypeError) as e:
            end = end_of(e, started=False, jvm_ended=False)
        assert end.code is RunCode.CONFIGURATION and end.traceback == "" and f"({__file__}, line " in end.reason
