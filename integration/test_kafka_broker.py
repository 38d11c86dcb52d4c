"""The broker fixture itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from integration.kafka_broker import Broker, running_pid
from integration.kafka_node import BrokerError

ADVICE = "(does it run, and may this user speak to it?)"


def values(broker: Broker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        found += [m.value() for m in consumer.consume(count - len(found), 10)]
    consumer.close()
    return found


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill9], ids=["stopped", "killed"])
def test_a_broker_that_ended_comes_back_at_the_same_address_with_what_it_acknowledged(own_kafka: Broker, end: Callable[..., None]) -> None:
    address = own_kafka.bootstrap
    own_kafka.create_topic("t", 1)
    own_kafka.produce("t", ((str(i), f"value-{i}", 0) for i in range(1000)))
    getattr(own_kafka, end.__name__)()
    assert address.startswith("127.0.0.1:") and not answers(address)
    own_kafka.restart()
    assert own_kafka.bootstrap == address
    assert values(own_kafka, "t", 1000) == [f"value-{i}".encode() for i in range(1000)]


def test_a_broker_is_reached_on_loopback_only(kafka: Broker) -> None:
    port = kafka.bootstrap.partition(":")[2]
    # Only what listens on all addresses of the machine answers at another one, and 127.0.0.2 is one that every Linux has.
    assert answers(f"127.0.0.1:{port}") and not answers(f"127.0.0.2:{port}")


def test_topics_are_made_by_request_only_and_can_be_deleted(kafka: Broker) -> None:
    kafka.create_topic("made", 3, {"retention.ms": "60000"})
    assert len(kafka.admin.list_topics(timeout=10).topics["made"].partitions) == 3
    with pytest.raises(BrokerError, match="not acknowledged"):
        kafka.produce("never-made", [("k", "v", 0)])
    kafka.delete_topic("made")
    wait_until(lambda: "made" not in kafka.admin.list_topics(timeout=10).topics)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_broker_ends_with_the_run_that_started_it_however_that_ends(how: signal.Signals, tmp_path: Path) -> None:
    run = (
        "import sys, pathlib; from integration.kafka_broker import running_broker\n"
        "with running_broker(pathlib.Path(sys.argv[1])) as b: print(b.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", run, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(how)
        parent.wait()
    wait_until(lambda: not alive(pid))


def test_by_hand_a_broker_is_started_found_again_and_stopped(tmp_path: Path) -> None:
    script = Path(__file__).with_name("kafka_broker.py")

    def call(action: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, script, action, "--dir", tmp_path], capture_output=True, text=True, check=False, cwd=tmp_path
        )

    try:
        for _ in range(2):  # the second time on the data of the first
            assert call("start").stdout.startswith("bootstrap.servers=127.0.0.1:")
            again = call("start")
            assert (again.returncode, again.stderr.count("\n")) == (1, 1)
            assert "already runs" in again.stderr
            assert call("stop").stdout.startswith("stopped pid")
        assert "no broker runs in" in call("stop").stderr
    finally:
        left = running_pid(tmp_path)
        if left is not None:
            os.kill(left, signal.SIGKILL)


@pytest.mark.parametrize("host", ["tcp://127.0.0.1:9", pytest.param("", marks=pytest.mark.docker, id="the daemon as it is")])
def test_docker_asked_for_and_absent_or_without_the_image_is_one_line(host: str) -> None:
    environment = {**os.environ, "KSTREAM_KAFKA_IMAGE": "127.0.0.1:9/no/kafka:0"}
    if host:
        environment["DOCKER_HOST"] = host
    test = Path(__file__)
    command = [sys.executable, "-m", "pytest", "--containers", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, f"{test}::test_topics_are_made_by_request_only_and_can_be_deleted"],
        env=environment, cwd=test.parent.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = [line for line in ran.stdout.splitlines() if line.startswith(("no Kafka broker: ", "--containers: "))]
    assert ran.returncode == 1 and "1 error" in ran.stdout and len(said) == 1, ran.stdout
    assert "Traceback" not in ran.stdout
    assert ("does it run" if host else "no Kafka broker: Docker cannot run 127.0.0.1:9/no/kafka:0: ") in said[0]


def test_without_docker_the_summary_says_what_was_not_tested() -> None:
    test = Path(__file__).with_name("test_containers.py")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)], env={**os.environ, "DOCKER_HOST": "tcp://127.0.0.1:9"},
        cwd=test.parent.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = [line for line in ran.stdout.splitlines() if line.startswith("NOT TESTED: ")]
    assert ran.returncode == 0 and said == ["NOT TESTED: what runs in containers: no Docker daemon answers at tcp://127.0.0.1:9 " + ADVICE]


def answers(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def alive(pid: int) -> bool:
    """Whether it runs; a zombie that nobody has waited for does not."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.strip()
    return bool(shown) and not shown.startswith("Z")


def wait_until(holds: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "did not come about in time"
        time.sleep(0.1)
