"""Fixtures of the fast suite: one SparkContext for the tests that need a JVM, and nothing left behind by the others."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import py4j.java_gateway
import py4j.protocol
import pytest
from pyspark import SparkConf, SparkContext

from integration.class_archives import use_spark_archive
from kstream import crash_point
from kstream.context import StreamingContext
from kstream.spark.java import ensure_java
from kstream.spark.submit_args import SUBMIT_ARGS
from tests import harness

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers run whatever python3 is on PATH


def spark_conf() -> SparkConf:
    """A small local Spark: no page, workers over Unix sockets."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.streaming.gracefulStopTimeout": "60s",
    }
    return SparkConf().setMaster("local[2]").setAppName("kstream-tests").setAll(list(settings.items()))


def pytest_configure(config: pytest.Config) -> None:
    """The archive of Spark's classes is made before the processes of the suite begin, each of which starts a Spark."""
    if not config.option.collectonly:
        ensure_java()
        use_spark_archive()


@pytest.fixture(scope="session")
def sc() -> Iterator[SparkContext]:
    context = SparkContext.getOrCreate(spark_conf())
    context.setLogLevel("OFF")
    yield context
    context.stop()


@pytest.fixture
def setting(sc: SparkContext) -> Iterator[Callable[[str, str], None]]:
    """Sets a configuration key of the shared SparkContext for one test."""
    conf: Any = sc._conf
    keys: list[str] = []

    def set_one(key: str, value: str) -> None:
        keys.append(key)
        conf.set(key, value)

    yield set_one
    for key in keys:
        conf._jconf.remove(key)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Takes away crash hooks, ends engines a test left running, stops an active context (but not Spark), and sets back what a command's
    main sets for its process (loggers, the progress bar), and what a SparkSession does: errors of the JVM become pyspark's own."""
    levels = {name: logging.getLogger(name).level for name in ("root", "kstream", "kstream_kafka", "py4j")}
    submit_args = os.environ.get(SUBMIT_ARGS)
    yield
    py4j.java_gateway.get_return_value = py4j.protocol.get_return_value  # pyright: ignore
    os.environ.pop(SUBMIT_ARGS, None)
    if submit_args is not None:
        os.environ[SUBMIT_ARGS] = submit_args
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    crash_point.install(None)
    harness.stop_everything()
    active = StreamingContext.getActive()
    if active is not None:
        active.stop(stopSparkContext=False)
    forget_checkpoint_dir()


def forget_checkpoint_dir() -> None:
    """Spark has no call for this: a test must not find the checkpoint directory that another one has set."""
    sc: Any = SparkContext._active_spark_context  # pyright: ignore
    if sc is not None and sc.getCheckpointDir() is not None:
        getattr(sc._jsc.sc(), "checkpointDir_$eq")(sc._jvm.scala.Option.empty())
