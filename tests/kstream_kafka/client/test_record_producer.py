"""Why a record was not stored, in words that say what to do."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from kstream_kafka.client import record_producer
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.record_producer import RecordProducer
from kstream_kafka.demo.embedded_broker import MockCluster


class Refusing:
    """A producer of confluent_kafka whose broker refuses each record."""

    def __init__(self, code: int) -> None:
        self._code = code

    def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
        on_delivery(KafkaError(self._code), SimpleNamespace(key=lambda: None, value=lambda: b"x"))

    def poll(self, _timeout: float) -> int:
        return 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "does not let this user write to it .* Allow it the operation WRITE"),
        (KafkaError._UNKNOWN_PARTITION, "has no such topic or partition .* Create the topic, with at least as many partitions"),
        (KafkaError.MSG_SIZE_TOO_LARGE, "Raise max.message.bytes of the topic"),
        (KafkaError._MSG_TIMED_OUT, "did not store it"),
    ],
)
def test_a_record_that_is_not_stored_has_a_reason_and_advice(code: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_producer, "new_client", lambda *_: Refusing(code))
    reasons: list[str] = []
    RecordProducer({"bootstrap.servers": "h:1"}).send("dead", None, b"x", [], reasons.append, partition=3)
    (reason,) = reasons
    assert reason.startswith("dead: ") and re.search(words, reason), reason


def test_a_topic_that_is_gone_is_named_with_the_command_that_creates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_producer, "new_client", lambda *_: Refusing(KafkaError._UNKNOWN_TOPIC))
    reasons: list[str] = []
    RecordProducer({"bootstrap.servers": "h:1"}).send("dead", None, b"x", [], reasons.append)
    (reason,) = reasons
    assert reason.startswith("dead: Kafka at h:1 has no such topic (")
    assert reason.endswith("--topic dead --partitions 1, or kstream produce dead --partitions 1 --bootstrap h:1 < /dev/null")


def test_no_topic_is_made_by_a_record_that_names_it() -> None:
    cluster = MockCluster()
    for settings, made in ((KafkaParams.parse({"bootstrap.servers": cluster.bootstrap}).producer(), []), ({}, ["dead"])):
        producer, reasons = RecordProducer({"bootstrap.servers": cluster.bootstrap, **settings, "message.timeout.ms": 1500}), list[str]()
        producer.send("dead", None, b"x", [], reasons.append)
        assert producer.flush() == 0
        assert bool(reasons) == (not made)
        assert sorted(AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10).topics) == made


# -- batches that are too large


class Broker:
    """A broker that refuses a batch of more than 10 bytes, with all of its records; and clients that make a batch of all that is sent."""

    def __init__(self) -> None:
        self.stored: list[tuple[bytes, Any]] = []
        self.producers: list[Any] = []

    def client(self, _kind: Any, settings: Any) -> Any:
        self.producers.append(settings)
        return Batching(self, int(settings.get("batch.num.messages", 10_000)))


class Batching:
    def __init__(self, broker: Broker, most: int) -> None:
        self._broker, self._most = broker, most
        self._waiting: list[tuple[bytes, Any, Any]] = []

    def produce(self, _topic: str, value: bytes, key: bytes | None, headers: Any, on_delivery: Any, **_: Any) -> None:
        self._waiting.append((value, (key, headers), on_delivery))

    def poll(self, _timeout: float) -> int:
        return 0

    def flush(self, _timeout: float) -> int:
        while self._waiting:
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            is_refused = sum(len(value) for value, _, _ in batch) > 10
            for value, (key, headers), on_delivery in batch:
                message = SimpleNamespace(key=lambda key=key: key, value=lambda value=value: value, partition=lambda: 0, offset=lambda: 7)
                if not is_refused:
                    self._broker.stored.append((value, (key, headers)))
                on_delivery(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE) if is_refused else None, message)
        return 0


def test_a_record_that_is_too_large_does_not_fail_the_others_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    monkeypatch.setattr(record_producer, "new_client", broker.client)
    producer, reasons, places = RecordProducer({"bootstrap.servers": "h:1"}), list[str](), list[tuple[int, int]]()
    for value in b"small", b"much too large", b"tiny":
        producer.send("dead", b"key", value, [("a", b"1")], reasons.append, on_stored=lambda *place: places.append(place))
    assert producer.flush() == 0
    assert broker.stored == [(b"small", (b"key", [("a", b"1")])), (b"tiny", (b"key", [("a", b"1")]))]
    assert len(reasons) == 1 and "Raise max.message.bytes of the topic" in reasons[0] and places == [(0, 7), (0, 7)]


def test_records_that_fit_one_by_one_and_not_together_are_all_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    monkeypatch.setattr(record_producer, "new_client", broker.client)
    producer, reasons = RecordProducer({"bootstrap.servers": "h:1"}), list[str]()
    for _ in range(3):
        producer.send("dead", None, b"nine byte", [], reasons.append)
    assert producer.flush() == 0 and reasons == [] and len(broker.stored) == 3
    assert len(broker.producers) == 2
    producer.send("dead", None, b"one", [], reasons.append)
    assert producer.flush() == 0 and len(broker.stored) == 4 and len(broker.producers) == 2
