"""What breaks outside: each is one clear error with the facts, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.driver_process import Job, running, wait_for
from integration.kafka_broker import KafkaBroker
from integration.kafka_node import free_ports
from integration.reading import chain_of
from kstream import crash_point


def librdkafka_lines(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("%") and "|rdkafka#" in line]


def test_an_unreachable_broker_is_one_clear_error_and_no_screen_of_client_lines(tmp_path: Path) -> None:
    job = Job(tmp_path, f"127.0.0.1:{free_ports(1)[0]}", "orders", params={"default.api.timeout.ms": "3000"})
    driver = job.start()
    with running(driver):
        assert driver.wait(120) == 1
    errors = [line for line in job.output().splitlines() if "BrokerUnreachableError:" in line]
    assert len(errors) == 1 and "127.0.0.1" in errors[0]
    assert librdkafka_lines(job.output()) == []


def test_an_unknown_topic_is_named(kafka: KafkaBroker, tmp_path: Path) -> None:
    job = Job(tmp_path, kafka.bootstrap, "no-such-topic")
    driver = job.start()
    with running(driver):
        assert driver.wait(120) == 1
    errors = [line for line in job.output().splitlines() if "UnknownTopicError:" in line]
    assert len(errors) == 1 and "no-such-topic" in errors[0]


def test_a_broker_that_goes_away_and_comes_back_costs_nothing_and_the_driver_lives(tmp_path: Path) -> None:
    """Batches that cannot be planned are a warning a minute; the first batch afterwards takes their records."""
    from integration.kafka_broker import running_broker

    with running_broker(tmp_path / "broker") as broker:
        broker.create_topic("orders", 1)
        job = Job(tmp_path / "job", broker.bootstrap, "orders")
        broker.produce("orders", (("key-0", f"0:{i}", 0) for i in range(100)))
        driver = job.start()
        with running(driver):
            wait_for(lambda: job.records_tried() == 100, "reading 100 records", job)
            broker.kill9()
            wait_for(lambda: "was not planned" in job.output(), "the warning", job)
            broker.restart()
            broker.produce("orders", (("key-0", f"0:{i}", 0) for i in range(100, 150)))
            wait_for(lambda: job.records_tried() == 150, "reading the rest", job)
            wait_for(lambda: "the outage is over" in job.output(), "the end of the outage", job)
            assert driver.poll() is None
            assert librdkafka_lines(job.output()) == [] and "ERROR" not in job.output()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB, really full when it is full. Needs root."""
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=4096", "tmpfs", str(mount)], check=True)
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_full_disk_is_one_clear_warning_and_the_driver_goes_on_when_there_is_room_again(
    kafka: KafkaBroker, topic: Callable[..., str], small_disk: Path, tmp_path: Path
) -> None:
    name = topic(1)
    kafka.produce(name, (("key-0", f"0:{i}", 0) for i in range(100)))
    job = Job(tmp_path / "job", kafka.bootstrap, name, small_disk / "checkpoint")
    first = job.start()
    with running(first):
        wait_for(lambda: job.records_tried() == 100, "reading 100 records", job)
        filler = small_disk / "filler"
        with open(filler, "wb", buffering=0) as file:
            fill(file)
        kafka.produce(name, (("key-0", f"0:{i}", 0) for i in range(100, 200)))
        wait_for(lambda: "No space left on device" in job.output(), "the warning", job)
        assert str(small_disk) in job.output() and first.poll() is None
        filler.unlink()
        wait_for(lambda: job.records_tried() == 200, "reading the rest", job)
    ranges = sorted({tuple(r[1:]) for a in job.attempts() for r in a["ranges"] if r[2] < r[3]})
    assert [r[1:] for r in ranges] == chain_of([r[1:] for r in ranges], 200)


def fill(file: Any) -> None:
    """Writes until the disk has no room for another byte."""
    for size in (4096, 1):
        try:
            while True:
                file.write(b"x" * size)
        except OSError:
            continue


@pytest.mark.parametrize("point", [crash_point.BEFORE_PLAN, crash_point.PLAN_DURABLE])
def test_a_driver_that_was_frozen_while_another_took_over_submits_nothing(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path, point: str
) -> None:
    """A stops itself with SIGSTOP at the point; B takes over and works; A is continued, finds out and ends."""
    name = topic(1)
    kafka.produce(name, (("key-0", f"0:{i}", 0) for i in range(50)))
    job = Job(tmp_path, kafka.bootstrap, name)
    a = job.start(KSTREAM_CRASH_AT=f"{point}:3:SIGSTOP")
    with running(a):
        wait_for(lambda: is_stopped(a.pid), "A stopping", job)
        kafka.produce(name, (("key-0", f"0:{i}", 0) for i in range(50, 100)))
        b = job.start()
        with running(b):
            wait_for(lambda: job.records_tried() == 100, "B reading everything", job)
            tried_by_a = [x for x in job.attempts() if x["pid"] == a.pid]
            os.kill(a.pid, signal.SIGCONT)
            assert a.wait(60) == 1
            assert "FencedError" in job.output()
            assert [x for x in job.attempts() if x["pid"] == a.pid] == tried_by_a
            kafka.produce(name, (("key-0", f"0:{i}", 0) for i in range(100, 130)))
            wait_for(lambda: job.records_tried() == 130, "B going on", job)
        c = job.start()
        with running(c):
            kafka.produce(name, (("key-0", f"0:{i}", 0) for i in range(130, 140)))
            wait_for(lambda: job.records_tried() == 140, "C going on from B's plans", job)
    by_time: dict[int, Any] = {}
    for attempt in job.attempts():
        assert by_time.setdefault(attempt["time"], attempt["ranges"]) == attempt["ranges"]


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
