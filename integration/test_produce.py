"""`kstream produce` as a process: lines in, records in a broker, one sentence; and what it says when that fails."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kstream_kafka.demo.embedded_broker import EmbeddedBroker

from integration.commands import SECONDS, run, started
from integration.kafka_broker import KafkaBroker

MakeTopic = Callable[..., str]


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedBroker]:
    """An embedded broker, whose topic `orders` has four partitions and one record in the last."""
    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"first", partition=3)
        assert producer.flush(30) == 0
        yield broker


def records(bootstrap: str, topic: str, partition: int, number: int) -> list[tuple[bytes | None, bytes | None, object]]:
    """The first records of a partition: key, value, headers."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        found = consumer.consume(number, SECONDS)
    finally:
        consumer.close()
    return [(message.key(), message.value(), message.headers()) for message in found]


def test_each_line_is_a_record_and_one_sentence_says_where_they_are(kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic(2)
    words = ("--key-separator", r"\t", "--header", "source=a file", "--partition", 1)
    code, out, err = run("produce", name, "--bootstrap", kafka.bootstrap, *words, lines=b"k1\tv 1\nk2\t\xff\x00\nk1\t")
    assert (code, out, err) == (0, f"3 records are stored in {name}: 3 in partition 1 at offsets 0 to 2\n", "")
    header = [("source", b"a file")]
    assert records(kafka.bootstrap, name, 1, 3) == [(b"k1", b"v 1", header), (b"k2", b"\xff\x00", header), (b"k1", b"", header)]


def test_many_lines_are_all_stored_on_an_embedded_broker(embedded: EmbeddedBroker) -> None:
    code, out, err = run("produce", "orders", "--bootstrap", embedded.bootstrap, lines=b"".join(b"%d\n" % i for i in range(20_000)))
    assert code == 0 and not err and out.startswith("20000 records are stored in orders: ")
    assert sum(map(int, re.findall(r"(\d+) in partition", out))) == 20_000


def test_a_topic_is_created_only_by_name_of_the_option(kafka: KafkaBroker) -> None:
    name = f"created-{time.time_ns()}"
    code, out, err = run("produce", name, "--bootstrap", kafka.bootstrap, lines=b"x\n")
    assert (code, out) == (1, "") and err.count("\n") == 1 and f"has no topic {name!r}" in err
    assert "--partitions N creates it with N partitions" in err and not kafka.partitions(name)

    lines = b"".join(b"%d:x\n" % i for i in range(3000))
    code, out, err = run("produce", name, "--bootstrap", kafka.bootstrap, "--partitions", 3, "--key-separator", ":", lines=lines)
    assert (code, err) == (0, f"created {name} with 3 partitions\n") and out.startswith("3000 records are stored")
    assert sum(kafka.log_range(name, partition)[1] for partition in range(3)) == 3000, "a young topic has lost records"
    code, out, err = run("produce", name, "--bootstrap", kafka.bootstrap, "--partitions", 5, lines=b"x\n")
    assert (code, err) == (0, f"{name} exists, with 3 partitions\n") and "1 record is stored" in out


def test_a_record_that_the_broker_refuses_is_named_by_its_line_and_the_others_are_stored(kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    kafka.configure_topic(name, {"max.message.bytes": "2000"})
    small = b"".join(b"%d\n" % i for i in range(1000))
    code, out, err = run("produce", name, "--bootstrap", kafka.bootstrap, lines=b"a\n" + b"x" * 5000 + b"\n" + small)
    assert code == 1 and err.startswith("kstream: 1 record is not stored: line 2: ") and "max.message.bytes" in err, err
    assert out == f"1001 records are stored in {name}: 1001 in partition 0 at offsets 0 to 1000\n"


def test_a_partition_that_is_not_there_and_an_option_that_cannot_be_read(embedded: EmbeddedBroker) -> None:
    code, _, err = run("produce", "orders", "--bootstrap", embedded.bootstrap, "--partition", 9, lines=b"x\n")
    assert (code, err) == (1, "kstream: orders has no partition 9: it has 4 partitions, from 0 on\n")
    code, _, err = run("produce", "orders", "--bootstrap", embedded.bootstrap, "--header", "x", lines=b"x\n")
    assert code == 2 and "--header: give NAME=VALUE" in err
    code, _, err = run("produce", "orders", lines=b"x\n")
    assert code == 1 and "Give --checkpoint PATH or --bootstrap HOST:PORT" in err


def test_a_dead_broker_is_one_line_in_seconds() -> None:
    with EmbeddedBroker() as broker:
        gone = broker.bootstrap
    began = time.monotonic()
    code, out, err = run("produce", "orders", "--bootstrap", gone, lines=b"x\n")
    assert code == 1 and not out and err.count("\n") == 1 and "No Kafka broker of" in err
    assert time.monotonic() - began < 20


@pytest.mark.timeout(120)
def test_a_broker_that_dies_under_the_command_is_one_line_with_the_lines_that_are_not_stored() -> None:
    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        producer.produce("orders", b"first", partition=0)
        assert producer.flush(30) == 0
        process = started("produce", "orders", "--bootstrap", broker.bootstrap, "--partition", 0, "--timeout", 2)
        assert process.stdin is not None
        process.stdin.write(b"a\nb\n")
        process.stdin.flush()
        assert records(broker.bootstrap, "orders", 0, 3)[1:] == [(None, b"a", None), (None, b"b", None)]
        broker.stop()
        out, err = process.communicate(b"c\nd\n", timeout=SECONDS)
    assert process.returncode == 1
    assert out.decode() == "2 records are stored in orders: 2 in partition 0 at offsets 1 to 2\n"
    assert err.decode().startswith("kstream: 2 records are not stored: lines 3 to 4: orders: Kafka at ") and err.count(b"\n") == 1, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_says_how_many_records_are_acknowledged(embedded: EmbeddedBroker, number: signal.Signals) -> None:
    consumer = Consumer({"bootstrap.servers": embedded.bootstrap, "group.id": "none"})

    def log_end() -> int:
        return consumer.get_watermark_offsets(TopicPartition("orders", 2), timeout=10)[1]

    before, end = log_end(), time.monotonic() + SECONDS
    process = started("produce", "orders", "--bootstrap", embedded.bootstrap, "--partition", 2)
    assert process.stdin is not None
    process.stdin.write(b"a\nb\nc\n")
    process.stdin.flush()
    while log_end() < before + 3:
        assert time.monotonic() < end
        time.sleep(0.05)
    consumer.close()
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + number
    assert out.startswith(b"3 records are stored in orders: 3 in partition 2 at offset")
    assert err == b"kstream: interrupted after 3 lines: 3 records acknowledged\n"
