"""Making a SparkContext the way kstream wants it, where kstream is the one that makes it."""

from __future__ import annotations

import os
import sys

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


def dump_functions(functions: list[object]) -> bytes:
    """The user's functions, pickled together so that what they share stays shared."""
    return cloudpickle_dumps(functions)


def load_functions(data: bytes) -> list[object]:
    return cloudpickle_loads(data)
