"""A small JVM of a Python worker's own, of the Java and the class path that its executor runs on: there they are sure to be."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from kstream.errors import KStreamError, StorageError
from kstream.receiver.executor_process import jvm_above_this_process

logger = logging.getLogger(__name__)

_OPTIONS = ("-Xmx128m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_SPARK = "org.apache.spark."


def launch_in_worker() -> Any:
    """A py4j gateway to a new JVM; None where this process is no Python worker of Spark. Takes a second or two.

    The JVM reads its standard input and ends when that does: with this process, however it dies. If it dies itself, it takes the worker
    along. JDK_JAVA_OPTIONS of the executors' environment reaches it, as every JVM. StorageError if it does not start.
    """
    try:
        _pid, command = jvm_above_this_process()
    except KStreamError:
        return None
    if not any(word.startswith(_SPARK) for word in command):  # some other Java has started a driver or a tool
        return None
    process = _started(
        [command[0], *_OPTIONS, "-cp", class_path_of(command), "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
    )
    port, token = _told(process)
    return _gateway(port, token, process)


def class_path_of(command: Sequence[str]) -> str:
    """Of an executor's command line; where that has none, Java goes by CLASSPATH, which workers inherit (YARN does so)."""
    for option, value in itertools.pairwise(command):
        if option in ("-cp", "-classpath", "--class-path"):
            return value
    return os.environ.get("CLASSPATH", "")


def _started(command: list[str]) -> subprocess.Popen[str]:
    environment = dict(os.environ)
    if "SPARK_USER" in environment:  # in whose name executors speak to HDFS where nobody asks for a ticket
        environment.setdefault("HADOOP_USER_NAME", environment["SPARK_USER"])
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
        )
    except OSError as e:
        raise _not_started(f"{command[0]}: {e.strerror}") from e


def _told(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The gateway's port and token, which are its first words but for warnings of Java's."""
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        if line.strip().isdigit():
            token = process.stdout.readline().strip()
            threading.Thread(target=_follow, args=(process,), name="HadoopJVM", daemon=True).start()
            return int(line), token
        said.append(line.strip())
    raise _not_started(f"Java ended with {process.wait()}: {' | '.join(said[-3:])}")


def _follow(process: subprocess.Popen[str]) -> None:
    """To its end. Without its JVM a worker would fail for ever; Spark tries a task whose worker has ended in a new one."""
    assert process.stdout is not None and process.stdin is not None
    for line in process.stdout:
        logger.warning("the JVM for Hadoop says: %s", line.rstrip())
    code = process.wait()
    if not process.stdin.closed:  # by which it is told to end
        logger.error("the JVM for Hadoop has ended with %d, and so does this worker: is there enough memory?", code)
        os._exit(1)


def _gateway(port: int, token: str, process: subprocess.Popen[str]) -> Any:
    from py4j.java_gateway import GatewayParameters, JavaGateway

    gateway: Any = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    gateway.proc = process
    return gateway


def _not_started(reason: str) -> StorageError:
    return StorageError(
        f"no JVM for Hadoop could be started by the Python worker {os.getpid()} on {socket.gethostname()}: {reason}. It is one of the "
        "executor's Java and class path: see that they can be run there, with 200 MB of memory for it beside the executor's",
        path="",
    )  # fmt: skip
