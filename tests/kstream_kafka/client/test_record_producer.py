"""Why a record was not stored, in words that say what to do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from confluent_kafka import KafkaError
from kstream_kafka.client import record_producer
from kstream_kafka.client.record_producer import RecordProducer


class Refusing:
    """A producer of confluent_kafka whose broker refuses each record."""

    def __init__(self, code: int) -> None:
        self._code = code

    def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
        on_delivery(KafkaError(self._code), None)

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
