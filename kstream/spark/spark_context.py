"""Making a SparkContext the way kstream wants it, where kstream is the one that makes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.cloudpickle import dumps as cloudpickle_dumps
from pyspark.cloudpickle import loads as cloudpickle_loads

UNIX_SOCKET = "spark.python.unix.domain.socket.enabled"


def spark_version() -> tuple[int, int]:
    """pyspark's major and minor version."""
    major, minor = pyspark.__version__.split(".")[:2]
    return int(major), int(minor)


def make_spark_context(conf: SparkConf) -> SparkContext:
    """A new SparkContext of `conf`, on a Java that is found or brought; workers over Unix sockets (Spark ≥ 4.1).

    The sockets cut the cost of a Python task to a half or less; a value in `conf` wins. On a local master the workers run the
    Python of the driver, so that they find what it has installed (pyspark's default is whatever `python3` is on PATH).
    """
    if SparkContext._active_spark_context is None:  # pyright: ignore
        from kstream.spark.java import ensure_java

        ensure_java()
    if spark_version() >= (4, 1) and not conf.contains(UNIX_SOCKET):
        conf = conf.set(UNIX_SOCKET, "true")
    if (conf.get("spark.master") or "local").startswith("local") and not conf.contains("spark.pyspark.python"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkContext(conf=conf)


def default_conf() -> SparkConf:
    """The settings of the running SparkContext, else those that a new one would be given as far as they are known by now."""
    existing = SparkContext._active_spark_context  # pyright: ignore
    return SparkConf() if existing is None else existing.getConf()


def restored_conf(stored: Mapping[str, str]) -> SparkConf:
    """The settings of a SparkContext that is to go on from `stored`; for a process that has none yet. Starts the JVM.

    What this process was given (spark-submit's --master and --conf, spark-defaults.conf) wins over what is stored, with the exception
    of the application's name, which spark-submit makes up where it is not told.
    """
    from kstream.spark.java import ensure_java

    ensure_java()
    at_launch = SparkConf(loadDefaults=False)  # what a JVM is given at its launch is a default of every later context in this process
    if "spark.driver.memory" in stored:
        at_launch.set("spark.driver.memory", stored["spark.driver.memory"])
    SparkContext._ensure_initialized(conf=at_launch)  # pyright: ignore – a JVM of spark-submit is there already and keeps its own
    conf = SparkConf()
    for key, value in stored.items():
        conf.setIfMissing(key, value)
    if "spark.app.name" in stored:
        conf.setAppName(stored["spark.app.name"])
    return conf


def dump_functions(functions: list[object]) -> bytes:
    """The user's functions, pickled together so that what they share stays shared."""
    return cloudpickle_dumps(functions)


def load_functions(data: bytes) -> list[object]:
    return cloudpickle_loads(data)
