"""The JVM that this process calls by py4j: Spark's if there is one, else a small one of our own, in a driver as in a worker.

In a driver, Spark's launcher starts our own JVM. In a Python worker, our own JVM runs on the Java and the class path of the worker's
executor, because those exist on that machine.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from kstream.errors import KStreamError, MissingDependencyError, StorageError
from kstream.receiver.executor_process import jvm_above_this_process

_lock = threading.Lock()
_own: Any = None


def java_view() -> Any:
    """Return py4j's view of the JVM. Any thread. The first call without Spark starts a JVM, which takes seconds and ends with this process.

    Our own JVM is not the one that Spark will use. A driver reads its checkpoint before `setup` sets the memory and the packages of Spark's
    JVM. Under spark-submit Spark's JVM exists already. The first call after Spark has a JVM ends our own.

    Raises:
        MissingDependencyError: pyspark is not installed.
        JavaNotFoundError: a driver has no Java to start a JVM with.
        StorageError: no JVM could be started.
    """
    global _own
    try:
        from pyspark import SparkContext
    except ImportError as e:
        raise MissingDependencyError(
            "Hadoop's file systems are reached through pyspark's JVM: pip install 'kstream-spark[spark]'",
            package="pyspark",
            install="kstream-spark[spark]",
        ) from e
    from kstream.spark.java import under_spark_submit

    with _lock:
        if SparkContext._gateway is not None or under_spark_submit():  # pyright: ignore
            SparkContext._ensure_initialized()  # pyright: ignore
            if _own is not None:
                _end(_own)
                _own = None
            return SparkContext._jvm  # pyright: ignore
        if _own is None:
            _own = launch_in_worker() or _launch()
        return _own.jvm


def hadoop_configuration(jvm: Any, settings: Mapping[str, str] | None = None) -> Any:
    """Make a Hadoop Configuration.

    Args:
        jvm: py4j's view of the JVM.
        settings: the driver's settings of Hadoop; they win over HADOOP_CONF_DIR. None takes the configuration of the running SparkContext;
            without one, that of HADOOP_CONF_DIR and spark-defaults.conf.

    Returns:
        A new Configuration of the JVM, which the caller may change.
    """
    from pyspark import SparkContext

    if settings is not None:
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        for key, value in settings.items():
            configuration.set(key, value)
        return configuration
    context = SparkContext._active_spark_context  # pyright: ignore
    if context is not None and context._jsc is not None:  # pyright: ignore
        return jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())  # pyright: ignore
    return jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(jvm.org.apache.spark.SparkConf())


def _launch() -> Any:
    """Start a JVM by Spark's launcher, and return py4j's gateway to it. Raises JavaNotFoundError, StorageError."""
    from pyspark.java_gateway import launch_gateway

    from kstream.spark.java import ensure_java

    ensure_java()
    with tempfile.TemporaryFile() as said:  # Spark's launcher prints a greeting to the standard error of this process
        try:
            return launch_gateway(popen_kwargs={"stderr": said, "stdout": said})
        except Exception as e:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
            raise StorageError(f"no JVM for Hadoop could be started: {lines[-1] if lines else e}", path="") from e


def _end(gateway: Any) -> None:
    """End a JVM of our own. Blocks for 30 s at most."""
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None and process.stdin is not None:
        process.stdin.close()  # the JVM ends when its standard input does
        process.wait(30)


logger = logging.getLogger(__name__)

_OPTIONS = ("-Xmx128m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_SPARK = "org.apache.spark."


def launch_in_worker() -> Any:
    """Start a JVM for this Python worker. Blocks for a second or two.

    The JVM ends when its standard input does, so it ends with this process, however this process dies. If the JVM dies, the worker ends,
    too. The JVM reads JDK_JAVA_OPTIONS from the environment of the executors, like every JVM.

    Returns:
        A py4j gateway; None if this process is no Python worker of Spark.

    Raises:
        StorageError: the JVM did not start.
    """
    try:
        _pid, command = jvm_above_this_process()
    except KStreamError:
        return None
    if not any(word.startswith(_SPARK) for word in command):  # another Java program has started this driver or tool
        return None
    process = _started(
        [command[0], *_OPTIONS, "-cp", class_path_of(command), "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
    )
    port, token = _port_and_token(process)
    return _gateway(port, token, process)


def class_path_of(command: Sequence[str]) -> str:
    """Return the class path of an executor's command line; if it has none, CLASSPATH, which workers inherit (on YARN)."""
    for option, value in itertools.pairwise(command):
        if option in ("-cp", "-classpath", "--class-path"):
            return value
    return os.environ.get("CLASSPATH", "")


def _started(command: list[str]) -> subprocess.Popen[str]:
    """Start a JVM with pipes for its standard input and output. Hadoop's client in it has the user of the executors (SPARK_USER).

    Raises StorageError if the program cannot be run.
    """
    environment = dict(os.environ)
    if "SPARK_USER" in environment:  # the user of executors on an HDFS without Kerberos
        environment.setdefault("HADOOP_USER_NAME", environment["SPARK_USER"])
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
        )
    except OSError as e:
        raise _not_started(f"{command[0]}: {e.strerror}") from e


def _port_and_token(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Read port and token, the first lines that the gateway prints. Warnings of Java may come before them. Starts the thread of `_follow`.

    Blocks until the lines come. Raises StorageError if the JVM ends before.
    """
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
    """Log the JVM's output until the JVM ends, and then end this worker process. Runs on the thread HadoopJVM.

    Without its JVM the worker would fail every task; Spark starts a new worker. If `_end` has ended the JVM, the process continues.
    """
    assert process.stdout is not None and process.stdin is not None
    for line in process.stdout:
        logger.warning("the JVM for Hadoop says: %s", line.rstrip())
    code = process.wait()
    if not process.stdin.closed:  # a closed one means that `_end` has ended the JVM
        logger.error("the JVM for Hadoop has ended with %d, so this worker ends, too: is there enough memory?", code)
        os._exit(1)


def _gateway(port: int, token: str, process: subprocess.Popen[str]) -> Any:
    """Return py4j's gateway to the JVM; its attribute `proc` is the process."""
    from py4j.java_gateway import GatewayParameters, JavaGateway

    gateway: Any = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    gateway.proc = process
    return gateway


def _not_started(reason: str) -> StorageError:
    """Return the error for a JVM that a worker could not start."""
    return StorageError(
        f"no JVM for Hadoop could be started by the Python worker {os.getpid()} on {socket.gethostname()}: {reason}. It is one of the "
        "executor's Java and class path: see that they can be run there, with 200 MB of memory for it beside the executor's",
        path="",
    )
