"""Which messages of Spark about failed tasks are left out of its log, and which become one line."""

from __future__ import annotations

import re

import pytest

from kstream.spark import jvm_log

TASK = "Lost task 0.0 in stage 3.0 (TID 7) (127.0.0.1 executor 2): "
TRACE = 'Traceback (most recent call last):\n  File "job.py", line 3, in f\n    import x\n'
PYTHON = f"{TASK}org.apache.spark.api.python.PythonException: {TRACE}{{}}\n\n\tat org.apache.spark.api.python.BasePythonRunner\n"
IMPORT = PYTHON.format("ModuleNotFoundError: No module named 'x'")
VALUE = PYTHON.format("ValueError: bad")
JVM = f"{TASK}org.apache.spark.SparkException: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_6_0 not found!\nEither\n\tat org\n"


def is_left_out(message: str, local: bool) -> bool:
    return re.fullmatch(jvm_log.repeated(local), message) is not None


def shortened(message: str) -> str:
    return re.sub(jvm_log._SHORT.replace(r"\z", r"\Z"), r"\1\2", message)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("local", [True, False])
def test_what_python_raised_is_said_by_the_error_of_the_job(local: bool) -> None:
    assert is_left_out(VALUE, local) and is_left_out("Task 0 in stage 3.0 failed 4 times; aborting job", local)
    assert not is_left_out(JVM, local)


@pytest.mark.parametrize("local", [True, False])
def test_blocks_of_a_lost_executor_and_messages_to_it_are_left_out_and_the_loss_itself_stays(local: bool) -> None:
    """An executor with the state of a job in its memory brought a line for each block."""
    for message in (
        "No more replicas available for rdd_61_0!",
        "Error trying to remove broadcast 40 from block manager BlockManagerId(2, 127.0.0.2, 34521, None)",
        "Failed to send RPC RPC 8532151947422423749 to /127.0.0.1:57618",
    ):
        assert is_left_out(message, local), message
    assert not is_left_out("Lost executor 2 on 127.0.0.2: Command exited with code 137", local)


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize(
    "raised", ["[PYTHON_EXCEPTION] An exception was thrown from the Python worker: ", ""], ids=["Spark 4", "Spark 3.5"]
)
def test_a_block_whose_task_has_failed_brings_no_line(local: bool, raised: str) -> None:
    """The state of a job is such a block. Each of them brought the traceback of the worker, with the pickled exception."""
    of_worker = f'org.apache.spark.api.python.PythonException: {raised}{TRACE}ValueError: bad\nkstream-failure: {{"pickled": "gAS"}}\n'
    for message in (
        f"Putting block rdd_16_0 failed due to exception {of_worker} SQLSTATE: 38000.",
        "Block rdd_16_0 could not be removed as it was not found on disk or in memory",
        f"{TASK}TaskKilled (Stage cancelled: Job aborted due to stage failure: {of_worker})",
        f"{TASK}TaskKilled (Stage cancelled: {raised or 'org.apache.spark.api.python.PythonException: '}{TRACE}ValueError: bad)",
    ):
        assert is_left_out(message, local), message
    assert not is_left_out("Block rdd_16_0 could not be removed due to a full disk", local)
    assert not is_left_out(f"{TASK}TaskKilled (another attempt succeeded)", local)


def test_a_failed_import_is_told_at_the_first_of_four_tries_and_not_where_there_is_one_try_only() -> None:
    assert not is_left_out(IMPORT, local=False) and is_left_out(IMPORT, local=True)


def test_a_lost_task_is_one_line_with_its_executor_and_the_reason() -> None:
    assert shortened(IMPORT) == f"{TASK}ModuleNotFoundError: No module named 'x'"
    assert shortened(JVM) == JVM.partition("\n")[0]
    on_one_line = f"{TASK}ExecutorLostFailure (executor 1 exited)"
    assert not re.fullmatch(jvm_log._LONG, on_one_line)  # pyright: ignore[reportPrivateUsage]
