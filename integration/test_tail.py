"""`kstream tail` as a process: the records of a topic as they come, on a terminal, in a pipe that closes, and while brokers are away."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from kstream_kafka.demo.embedded_broker import EmbeddedBroker

from integration.commands import SECONDS, run, started
from integration.kafka_broker import KafkaBroker

MakeTopic = Callable[..., str]
HOSTILE = "\x1b[2J\x1b]0;owned\x07"
MANY = 500


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedBroker]:
    """An embedded broker; its topic `orders` has MANY records in partition 0, the first of them hostile, and one in partition 1."""
    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for i in range(MANY):
            producer.produce("orders", f"order {i}{'' if i else HOSTILE}".encode(), f"k{i}".encode(), partition=0, headers=[("h", b"1")])
        producer.produce("orders", None, b"gone", partition=1)
        assert producer.flush(30) == 0
        yield broker


def test_values_come_a_line_each_and_no_escape_sequence_is_among_them(embedded: EmbeddedBroker) -> None:
    code, out, err = run("tail", "orders", "--bootstrap", embedded.bootstrap, "--until-end")
    assert (code, err) == (0, "")
    wanted = [r"order 0\x1b[2J\x1b]0;owned\x07", *(f"order {i}" for i in range(1, MANY)), "null"]
    assert sorted(out.splitlines()) == sorted(wanted)


def test_nothing_hostile_reaches_a_terminal(embedded: EmbeddedBroker) -> None:
    ours, theirs = pty.openpty()
    process = started("tail", "orders", "--bootstrap", embedded.bootstrap, "--from", "earliest", "--max", 1, stdout=theirs)
    try:
        assert process.wait(SECONDS) == 0
        os.close(theirs)
        shown = os.read(ours, 10_000)
    finally:
        process.kill()
        os.close(ours)
    assert b"\x1b" not in shown and b"\x07" not in shown and shown.strip()


def test_json_has_everything_and_the_last_offsets_of_each_partition_can_be_asked_for(embedded: EmbeddedBroker) -> None:
    code, out, _ = run("tail", "orders", "--bootstrap", embedded.bootstrap, "--until-end", "--from", "-2", "--json")
    found = sorted((json.loads(line) for line in out.splitlines()), key=lambda record: (record["partition"], record["offset"]))
    assert code == 0 and [(record["partition"], record["offset"]) for record in found] == [(0, MANY - 2), (0, MANY - 1), (1, 0)]
    last = found[1]
    assert (last["topic"], last["key"], last["value"]) == ("orders", f"k{MANY - 1}", f"order {MANY - 1}")
    assert last["headers"] == [{"name": "h", "value": "1"}] and last["timestamp"] > 0
    assert found[2]["value"] is None and found[2]["key"] == "gone"


def test_text_and_hex_are_those_of_peek(embedded: EmbeddedBroker) -> None:
    words = ("tail", "orders", "--bootstrap", embedded.bootstrap, "--until-end", "--from", "-1", "--format")
    assert "  value   9 bytes: order 499" in run(*words, "text")[1]
    assert "6f 72 64 65 72 20 34 39 39" in run(*words, "hex")[1]


@pytest.mark.parametrize("form", ["value", "json"])
def test_a_closed_pipe_ends_in_silence_also_without_a_further_record(embedded: EmbeddedBroker, form: str) -> None:
    """Without --until-end: the command waits for more records when `head` has gone."""
    process = started("tail", "orders", "--bootstrap", embedded.bootstrap, "--from", "earliest", "--format", form)
    assert process.stdout is not None and process.stderr is not None
    head = subprocess.run(["head", "-3"], stdin=process.stdout, capture_output=True, timeout=SECONDS, check=True)
    process.stdout.close()
    try:
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
    assert head.stdout.count(b"\n") == 3 and process.stderr.read() == b""


def test_records_come_as_they_are_written_and_an_interrupt_ends_the_command_in_silence(embedded: EmbeddedBroker) -> None:
    process = started("tail", "orders", "--bootstrap", embedded.bootstrap)
    assert process.stdout is not None
    producer = Producer({"bootstrap.servers": embedded.bootstrap})
    try:
        os.set_blocking(process.stdout.fileno(), False)
        seen, end = b"", time.monotonic() + SECONDS
        while not seen:  # the command begins at the end of the log, at a moment that no one tells
            assert time.monotonic() < end
            producer.produce("orders", b"live", partition=2)
            producer.flush(30)
            time.sleep(0.2)
            seen = process.stdout.read() or b""
        assert set(seen.splitlines()) == {b"live"}
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert (process.returncode, err) == (-signal.SIGINT, b""), "a shell shows 130"


def test_what_cannot_be_read_is_one_line(embedded: EmbeddedBroker) -> None:
    for words, said in (
        (("orderz",), "Did you mean 'orders'?"),
        (("orders", "--from", "12"), "Give -12 for the last 12 offsets of each partition"),
        (("orders", "--from", "committed"), "no group is read"),
        (("orders", "--from", "yesterday"), "is 'yesterday'"),
    ):
        code, out, err = run("tail", *words, "--bootstrap", embedded.bootstrap)
        assert code == 3 and not out and err.count("\n") == 1 and said in err, err


def test_a_tail_begins_at_a_time_and_joins_no_group(kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic(2)
    kafka.produce(name, [("k", f"{i}", i % 2, 1_700_000_000_000 + i * 1000) for i in range(20)])
    groups = {group.group_id for group in kafka.admin.list_consumer_groups().result().valid}
    code, out, err = run("tail", name, "--bootstrap", kafka.bootstrap, "--from", "2023-11-14T22:13:35Z", "--until-end")
    assert (code, err) == (0, "") and sorted(map(int, out.split())) == list(range(15, 20))
    code, out, _ = run("tail", name, "--bootstrap", kafka.bootstrap, "--from", "-1h", "--until-end")
    assert (code, out) == (0, "")
    assert {group.group_id for group in kafka.admin.list_consumer_groups().result().valid} == groups


def test_offsets_without_a_record_at_the_end_of_a_log_do_not_hold_the_end_up(kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for value in ("kept", "aborted"):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(30)
        producer.commit_transaction(30) if value == "kept" else producer.abort_transaction(30)
    words = ("tail", name, "--bootstrap", kafka.bootstrap, "--until-end", "--param", "isolation.level=read_committed")
    assert run(*words) == (0, "kept\n", "")


@pytest.mark.timeout(180)
def test_a_tail_waits_for_brokers_that_are_away_and_reads_new_partitions(own_kafka: KafkaBroker) -> None:
    own_kafka.create_topic("orders")
    own_kafka.produce("orders", [(None, "before", 0)])
    process = started("tail", "orders", "--bootstrap", own_kafka.bootstrap, "--from", "earliest")
    assert process.stdout is not None and process.stderr is not None
    try:
        assert process.stdout.readline() == b"before\n"
        own_kafka.stop()
        assert b"Waiting for them." in process.stderr.readline()
        own_kafka.restart()
        assert b"the brokers answer again" in process.stderr.readline()
        own_kafka.produce("orders", [(None, "after", 0)])
        assert process.stdout.readline() == b"after\n"
        own_kafka.admin.create_partitions([NewPartitions("orders", 2)])["orders"].result(30)
        own_kafka.wait_for_leaders("orders", 2)
        producer = Producer({"bootstrap.servers": own_kafka.bootstrap})  # another one: the first knows one partition
        producer.produce("orders", "new", partition=1)
        assert producer.flush(30) == 0
        assert process.stdout.readline() == b"new\n"
    finally:
        process.kill()
