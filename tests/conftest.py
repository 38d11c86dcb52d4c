"""Fixtures of the fast suite: one SparkContext for the tests that need a JVM, and nothing left behind by the others."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark import SparkConf, SparkContext

from kstream import crash_point
from kstream.context import StreamingContext
from tests import harness

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def spark_conf() -> SparkConf:
    """A small local Spark: no page, workers over Unix sockets."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
    }
    return SparkConf().setMaster("local[2]").setAppName("kstream-tests").setAll(list(settings.items()))


@pytest.fixture(scope="session")
def sc() -> Iterator[SparkContext]:
    context = SparkContext.getOrCreate(spark_conf())
    context.setLogLevel("OFF")
    yield context
    context.stop()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Takes away crash hooks, ends engines a test left running, and stops an active context (but not Spark)."""
    yield
    crash_point.install(None)
    harness.stop_everything()
    active = StreamingContext.getActive()
    if active is not None:
        active.stop(stopSparkContext=False)
