"""The JVM that Python code here talks to: Spark's where there is one, else a small one of our own, in a driver as in a worker."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

from kstream.errors import MissingDependencyError, StorageError
from kstream.spark.worker_java import launch_in_worker

_lock = threading.Lock()
_own: Any = None


def java_view() -> Any:
    """py4j's view of the JVM. The first call without Spark starts one, which takes seconds; it ends with this process.

    A JVM of our own, not one that Spark would then use: a driver reads its checkpoint before `setup` says with which memory and
    which packages Spark's is to start. Under spark-submit Spark's is there already. As soon as there is one, ours is let go.
    """
    global _own
    try:
        from pyspark import SparkContext
    except ImportError as e:
        raise MissingDependencyError(
            "Hadoop's file systems are reached through pyspark's JVM: pip install 'kstream-spark[spark]'",
            package="pyspark", install="kstream-spark[spark]",
        ) from e  # fmt: skip
    with _lock:
        if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:  # pyright: ignore
            SparkContext._ensure_initialized()  # pyright: ignore
            if _own is not None:
                _end(_own)
                _own = None
            return SparkContext._jvm  # pyright: ignore
        if _own is None:
            _own = launch_in_worker() or _launch()
        return _own.jvm


def hadoop_configuration(jvm: Any, settings: Mapping[str, str] | None = None) -> Any:
    """A new Hadoop Configuration: the running SparkContext's, else what HADOOP_CONF_DIR and spark-defaults.conf say.

    With a driver's `settings` what HADOOP_CONF_DIR says, and they before it.
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
    from pyspark.java_gateway import launch_gateway

    from kstream.spark.java import ensure_java

    ensure_java()
    with tempfile.TemporaryFile() as said:  # Spark's launcher greets on standard error, which is ours
        try:
            return launch_gateway(popen_kwargs={"stderr": said, "stdout": said})
        except Exception as e:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
            raise StorageError(f"no JVM for Hadoop could be started: {lines[-1] if lines else e}", path="") from e


def _end(gateway: Any) -> None:
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None and process.stdin is not None:
        process.stdin.close()  # what the JVM waits for
        process.wait(30)
