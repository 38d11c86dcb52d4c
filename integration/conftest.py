"""Fixtures of the integration suite: a real Kafka broker, a cluster of three and a local SparkContext, each started once.

`--containers` runs the servers in Docker instead of as processes; Docker that is asked for and absent is a failure. Without it the tests
about Docker itself run where there is a Docker; where there is none, the summary says that they were not tested.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import pytest

from integration.browser import Browser, running_browser
from integration.class_archives import use_spark_archive
from integration.containers.daemon import ContainerError, NoDockerError, running_daemon
from integration.hdfs_cluster import Hdfs, HdfsError, running_hdfs
from integration.kafka_broker import Broker, running_broker
from integration.kafka_cluster import KafkaCluster, running_cluster
from integration.kafka_jars import JarsMissingError
from integration.kafka_node import BrokerError
from integration.masters import STANDALONE, WORKER_MEMORY, Master, on_cluster, running_master
from integration.postgres_server import Postgres, PostgresError, running_postgres
from integration.s3_server import S3Process, running_s3
from integration.spark_cluster import SparkClusterError
from integration.system_programs import missing
from integration.zookeeper_server import ZooKeeper, ZooKeeperError, running_zookeeper
from kstream.errors import JavaNotFoundError
from kstream.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
Server = TypeVar("Server", Broker, KafkaCluster, Hdfs, Postgres, ZooKeeper, S3Process, Master)
TESTS_OF = {
    "prometheus": "integration/test_prometheus.py",
    "browser": "the page in a browser (pytest -m browser)",
    "postgres": "the code of docs/outputs.md",
}
"""By mark: the tests that have it, for the line that says that they are left out."""
UNAVAILABLE = (
    BrokerError, HdfsError, PostgresError, ZooKeeperError, SparkClusterError, ContainerError, JarsMissingError, JavaNotFoundError
)  # fmt: skip
"""How servers say that they cannot be had."""
TOLD = "told"
"""The property of a test whose values are lines of the summary: what was measured."""
NOT_TESTED = "NOT TESTED: "
"""Begins the reason of a test that is skipped for want of something: the summary repeats it."""


def pytest_configure(config: pytest.Config) -> None:
    """JAVA_HOME before anything starts Spark, the tests' own processes too, and its archive; one line ends the run without a Java."""
    try:
        ensure_java()
    except JavaNotFoundError as e:
        raise pytest.UsageError(str(e)) from None
    if not config.option.collectonly:
        use_spark_archive()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--containers", action="store_true", help="run the servers in Docker, from the images of integration/containers/images.py"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests whose programs are not there are left out, in words."""
    absent = missing()
    left_out = [item for item in items if any(item.get_closest_marker(mark) for mark in absent)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line about what is not there, programs or Docker, and what was not tested therefore."""
    for mark, names in missing().items():
        text = f"{NOT_TESTED}{TESTS_OF[mark]}, as {' and '.join(names)} cannot be found; see scripts/system-packages"
        terminalreporter.write_line(text, red=True)
    for reason in sorted(set(_reasons_of_skips(terminalreporter))):
        terminalreporter.write_line(reason, red=True)
    for report in terminalreporter.stats.get("passed", []):
        for line in [value for key, value in report.user_properties if key == TOLD]:
            terminalreporter.write_line(str(line))


def _reasons_of_skips(reporter: pytest.TerminalReporter) -> Iterator[str]:
    """Of tests that were skipped for want of something, also in other processes."""
    for report in reporter.stats.get("skipped", []):
        words = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if NOT_TESTED in words:
            yield words[words.index(NOT_TESTED) :]


@pytest.fixture(scope="session")
def docker(request: pytest.FixtureRequest) -> Iterator[None]:
    """A Docker daemon that answers. Absent, it is a failure where --containers asked for it; else the test is skipped, and that is said."""
    with ExitStack() as stack:
        reason = ""
        try:
            stack.enter_context(running_daemon())
        except NoDockerError as e:
            reason = str(e)
        if reason:
            _no_docker(request.config, reason)
        yield


@pytest.fixture(autouse=True)
def _docker_for_its_tests(request: pytest.FixtureRequest) -> None:
    """Tests about Docker itself have the mark."""
    if request.node.get_closest_marker("docker"):
        request.getfixturevalue("docker")


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest, docker: None) -> Callable[[str], str]:
    """Gives the name of an image by what it is for, pulled or built. An image that cannot be had is as no Docker."""

    def find(name: str) -> str:
        from integration.containers import images

        try:
            return images.image(name)
        except NoDockerError as e:
            reason = str(e)
        return _no_docker(request.config, reason)

    return find


def _no_docker(config: pytest.Config, reason: str) -> NoReturn:
    if config.getoption("--containers"):
        pytest.fail(f"--containers: {reason}", pytrace=False)
    pytest.skip(f"{NOT_TESTED}what runs in containers: {reason}")


def _wanted_image(request: pytest.FixtureRequest, name: str) -> str:
    """The image to run a server from; "" if servers are processes."""
    return request.getfixturevalue("image")(name) if request.config.getoption("--containers") else ""


def a_broker(image: str, directory: Path) -> AbstractContextManager[Broker]:
    """A broker for the length of a with block, in a container if there is an image; BrokerError and others if it cannot be had."""
    if not image:
        return running_broker(directory)
    from integration.containers.kafka import running_container

    return running_container(image)


def a_kafka_cluster(image: str, directory: Path) -> AbstractContextManager[KafkaCluster]:
    """The same of three."""
    if not image:
        return running_cluster(directory)
    from integration.containers.kafka import running_containers

    return running_containers(image)


def a_zookeeper(image: str, directory: Path) -> AbstractContextManager[ZooKeeper]:
    if not image:
        return running_zookeeper(directory)
    from integration.containers.servers import zookeeper_container

    return zookeeper_container(image, directory)


def a_postgres(image: str) -> AbstractContextManager[Postgres]:
    if not image:
        return running_postgres()
    from integration.containers.servers import postgres_container

    return postgres_container(image)


def an_s3(image: str) -> AbstractContextManager[S3Process]:
    if not image:
        return running_s3()
    from integration.containers.servers import s3_container

    return s3_container(image)


@contextmanager
def a_spark_cluster(image: str, directory: Path) -> Iterator[Master]:
    if not image:
        with running_master(STANDALONE, directory) as master:
            yield master
        return
    from integration.containers.spark import running_containers

    with running_containers(image, directory / "spark", cores=1, memory=WORKER_MEMORY) as cluster:
        yield on_cluster(cluster)


def _had_or_failed(make: Callable[[], AbstractContextManager[Server]], what: str = "Kafka broker") -> Iterator[Server]:
    """It is a failure, in one line, if the server cannot be had."""
    with ExitStack() as stack:
        server, reason = None, ""
        try:
            server = stack.enter_context(make())
        except UNAVAILABLE as e:
            reason = str(e)
        if server is None:  # said here, since pytest would show what led to it, were there an exception being handled
            pytest.fail(f"no {what}: {reason}", pytrace=False)
        yield server


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real broker, for all tests."""
    yield from _had_or_failed(lambda: a_broker(_wanted_image(request, "kafka"), tmp_path_factory.mktemp("kafka")))


@pytest.fixture
def own_kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A real broker for one test, which may kill it."""
    yield from _had_or_failed(lambda: a_broker(_wanted_image(request, "kafka"), tmp_path / "kafka"))


@pytest.fixture(scope="session")
def _cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    yield from _had_or_failed(lambda: a_kafka_cluster(_wanted_image(request, "kafka"), tmp_path_factory.mktemp("kafka-cluster")))


@pytest.fixture
def kafka_cluster(_cluster: KafkaCluster) -> KafkaCluster:
    """Three real nodes, all of them up; a test may kill any. Started when first asked for."""
    _cluster.start()
    return _cluster


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """A real namenode and datanode, for all tests."""
    yield from _had_or_failed(lambda: running_hdfs(tmp_path_factory.mktemp("hdfs") / "cluster"), "HDFS")


@pytest.fixture(scope="session")
def zookeeper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A real ZooKeeper, for all tests; one that kills it starts it again."""
    image, directory = _wanted_image(request, "zookeeper"), tmp_path_factory.mktemp("zookeeper")
    yield from _had_or_failed(lambda: a_zookeeper(image, directory), "ZooKeeper")


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """A real PostgreSQL with an empty database, for all tests."""
    yield from _had_or_failed(lambda: a_postgres(_wanted_image(request, "postgres")), "PostgreSQL")


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Master]:
    """A standalone cluster of Spark with three workers of one core, for the jobs of a module, one after the other."""
    image, directory = _wanted_image(request, "spark"), tmp_path_factory.mktemp("spark-cluster")
    yield from _had_or_failed(lambda: a_spark_cluster(image, directory), "cluster of Spark")


@pytest.fixture(scope="session")
def s3(request: pytest.FixtureRequest) -> Iterator[S3Process]:
    """An S3 server in a process of its own, for all tests."""
    yield from _had_or_failed(lambda: an_s3(_wanted_image(request, "spark")), "S3 server")


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
    from kstream.spark.active_session import active_session

    return active_session(sc)
