"""`kstream broker` as its user meets it: a process, clients of its port, and what it says that it cannot do."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.demo.broker_command import LIMITS
from kstream_kafka.demo.port_forwarder import PortForwarder

from kstream.cli import main

SECONDS = 60


@contextmanager
def broker(*options: str, environment: dict[str, str] | None = None) -> Generator[tuple[subprocess.Popen[str], str]]:
    """The command as a process, and its address. Killed at the end if it still runs."""
    command = [sys.executable, "-m", "kstream.cli", "broker", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    )
    try:
        assert process.stdout is not None
        found = re.fullmatch(r"a Kafka for a first look is at (127\.0\.0\.1:\d+) until Ctrl-C\n", line := process.stdout.readline())
        assert found, line
        yield process, found[1]
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker("--port", "0") as (_, place):
        yield place


def kstream(*words: str, lines: str = "", code: int = 0) -> str:
    """What a command prints."""
    result = CliRunner().invoke(main, [*words], input=lines)
    assert result.exit_code == code, result.output
    return result.output


def test_it_runs_without_pyspark_and_java_until_ctrl_c_and_says_what_it_cannot(tmp_path: Path) -> None:
    for name in ("pyspark", "pyarrow", "py4j"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not installed')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    with broker("--port", "0", environment={"PYTHONPATH": path, "PATH": "/nonexistent"}) as (process, _):
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in LIMITS] == list(LIMITS)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, out + errors) == (0, "")


def test_lines_that_are_produced_come_back_and_the_topic_is_made_by_its_name(bootstrap: str) -> None:
    lines = "".join(f"order {n}\n" for n in range(2000))
    said = kstream("produce", "orders", "--partitions", "2", "--bootstrap", bootstrap, lines=lines)
    assert "created orders with 4 partitions, and not with 2: this broker gives each topic as many" in said
    assert "2000 records are stored in orders" in said
    again = kstream("produce", "orders", "--partitions", "2", "--bootstrap", bootstrap, lines="order\n")
    assert "orders exists, with 4 partitions" in again
    shown = kstream("tail", "orders", "--bootstrap", bootstrap, "--until-end")
    assert all(f"order {n}\n" in shown for n in range(2000))
    assert "has no topic 'others'" in kstream("produce", "others", "--bootstrap", bootstrap, lines="x\n", code=1)


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = kstream("broker", "--port", str(port), code=1)
    why = f"kstream: port {port} of 127.0.0.1 is taken, perhaps by another Kafka: use that one, or give another --port, or --port 0 for any"
    assert said.splitlines() == [why]


def test_a_port_can_be_had_again_right_after_its_broker() -> None:
    with broker("--port", "0") as (_, place):
        kstream("produce", "orders", "--partitions", "4", "--bootstrap", place, lines="x\n")
    with broker("--port", place.rpartition(":")[2]) as (_, again):
        assert again == place
        assert "has no topic 'orders'" in kstream("produce", "orders", "--bootstrap", again, lines="x\n", code=1), "it is a new one"


# -- what it says that it cannot


def test_an_aborted_transaction_is_read_and_so_exactly_once_is_refused(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "any"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("aborted", b"x", partition=0)
    producer.flush(SECONDS)
    producer.abort_transaction(SECONDS)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "any", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("aborted", 0, 0)])
    assert [message.value() for message in consumer.consume(1, SECONDS)] == [b"x"]
    consumer.close()
    assert any(sentence.startswith("Transactions do not hold") for sentence in LIMITS)


def test_a_start_by_time_finds_no_offset_though_all_records_are_later(bootstrap: str) -> None:
    kstream("produce", "by-time", "--partitions", "4", "--partition", "0", "--bootstrap", bootstrap, lines="x\n")
    client = KafkaDriverClient(KafkaParams.parse({"bootstrap.servers": bootstrap}))
    assert client.at_times([0], {("by-time", 0)}) == [{("by-time", 0): None}]
    client.close()
    assert any("no offsets by time" in sentence for sentence in LIMITS)


def test_a_partition_keeps_its_newest_five_megabytes(bootstrap: str) -> None:
    client, value = KafkaDriverClient(KafkaParams.parse({"bootstrap.servers": bootstrap})), "x" * 9999
    kstream("produce", "large", "--partitions", "4", "--partition", "0", "--bootstrap", bootstrap, lines=f"{value}\n" * 1000)
    (first,), (end,) = client.earliest({("large", 0)}).values(), client.latest({("large", 0)}).values()
    client.close()
    assert end.offset == 1000 and 3_000_000 < (end.offset - first.offset) * 10_000 < 6_000_000


def test_a_topic_is_not_deleted(bootstrap: str) -> None:
    kstream("produce", "stays", "--partitions", "4", "--bootstrap", bootstrap, lines="x\n")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with pytest.raises(KafkaException):
        admin.delete_topics(["stays"], request_timeout=5)["stays"].result(SECONDS)
    assert "x\n" in kstream("tail", "stays", "--bootstrap", bootstrap, "--until-end")
    assert any("cannot be deleted" in sentence for sentence in LIMITS)


def test_a_topic_has_neither_settings_nor_an_id(bootstrap: str) -> None:
    kstream("produce", "kept", "--partitions", "4", "--bootstrap", bootstrap, lines="x\n")
    client = KafkaDriverClient(KafkaParams.parse({"bootstrap.servers": bootstrap}))
    assert client.topic_setting("kept", "retention.ms") is None and client.topic_ids(["kept"]) == {}
    client.close()


# -- the port


def test_a_connection_ends_with_either_of_its_ends_and_without_a_broker_it_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as target:
        forwarder = PortForwarder(0, target.getsockname()[1])
        for ends_first in (0, 1):
            client = socket.create_connection(("127.0.0.1", forwarder.port), SECONDS)
            served, _ = target.accept()
            client.sendall(b"there")
            assert served.recv(5) == b"there"
            served.sendall(b"back")
            assert client.recv(4) == b"back"
            ends = (client, served)
            ends[ends_first].close()
            assert ends[1 - ends_first].recv(1) == b""
            ends[1 - ends_first].close()
    with socket.create_connection(("127.0.0.1", forwarder.port), SECONDS) as client:
        assert client.recv(1) == b""
    forwarder.close()
