"""Fixtures of the integration suite: a real Kafka broker, a cluster of three and a local SparkContext, each started once.

`--broker=container` runs the broker in Docker instead of as a process; docker that is asked for and absent is a failure.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from integration.browser import Browser, running_browser
from integration.class_archives import use_spark_archive
from integration.hdfs_cluster import Hdfs, HdfsError, running_hdfs
from integration.kafka_broker import Broker, running_broker
from integration.kafka_cluster import KafkaCluster, running_cluster
from integration.kafka_jars import KAFKA, JarsMissingError
from integration.kafka_node import BrokerError
from integration.masters import STANDALONE, Master, running_master
from integration.postgres_server import Postgres, PostgresError, running_postgres
from integration.s3_server import S3Process, running_s3
from integration.system_programs import missing
from integration.zookeeper_server import ZooKeeper, ZooKeeperError, running_zookeeper
from kstream.errors import JavaNotFoundError
from kstream.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
Server = TypeVar("Server", Broker, KafkaCluster, Hdfs, Postgres, ZooKeeper)
TESTS_OF = {
    "prometheus": "integration/test_prometheus.py",
    "browser": "the page in a browser (pytest -m browser)",
    "postgres": "the code of docs/outputs.md",
}
"""By mark: the tests that have it, for the line that says that they are left out."""
IMAGE_VARIABLE = "KSTREAM_KAFKA_IMAGE"


def pytest_configure(config: pytest.Config) -> None:
    """JAVA_HOME before anything starts Spark, the tests' own processes too, and its archive; one line ends the run without a Java."""
    try:
        ensure_java()
    except JavaNotFoundError as e:
        raise pytest.UsageError(str(e)) from None
    if not config.option.collectonly:
        use_spark_archive()


def pytest_addoption(parser: pytest.Parser) -> None:
    image = os.environ.get(IMAGE_VARIABLE, f"apache/kafka:{KAFKA}")
    parser.addoption("--broker", choices=["process", "container"], default="process", help="how the Kafka broker is started")
    parser.addoption(
        "--kafka-image", default=image, help=f"image of --broker=container; default {IMAGE_VARIABLE}, else apache/kafka:{KAFKA}"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests about Docker itself belong to the suite that was asked to use it. Tests whose programs are not there are left out, in words."""
    absent = missing()
    marks = [*(["docker"] if config.getoption("--broker") == "process" else []), *absent]
    left_out = [item for item in items if any(item.get_closest_marker(mark) for mark in marks)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line about programs that are not there, and what was not tested therefore."""
    for mark, names in missing().items():
        text = f"NOT TESTED: {TESTS_OF[mark]}, as {' and '.join(names)} cannot be found; see scripts/system-packages"
        terminalreporter.write_line(text, red=True)


def a_broker(config: pytest.Config, directory: Path) -> AbstractContextManager[Broker]:
    """A broker for the length of a with block, started in the way that was asked for; BrokerError and others if it cannot be had."""
    if config.getoption("--broker") == "process":
        return running_broker(directory)
    try:
        from integration.kafka_container import running_container
    except ModuleNotFoundError as e:
        raise BrokerError(f"--broker=container needs the package {e.name}: make install brings it") from e
    return running_container(config.getoption("--kafka-image"))


def _had_or_failed(make: Callable[[], AbstractContextManager[Server]], what: str = "Kafka broker") -> Iterator[Server]:
    """It is a failure, in one line, if the server cannot be had."""
    with ExitStack() as stack:
        server, reason = None, ""
        try:
            server = stack.enter_context(make())
        except (BrokerError, HdfsError, PostgresError, ZooKeeperError, JarsMissingError, JavaNotFoundError) as e:
            reason = str(e)
        if server is None:  # said here, since pytest would show what led to it, were there an exception being handled
            pytest.fail(f"no {what}: {reason}", pytrace=False)
        yield server


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real broker, for all tests."""
    yield from _had_or_failed(lambda: a_broker(request.config, tmp_path_factory.mktemp("kafka")))


@pytest.fixture
def own_kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A real broker for one test, which may kill it."""
    yield from _had_or_failed(lambda: a_broker(request.config, tmp_path / "kafka"))


@pytest.fixture(scope="session")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    yield from _had_or_failed(lambda: running_cluster(tmp_path_factory.mktemp("kafka-cluster")))


@pytest.fixture
def kafka_cluster(_cluster: KafkaCluster) -> KafkaCluster:
    """Three real nodes, as processes whatever --broker says, all of them up; a test may kill any. Started when first asked for."""
    _cluster.start()
    return _cluster


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """A real namenode and datanode, for all tests."""
    yield from _had_or_failed(lambda: running_hdfs(tmp_path_factory.mktemp("hdfs") / "cluster"), "HDFS")


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A real ZooKeeper, for all tests; one that kills it starts it again."""
    yield from _had_or_failed(lambda: running_zookeeper(tmp_path_factory.mktemp("zookeeper")), "ZooKeeper")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL with an empty database, for all tests."""
    yield from _had_or_failed(running_postgres, "PostgreSQL")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Master]:
    """A standalone cluster of Spark with three workers of one core, for the jobs of a module, one after the other."""
    with running_master(STANDALONE, tmp_path_factory.mktemp("spark-cluster")) as master:
        yield master


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Process]:
    """An S3 server in a process of its own, for all tests."""
    with running_s3() as server:
        yield server


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A chromium, for the tests with the mark `browser`; each opens pages of its own."""
    with running_browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture
def topic(kafka: Broker) -> Callable[..., str]:
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


@pytest.fixture(scope="module")
def spark(sc: SparkContext) -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession(sc)
