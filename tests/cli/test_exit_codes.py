"""The exit codes of the commands: each has one meaning, and the pages say the same."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka import ConsumerStrategies, KafkaUtils, LocationStrategies
from kstream_kafka.errors import (
    AuthenticationFailedError,
    BrokerUnreachableError,
    KafkaError,
    LeaderNotAvailableError,
    NotAuthorizedError,
    TlsFailedError,
    UnknownTopicError,
)

from kstream import StateSpec
from kstream.batch import BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog
from kstream.checkpoint.reader import write_meta
from kstream.cli.driver import RunEnd, _has_run, end_of
from kstream.cli.exit_codes import ReadingCode, RunCode
from kstream.dstream.node import check_same_slide
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
from kstream.storage import LocalFileStore

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


REFUSALS: list[KafkaError] = [
    TlsFailedError("k:9092", "SSL", "", "the listener speaks plain text", "Set security.protocol=PLAINTEXT."),
    AuthenticationFailedError("k:9092", "SASL_SSL", "PLAIN", "invalid credentials", "Check sasl.password."),
    NotAuthorizedError("k:9092", "DESCRIBE", "topic", "orders", "Topic authorization failed"),
    UnknownTopicError(["orders"], 3, 3000),
]


@pytest.mark.parametrize("error", REFUSALS)
def test_what_brokers_refuse_to_a_job_that_never_ran_is_final(error: KafkaError) -> None:
    assert end_of(error, started=False, jvm_ended=False).code is RunCode.CONFIGURATION
    assert end_of(pickle.loads(pickle.dumps(error)), started=False, jvm_ended=False).code is RunCode.CONFIGURATION


@pytest.mark.parametrize("error", REFUSALS)
def test_what_brokers_refuse_to_a_job_that_ran_may_pass_and_is_tried_again(error: KafkaError) -> None:
    """While secrets are replaced, and while a cluster starts."""
    assert end_of(error, started=False, jvm_ended=False, has_run=lambda: True).code is RunCode.FAILED
    assert end_of(error, started=True, jvm_ended=False).code is RunCode.FAILED_BATCH


def test_a_job_has_run_if_its_checkpoint_has_a_plan_or_if_nobody_can_tell(tmp_path: Path) -> None:
    """Also if a new supervisor starts it: a machine may be started again while a password is replaced."""
    assert not _has_run(str(tmp_path))
    store = LocalFileStore(tmp_path)
    write_meta(store, Meta(Time(0), Duration(1000)))
    assert not _has_run(str(tmp_path))
    PlanLog(store, 1).write_plan(BatchPlan(Time(1000), 1, "n", {}, {}, Time(0)))
    assert _has_run(str(tmp_path))
    assert _has_run("no-such-scheme://x")


@pytest.mark.parametrize(
    "error",
    [
        BrokerUnreachableError("k:9092", 15_000, "Failed to resolve 'k:9092'"),
        LeaderNotAvailableError({("orders", 0): "no leader"}, 1),
        AuthenticationFailedError("k:9092", "SASL_SSL", "OAUTHBEARER", "oauth_cb gave no token: OSError: away", "It has to return it."),
    ],
)
def test_a_broker_or_a_server_of_tokens_that_is_away_is_tried_again(error: KafkaError) -> None:
    assert end_of(error, started=False, jvm_ended=False).code is RunCode.FAILED


NO_CONTEXT: Any = None


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: KafkaUtils.createDirectStream(NO_CONTEXT, "orders", {}), "topics should be list, it is 'orders'. Give a list of names"),
        (lambda: KafkaUtils.createDirectStream(NO_CONTEXT, ["orders"], "k:9092"), "kafkaParams should be dict"),
        (lambda: ConsumerStrategies.Subscribe("orders", {}), "topics should be a collection of names, it is 'orders'"),
        (lambda: KafkaUtils.createDirectStream(NO_CONTEXT, LocationStrategies.PreferConsistent, {}), "after a LocationStrategy comes"),
        (lambda: KafkaUtils.createRDD(NO_CONTEXT, {}, ["orders"]), "offsetRanges should be list of OffsetRange"),
        (lambda: StateSpec.function(lambda key, value, state: None).numPartitions(0), "a state needs one partition or more"),
        (lambda: StateSpec.function(lambda key, value, state: None).timeout(0), "the timeout of a state must be above zero"),
        (lambda: check_same_slide([]), "needs at least one stream"),
    ],
)
def test_an_argument_of_a_wrong_type_or_value_in_setup_is_final(call: Callable[[], Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    end = end_of(caught.value, started=False, jvm_ended=False, has_run=lambda: True)
    assert end.code is RunCode.CONFIGURATION and said in end.reason and __file__ in end.reason


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
    assert end_of(lost, started=True, jvm_ended=False) == RunEnd(RunCode.LOST_JVM, "Spark's JVM (process 5) has ended")


def test_ctrl_c_is_an_interruption_and_a_job_that_exits_is_taken_at_its_word() -> None:
    assert end_of(KeyboardInterrupt(), started=True, jvm_ended=False) == RunEnd(RunCode.INTERRUPTED)
    assert end_of(SystemExit(0), started=False, jvm_ended=False) == RunEnd(RunCode.ENDED)
    assert end_of(SystemExit(5), started=False, jvm_ended=False) == RunEnd(RunCode.FAILED, "the job called sys.exit(5)")


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
