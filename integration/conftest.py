"""Fixtures of the integration suite: a real Kafka broker and a local SparkContext, each started once."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from integration.kafka_broker import BrokerError, KafkaBroker, running_broker
from integration.kafka_jars import JarsMissingError
from kstream.errors import JavaNotFoundError
from kstream.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark import SparkContext

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def pytest_configure(config: pytest.Config) -> None:
    """JAVA_HOME before anything starts Spark, the tests' own processes included; the run ends in one line without a Java."""
    try:
        ensure_java()
    except JavaNotFoundError as e:
        raise pytest.UsageError(str(e)) from None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--broker", choices=["process"], default="process", help="how the Kafka broker is started")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker; it is a failure, in one line, if it cannot be had."""
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(running_broker(tmp_path_factory.mktemp("kafka")))
        except (BrokerError, JarsMissingError, JavaNotFoundError) as e:
            pytest.fail(f"no Kafka broker: {e}", pytrace=False)
        yield broker


@pytest.fixture
def topic(kafka: KafkaBroker) -> Callable[..., str]:
    """Makes a topic nobody else uses: `topic(partitions, config)` returns its name."""

    def make(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = f"t-{uuid.uuid4().hex[:10]}"
        kafka.create_topic(name, partitions, config)
        return name

    return make


@pytest.fixture(scope="session")
def sc() -> Iterator[SparkContext]:
    """A SparkContext as kstream makes it, on two cores."""
    from pyspark import SparkConf

    from kstream.spark.spark_context import make_spark_context

    conf = SparkConf().setMaster("local[2]").setAppName("integration").set("spark.ui.enabled", "false")
    conf = conf.set("spark.driver.host", "127.0.0.1").set("spark.ui.showConsoleProgress", "false")
    context = make_spark_context(conf)
    context.setLogLevel("ERROR")
    yield context
    context.stop()
