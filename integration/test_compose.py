"""docker-compose.yml brought up. The images are those of --containers, and those that the variables of the file name."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from integration.browser import Browser
from integration.conftest import NOT_TESTED
from integration.containers.images import here
from integration.kafka_node import free_ports
from integration.shown_page import rows
from integration.system_programs import program

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]  # images may have to be built
ROOT = Path(__file__).resolve().parent.parent


def compose_command() -> list[str]:
    """`docker compose` where Docker has it, else `docker-compose`. Where there is neither, that is said, and nothing is tested."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        pytest.skip(f"{NOT_TESTED}docker-compose.yml: neither `docker compose` nor docker-compose is installed")
    return ["docker-compose"]


@pytest.fixture
def ports(image: Callable[[str], str]) -> Iterator[tuple[int, int]]:
    """Ports of Kafka and ZooKeeper while both are up."""
    kafka, zookeeper = free_ports(2)
    environment = {
        **os.environ, "KAFKA_IMAGE": image("kafka"), "ZOOKEEPER_IMAGE": image("zookeeper"),
        "KAFKA_PORT": str(kafka), "ZOOKEEPER_PORT": str(zookeeper),
    }  # fmt: skip
    command = [*compose_command(), "-p", f"kstream-{uuid.uuid4().hex[:8]}", "-f", str(ROOT / "docker-compose.yml")]

    def compose(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    try:
        up = compose("up", "-d", "kafka", "zookeeper")
        assert up.returncode == 0, up.stdout
        wait_until(lambda: "starting" not in (shown := compose("ps").stdout) and shown.count("(healthy)") == 2, "both are healthy")
        yield kafka, zookeeper
    finally:
        compose("down", "-v", "-t", "1")


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not so within {seconds} s: {what}"
        time.sleep(0.2)


def test_what_is_brought_up_takes_and_gives_records_and_zookeeper_answers(ports: tuple[int, int]) -> None:
    bootstrap = f"127.0.0.1:{ports[0]}"
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for i in range(100):
        producer.produce("play", f"value-{i}")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "play"})
    consumer.assign([TopicPartition("play", 0, 0)])
    found: list[bytes] = []
    while len(found) < 100:
        messages = consumer.consume(100 - len(found), 30)
        assert messages and all(m.error() is None for m in messages)
        found += [m.value() for m in messages]
    consumer.close()
    assert found == [f"value-{i}".encode() for i in range(100)]
    with socket.create_connection(("127.0.0.1", ports[1]), 10) as zookeeper:
        zookeeper.sendall(b"srvr")
        assert b"Mode: standalone" in b"".join(iter(lambda: zookeeper.recv(4096), b""))


def test_a_cluster_whose_page_shows_its_batches_loses_a_worker_and_its_driver_and_counts_each_order_once(
    image: Callable[[str], str], request: pytest.FixtureRequest
) -> None:
    """The demo of the cluster: its last lines are the number of orders in Kafka, the number that is counted, and what the audit proves.
    The page is looked at if there is a Chromium."""
    compose_command()
    names = ("KAFKA", "ZOOKEEPER", "SPARK_MASTER", "SPARK_UI", "PAGE", "METRICS", "PROMETHEUS")
    ports = {f"{name}_PORT": str(port) for name, port in zip(names, free_ports(len(names)), strict=True)}
    project = f"kstream-{uuid.uuid4().hex[:8]}"
    images = {
        "KAFKA_IMAGE": image("kafka"),
        "ZOOKEEPER_IMAGE": image("zookeeper"),
        "KSTREAM_IMAGE": of_the_demo("KSTREAM_IMAGE", image_of_these_sources()),
        "PROMETHEUS_IMAGE": of_the_demo("PROMETHEUS_IMAGE", "local/prometheus"),
    }
    environment = {**os.environ, **ports, **images, "COMPOSE_PROJECT_NAME": project, "KEEP": ""}
    command, said = ["bash", "scripts/compose_demo.sh"], ""
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        for line in cast("IO[str]", demo.stdout):
            said += line
            if (page := re.search(r"the page is at (\S+)", line)) and program("chromium"):
                demo.send_signal(signal.SIGSTOP)  # so that the driver is not killed meanwhile
                try:
                    batches_are_seen(request.getfixturevalue("browser"), page[1])
                finally:
                    demo.send_signal(signal.SIGCONT)
    assert demo.returncode == 0, said
    assert f"the page is at http://127.0.0.1:{ports['PAGE_PORT']}/?token=" in said
    assert "SIGTERM reached the driver, which ended gracefully: exit code 0, no batch is pending" in said
    orders, counted = map(int, re.findall(r"(\d+) orders are in Kafka, and (\d+) are counted", said)[0])
    assert orders == counted > 0
    left = subprocess.run(
        ["docker", "ps", "-aq", "--filter", f"label=com.docker.compose.project={project}"], capture_output=True, check=True
    )
    assert left.stdout == b""


def batches_are_seen(browser: Browser, address: str) -> None:
    """The page of the job, at the address that its log has, shows that batches complete, by what comes from this address only."""
    page = browser.page()
    page.open(address)
    page.wait_text(".state", "Running")
    page.until(lambda: len(rows(page, "Completed batches")) > 3, "completed batches")
    root = address.partition("?")[0]
    assert page.seen.problems == [] and [url for url in page.seen.requests if not url.startswith(root)] == []


def image_of_these_sources() -> str:
    """An image of other sources has another tag, so it is not tested in their place."""
    return subprocess.run(
        ["bash", "scripts/build_images.sh", "tag"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


def of_the_demo(variable: str, built: str) -> str:
    """The image that the variable names, else the one of scripts/build_images.sh. That takes minutes to build, so no test does it."""
    name = os.environ.get(variable, built)
    if not here(name):
        pytest.skip(f"{NOT_TESTED}make compose-demo, as there is no image {name}; see scripts/build_images.sh")
    return name
