"""Fixtures of the integration suite: a real Kafka broker and a local SparkContext, each started once."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from integration.kafka_broker import KafkaBroker, running_broker
from kstream.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark import SparkContext

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--broker", choices=["process"], default="process", help="how the Kafka broker is started")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker; it is a failure if it cannot be had."""
    with running_broker(tmp_path_factory.mktemp("kafka")) as broker:
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
    ensure_java()
    from pyspark import SparkConf

    from kstream.spark.spark_context import make_spark_context

    conf = SparkConf().setMaster("local[2]").setAppName("integration").set("spark.ui.enabled", "false")
    conf = conf.set("spark.driver.host", "127.0.0.1").set("spark.ui.showConsoleProgress", "false")
    context = make_spark_context(conf)
    context.setLogLevel("ERROR")
    yield context
    context.stop()
