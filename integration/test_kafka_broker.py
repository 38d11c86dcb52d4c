"""The broker fixture itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from integration.kafka_broker import BrokerError, KafkaBroker, running_broker, running_pid


def values(broker: KafkaBroker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        found += [m.value() for m in consumer.consume(count - len(found), 10)]
    consumer.close()
    return found


def test_a_killed_broker_comes_back_with_what_it_acknowledged(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.create_topic("t", 1)
        broker.produce("t", ((str(i), f"value-{i}", 0) for i in range(1000)))
        broker.kill9()
        broker.restart()
        assert values(broker, "t", 1000) == [f"value-{i}".encode() for i in range(1000)]


def test_topics_are_made_by_request_only_and_can_be_deleted(kafka: KafkaBroker) -> None:
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


def alive(pid: int) -> bool:
    """Whether it runs; a zombie that nobody has waited for does not."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.strip()
    return bool(shown) and not shown.startswith("Z")


def wait_until(holds: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "did not come about in time"
        time.sleep(0.1)
