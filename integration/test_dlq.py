"""`kstream dlq` on the real broker, as its user types it: a stream with poison records, their letters, and the way back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from integration.kafka_broker import KafkaBroker
from integration.reading import Reader
from integration.record_errors import Job, letters_in
from kstream import OffsetRange
from kstream.cli import main

MakeTopic = Callable[..., str]
OWN: list[tuple[str, bytes | None]] = [("trace", b"\x00\xff"), ("none", None)]


def dlq(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["dlq", *arguments])
    assert done.exit_code == code, done.output
    return done.output


class Shop:
    """A topic of which every fifth record is poison, its dead letters, and the checkpoint of the job that wrote them."""

    def __init__(self, sc: Any, kafka: KafkaBroker, topic: MakeTopic, checkpoint: Path) -> None:
        self.kafka, self.checkpoint = kafka, checkpoint
        self.name, self.dead = topic(2), topic()
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for i in range(20):
            producer.produce(self.name, b"{" if i % 5 == 0 else b"1", b"k%d" % i, partition=i % 2, headers=list(OWN))
        assert producer.flush(30) == 0
        job = Job(sc, kafka, checkpoint)
        stream = job.stream(self.name, onRecordError="dead-letter", deadLetterTopic=self.dead)
        stream.foreachRDD(lambda rdd: rdd.collect())
        assert len(job.run(stream)) == 16


@pytest.fixture
def shop(sc: Any, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path) -> Shop:
    return Shop(sc, kafka, topic, tmp_path)


def test_letters_are_counted_shown_and_put_back_once(shop: Shop, sc: Any) -> None:
    """Two outputs read the records, and each that failed is one letter."""
    brokers, stored = ("--bootstrap", shop.kafka.bootstrap), ("--checkpoint", str(shop.checkpoint))
    assert len(letters_in(shop.kafka, shop.dead)) == 4
    (kind,) = json.loads(dlq("ls", shop.dead, *stored, "--json"))["kinds"]
    assert (kind["topic"], kind["exception"], kind["operator"]) == (shop.name, "json.decoder.JSONDecodeError", "valueDecoder")
    assert (kind["letters"], kind["records"]) == (4, 4) and "batch" not in kind
    (of_batch,) = json.loads(dlq("ls", shop.dead, *stored, "--json", "--by-batch"))["kinds"]
    assert of_batch["records"] == 4 and of_batch["batch"] % 500 == 0
    assert "JSONDecodeError" in dlq("ls", shop.dead, *brokers)
    assert "batch (ms)" in dlq("ls", shop.dead, *brokers, "--by-batch")

    shown = dlq("show", shop.dead, *brokers, "-n", "1", "--stacktrace")
    assert f"origin  {shop.name}-" in shown and "error   json.decoder.JSONDecodeError in valueDecoder: Expecting" in shown
    assert "trace" in shown and "__connect" not in shown and "in loads" in shown
    found = [json.loads(line) for line in dlq("show", shop.dead, *brokers, "-n", "99", "--format", "json").splitlines()]
    assert len(found) == 4 and {letter["error"]["topic"] for letter in found} == {shop.name}

    none = dlq("replay", shop.dead, *brokers, "--exclude-exception", kind["exception"])
    assert none == f"0 records of {shop.dead} went back\n4 letters with these exceptions did not go back\n"
    assert dlq("replay", shop.dead, *brokers, "--dry-run") == f"4 records of {shop.dead} would go back into {shop.name}\n"
    assert f"4 records of {shop.dead} went back into {shop.name}" in dlq("replay", shop.dead, *brokers)
    back = Reader("RDD", sc, shop.kafka).records([OffsetRange(shop.name, p, 10, 12) for p in range(2)])
    assert sorted(record.key for record in back) == [b"k0", b"k10", b"k15", b"k5"]
    assert all(record.value == b"{" and list(record.headers) == OWN for record in back)
    assert {record.partition for record in back if record.key in (b"k0", b"k10")} == {0}

    again = dlq("replay", shop.dead, *stored)
    assert again.startswith(f"0 records of {shop.dead} went back\n4 letters went back before, as the group kstream-dlq-{shop.dead}")
    assert shop.kafka.log_range(shop.name, 0)[1] == 12


def test_a_topic_without_letters_and_one_that_does_not_exist(kafka: KafkaBroker, topic: MakeTopic) -> None:
    empty = topic()
    assert dlq("ls", empty, "--bootstrap", kafka.bootstrap) == f"{empty} has no dead letters\n"
    kafka.produce(empty, [(None, "x", 0)])
    assert dlq("ls", empty, "--bootstrap", kafka.bootstrap) == f"{empty} has no dead letters, but 1 other record\n"
    assert "0 records of" in dlq("replay", empty, "--bootstrap", kafka.bootstrap)
    assert "nowhere" in dlq("ls", "nowhere", "--bootstrap", kafka.bootstrap, code=3)
    assert "Give --checkpoint PATH or --bootstrap HOST:PORT" in dlq("ls", empty, code=3)
