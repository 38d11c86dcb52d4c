"""SIGTERM in plain Python, without a JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kstream.spark.shutdown import ShutdownHook

NO_SPARK: Any = None


@pytest.fixture(autouse=True)
def own_handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Not under spark-submit (a SparkContext of another test leaves its mark), and SIGTERM as it was afterwards."""
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_stops_gracefully_on_another_thread() -> None:
    stopped = threading.Event()
    asked: list[tuple[bool, str]] = []

    def stop(graceful: bool) -> None:
        asked.append((graceful, threading.current_thread().name))
        stopped.set()

    hook = ShutdownHook(NO_SPARK, True, stop)
    os.kill(os.getpid(), signal.SIGTERM)
    assert stopped.wait(10) and asked == [(True, "streaming-shutdown")]
    hook.remove()


def test_the_second_context_is_stopped_also_when_the_first_was_stopped_by_another_thread() -> None:
    first: list[bool] = []
    second = threading.Event()
    hook = ShutdownHook(NO_SPARK, True, first.append)
    remover = threading.Thread(target=hook.remove)
    remover.start()
    remover.join()
    other = ShutdownHook(NO_SPARK, True, lambda graceful: second.set())
    os.kill(os.getpid(), signal.SIGTERM)
    assert second.wait(10) and first == []
    other.remove()


def test_a_handler_of_the_user_is_left_alone() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: seen.append(number))
    ShutdownHook(NO_SPARK, True, lambda graceful: seen.append(-1)).remove()
    os.kill(os.getpid(), signal.SIGTERM)
    assert seen == [signal.SIGTERM]


@pytest.mark.parametrize(("removed", "status"), [(True, -signal.SIGTERM), (False, 128 + signal.SIGTERM)])
def test_without_a_graceful_stop_the_program_ends_as_by_the_signal(removed: bool, status: int) -> None:
    code = (
        "import os, signal, threading\n"
        "from kstream.spark.shutdown import ShutdownHook\n"
        "hook = ShutdownHook(None, False, lambda graceful: None)\n"
        f"{'hook.remove()' if removed else ''}\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "threading.Event().wait(30)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYSPARK_GATEWAY_PORT"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False, timeout=60).returncode == status


@pytest.mark.parametrize(("module", "kept"), [("pyspark.core.context", False), ("job", True)])
def test_ctrl_c_cancels_no_job_before_the_context_stops_and_a_handler_of_the_user_stays(module: str, kept: bool) -> None:
    """Pyspark's handler cancels all jobs and then raises: their batches would fail before a stop knows of it."""

    def handler(_number: int, _frame: object) -> None: ...

    handler.__module__ = module
    before = signal.signal(signal.SIGINT, handler)
    try:
        ShutdownHook(NO_SPARK, False, lambda graceful: None).remove()
        assert signal.getsignal(signal.SIGINT) is (handler if kept else signal.default_int_handler)
    finally:
        signal.signal(signal.SIGINT, before)
