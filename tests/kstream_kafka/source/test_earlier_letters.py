"""The letters of batches that run again, as the dead-letter topic has them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from kstream_kafka.errors import BrokerUnreachableError, NotAuthorizedError
from kstream_kafka.planning.dead_letter import Origin, error_headers
from kstream_kafka.source.earlier_letters import CLOCKS_MS, EarlierLetters

from kstream.batch_time import Time
from kstream.worker.current_record import CurrentRecord
from kstream.worker.record_failure import TRANSFORMATION, RecordFailure, RecordStep
from tests.kstream_kafka.fakes import FakeClient, FakeConsumer, Message

OLDEST, NEWEST = Time(1_000_000_000), Time(1_000_005_000)


def letter(at: int, offset: int, batch: Time, application: str = "shop", operator: str = "map") -> Message:
    failure = RecordFailure(CurrentRecord("orders", 2, offset), RecordStep(TRANSFORMATION, operator, "f"), "E", "", "")
    headers: Any = error_headers(failure, Origin(application, 0, batch.milliseconds))
    return Message(at, where=("dead", 0), extra=headers)


class Topic:
    """The topic "dead", with one partition."""

    def __init__(self, *messages: Message, since: int = 0) -> None:
        self.client = FakeClient({("dead", 0): (0, len(messages))})
        self.client.times["dead", 0] = [(OLDEST.milliseconds - CLOCKS_MS, since)]
        self.consumer = FakeConsumer([list(messages[since:])])
        self.letters = EarlierLetters(lambda: self.client, lambda: self.consumer)

    def find(self) -> Any:
        return self.letters.find("dead", "shop", OLDEST, NEWEST)


def test_the_letters_of_batches_that_run_again_are_found_by_batch_and_origin() -> None:
    topic = Topic(
        letter(0, 5, OLDEST), letter(1, 7, OLDEST), letter(2, 5, OLDEST), letter(3, 5, NEWEST, operator="valueDecoder"),
        letter(4, 8, Time(OLDEST.milliseconds - 1000)), letter(5, 9, Time(NEWEST.milliseconds + 1000)),
        letter(6, 6, OLDEST, application="another"), Message(7, where=("dead", 0)),
    )  # fmt: skip
    assert topic.find() == {
        OLDEST.milliseconds: {("orders", 2, "map"): {5, 7}},
        NEWEST.milliseconds: {("orders", 2, "valueDecoder"): {5}},
    }
    assert topic.client.closed and topic.consumer.closed


def test_the_topic_is_read_once_and_from_a_little_before_the_oldest_batch_on() -> None:
    topic = Topic(letter(0, 5, OLDEST), letter(1, 7, OLDEST), since=1)
    assert topic.find() == {OLDEST.milliseconds: {("orders", 2, "map"): {7}}}
    assert [begin[2] for begin in topic.consumer.assigned] == [1]
    assert topic.find() == {} and topic.client.asked.count("at 1") == 1


def test_without_letters_since_then_no_consumer_is_made() -> None:
    topic = Topic()
    topic.letters = EarlierLetters(lambda: topic.client, lambda: pytest.fail("a consumer"))
    topic.client.times.clear()
    assert topic.find() == {}


def test_brokers_that_are_away_are_asked_again_for_the_next_batch(caplog: pytest.LogCaptureFixture) -> None:
    topic = Topic(letter(0, 5, OLDEST))
    topic.client.failure = BrokerUnreachableError("h:1", 1000, "no")
    assert topic.find() == {} and "cannot be read" in caplog.text
    topic.client.failure = None
    assert topic.find() == {OLDEST.milliseconds: {("orders", 2, "map"): {5}}}


def test_a_topic_that_cannot_be_read_is_a_warning_and_the_batch_runs(caplog: pytest.LogCaptureFixture) -> None:
    topic = Topic(letter(0, 5, OLDEST))
    topic.client.failure = NotAuthorizedError("h:1", "READ", "topic", "dead", "no")
    with caplog.at_level(logging.WARNING):
        assert topic.find() == {}
    assert f"the dead letters in dead since batch {OLDEST} cannot be read, so some may be written again: Kafka at h:1" in caplog.text
