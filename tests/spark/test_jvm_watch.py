"""The end of Spark's JVM, with a socket and a small program in its place."""

from __future__ import annotations

import queue
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from kstream.batch_time import Duration, Time
from kstream.errors import JvmLostError
from kstream.spark.job_environment import SparkJobEnvironment
from kstream.spark.jvm_watch import JvmWatch

SERVER = "import socket\ns = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\nc, _ = s.accept(); {then}"
PATIENCE = 30


class Told(queue.Queue[JvmLostError]):
    """What a watch has told."""

    def one(self) -> JvmLostError:
        return self.get(timeout=PATIENCE)


@pytest.fixture
def jvm() -> Iterator[Callable[[str], tuple[subprocess.Popen[str], tuple[str, int]]]]:
    """Programs in place of a JVM: they accept a connection, and then do as they are told."""
    started: list[subprocess.Popen[str]] = []

    def start(then: str) -> tuple[subprocess.Popen[str], tuple[str, int]]:
        process = subprocess.Popen([sys.executable, "-S", "-c", SERVER.format(then=then)], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, ("127.0.0.1", int(process.stdout.readline()))

    yield start
    for process in started:
        process.kill()
        process.communicate()


Start = Callable[[str], tuple[subprocess.Popen[str], tuple[str, int]]]
KILLS_ITSELF = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def test_the_end_of_the_jvm_is_told_once_with_the_signal_that_killed_it(jvm: Start) -> None:
    process, address = jvm(KILLS_ITSELF)
    told = Told()
    watch = JvmWatch(address, process, told.put)
    watch.start()
    error: Any = told.one()
    assert (error.pid, error.status) == (process.pid, -signal.SIGKILL) and watch.has_ended()
    assert str(error).startswith(f"Spark's JVM (process {process.pid}) has ended, killed by SIGKILL: this driver can run nothing more.")
    watch.stop()
    assert told.empty()


def test_a_jvm_that_exits_is_told_with_its_exit_code(jvm: Start) -> None:
    process, address = jvm("raise SystemExit(3)")
    told = Told()
    JvmWatch(address, process, told.put).start()
    assert "has ended with exit code 3: " in str(told.one())


def test_the_jvm_of_spark_submit_is_no_child_and_its_end_is_told_nevertheless(jvm: Start) -> None:
    _, address = jvm(KILLS_ITSELF)
    told = Told()
    JvmWatch(address, None, told.put).start()
    error: Any = told.one()
    assert (error.pid, error.status) == (None, None) and str(error).startswith("Spark's JVM has ended: ")


def test_after_the_stop_the_end_of_the_jvm_is_no_error() -> None:
    told = Told()
    with socket.create_server(("127.0.0.1", 0)) as server:
        watch = JvmWatch(server.getsockname()[:2], None, told.put)
        watch.start()
        connection, _ = server.accept()
        watch.stop()
        with connection:
            connection.settimeout(PATIENCE)
            assert connection.recv(1) == b"", "the watch has closed its connection, and has never sent a byte"
    watch.stop()
    assert told.empty() and not watch.has_ended()


def test_a_jvm_that_has_ended_before_the_start_is_an_error_of_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()[:2]
    watch = JvmWatch(address, None, Told().put)
    with pytest.raises(JvmLostError):
        watch.start()
    assert watch.has_ended()
    watch.stop()


class EndedJvm:
    """In place of a watch whose JVM has ended, or not."""

    def __init__(self, ended: bool) -> None:
        self.ended = ended
        self.waited: list[float] = []

    def has_ended(self, wait_s: float = 0) -> bool:
        self.waited.append(wait_s)
        return self.ended

    def error(self) -> JvmLostError:
        return JvmLostError("gone", pid=1, status=-9)


def generate(environment: SparkJobEnvironment, jobs: Callable[[], object]) -> None:
    """Generate a batch's jobs in a thread that ends: what Spark has set for the thread must not outlast the test."""

    def in_environment() -> None:
        with environment.for_generation(Time(1000)):
            jobs()

    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(in_environment).result()


def raising(error: Exception) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


@pytest.mark.parametrize(
    "error", [Py4JError("An error occurred while calling o31.foo"), EOFError(), ConnectionResetError(), ValueError("any")]
)
def test_an_error_of_a_job_whose_jvm_has_ended_names_that(sc: SparkContext, error: Exception) -> None:
    jvm: Any = EndedJvm(ended=True)
    environment = SparkJobEnvironment(sc, Duration(1000), jvm)
    with pytest.raises(JvmLostError) as raised:
        generate(environment, raising(error))
    assert raised.value.__cause__ is error


def test_an_error_of_a_job_whose_jvm_lives_is_its_own_and_only_one_of_a_connection_waits(sc: SparkContext) -> None:
    jvm: Any = EndedJvm(ended=False)
    environment = SparkJobEnvironment(sc, Duration(1000), jvm)
    for error in (ValueError("any"), ConnectionRefusedError("a database")):
        with pytest.raises(type(error)):
            generate(environment, raising(error))
    assert jvm.waited[0] == 0 and 0 < jvm.waited[1] < 1
    with pytest.raises(Py4JJavaError):
        generate(environment, lambda: sc._jvm.java.lang.Integer.parseInt("x"))  # pyright: ignore
    assert jvm.waited[2] == 0


def test_the_watch_of_a_spark_context_sees_its_jvm_live(sc: SparkContext) -> None:
    told = Told()
    watch = JvmWatch.of(sc, told.put)
    watch.start()
    assert sc.parallelize([1, 2], 1).sum() == 3 and not watch.has_ended()
    watch.stop()
    assert told.empty()
