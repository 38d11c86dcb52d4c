"""`continuousStream` on a real broker: what a job writes whose driver is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from integration.kafka_broker import KafkaBroker

MakeTopic = Callable[..., str]


@contextmanager
def running(*arguments: str) -> Generator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "integration.continuous_job", *arguments]
    with subprocess.Popen(command, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}, stdout=subprocess.PIPE) as job:
        try:
            assert job.stdout is not None and job.stdout.readline() == b"started\n"
            yield job
        finally:
            job.kill()


class Watcher:
    """Reads the committed records of a topic of one partition as they come."""

    def __init__(self, kafka: KafkaBroker, topic: str) -> None:
        settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "watcher", "isolation.level": "read_committed"}
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.values: list[bytes] = []

    def wait_for(self, number: int) -> None:
        """Read until so many different values are there; the time-out of the test ends a wait in vain."""
        while len(set(self.values)) < number:
            self.values += [value for m in self._consumer.consume(500, 1.0) if not m.error() and (value := m.value()) is not None]

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_driver_that_is_killed_leaves_no_record_out_and_exactly_once_none_twice(
    delivery: str, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = topic(3), topic(1)
    watcher, job = Watcher(kafka, target), (kafka.bootstrap, source, target, str(tmp_path / "checkpoint"), delivery)
    sent = 0

    def produce(number: int) -> None:
        nonlocal sent
        kafka.produce(source, [("k", str(i), i % 3) for i in range(sent, sent + number)])
        sent += number

    produce(300)
    with running(*job) as first:
        watcher.wait_for(300)
        produce(3000)
        watcher.wait_for(600)
        first.kill()
    with running(*job) as second:
        produce(300)
        watcher.wait_for(sent)
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0
    ended = subprocess.run([sys.executable, "-m", "kstream.cli", "status", job[3]], capture_output=True, text=True, check=False).stdout
    assert "ended" in ended and ": gracefully" in ended
    watcher.close()
    found = Counter(watcher.values)
    assert found.keys() == {b64encode(str(i).encode()) for i in range(sent)}
    if delivery == "exactly-once":
        assert set(found.values()) == {1}
        assert kafka.log_range(target)[1] > sent  # the records, and the ends of the transactions
