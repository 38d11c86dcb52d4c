"""The reader of receipts reads up to the high watermark, however the events of the client come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from kstream_kafka.client import topic_reader
from kstream_kafka.client.topic_reader import TopicReader
from kstream_kafka.errors import BrokerUnreachableError, KafkaError


@dataclass
class Message:
    """A record, or an event if it has an error."""

    at: int
    of: int = 0
    code: int | None = None

    def topic(self) -> str:
        return "receipts"

    def partition(self) -> int:
        return self.of

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return b"%d" % self.at

    def error(self) -> Any:
        return None if self.code is None else ClientError(self.code)


def end(at: int, of: int = 0) -> Message:
    return Message(at, of, ClientError._PARTITION_EOF)


@dataclass
class FakeConsumer:
    """Gives these answers, one after the other, and then none. `watermarks`: the high watermark of each partition."""

    answers: list[Sequence[Message]]
    watermarks: dict[int, int]
    assigned: list[dict[int, int]] = field(default_factory=list[dict[int, int]])

    def list_topics(self, *_: Any, **__: Any) -> None: ...

    def assign(self, partitions: Sequence[Any]) -> None:
        self.assigned.append({p.partition: p.offset for p in partitions})

    def unassign(self) -> None:
        self.assigned.append({})

    def consume(self, most: int, seconds: float) -> list[Message]:
        assert most == 1 or seconds == 0, "the client waits until it has so many messages, or until the end of the time"
        return list(self.answers.pop(0)) if self.answers else []

    def get_watermark_offsets(self, partition: Any, cached: bool) -> tuple[int, int]:
        assert cached, "no request is needed"
        return 0, self.watermarks[partition.partition]


def read(monkeypatch: pytest.MonkeyPatch, answers: list[Sequence[Message]], watermarks: dict[int, int], seconds: float = 60.0) -> list[int]:
    consumer = FakeConsumer(answers, watermarks)
    monkeypatch.setattr(topic_reader, "new_client", lambda _kind, _settings: consumer)
    found = [message.offset() for message in TopicReader({}).read("receipts", dict.fromkeys(watermarks, 0), seconds).messages]
    assert consumer.assigned == [dict.fromkeys(watermarks, 0), {}]
    return found


def test_the_end_below_an_open_transaction_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, [[Message(0), end(1)], [], [Message(3), end(5)]], {0: 5}) == [0, 3]


def test_control_records_move_the_end_but_no_record_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, [[Message(0), Message(1)], [end(3)]], {0: 3}) == [0, 1]


def test_each_partition_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, [[Message(0, 1), end(1, 1)], [end(0, 0)]], {0: 0, 1: 1}) == [0]


def test_a_log_that_grows_while_it_is_read_ends_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is the high watermark of the first answer."""
    consumer = FakeConsumer([[Message(0)], [Message(1)], [Message(2)]], {0: 2})
    monkeypatch.setattr(topic_reader, "new_client", lambda _kind, _settings: consumer)
    grows = consumer.get_watermark_offsets

    def watermarks(partition: Any, cached: bool) -> tuple[int, int]:
        low, high = grows(partition, cached)
        consumer.watermarks[0] += 10
        return low, high

    monkeypatch.setattr(consumer, "get_watermark_offsets", watermarks)
    assert [m.offset() for m in TopicReader({}).read("receipts", {0: 0}, 60.0).messages] == [0, 1]


def test_an_answer_that_has_not_what_is_there_does_not_end_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader of yesterday has an earlier high watermark."""
    consumer = FakeConsumer([[Message(0), end(1)], [], [Message(1), Message(2), end(3)]], {0: 1})
    monkeypatch.setattr(topic_reader, "new_client", lambda _kind, _settings: consumer)
    log = TopicReader({}).read("receipts", {0: 0}, 60.0, least={0: 3})
    assert ([message.offset() for message in log.messages], log.ends) == ([0, 1, 2], {0: 3})


def test_what_comes_behind_the_end_of_a_partition_while_others_are_read_is_not_taken_for_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next read begins at that offset. It would miss a record that this one has not returned."""
    consumer = FakeConsumer([[Message(0), Message(1)], [Message(2), end(3)], [end(0, 1)]], {0: 2, 1: 0})
    monkeypatch.setattr(topic_reader, "new_client", lambda _kind, _settings: consumer)
    log = TopicReader({}).read("receipts", {0: 0, 1: 0}, 60.0)
    assert ([message.offset() for message in log.messages], log.ends) == ([0, 1], {0: 2, 1: 0})


def test_an_end_that_does_not_come_in_time_is_an_outage_and_says_what_may_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        BrokerUnreachableError, match=r"receipts could not be read to its end, in partitions \[0\]; a transaction may be open"
    ):
        read(monkeypatch, [[Message(0), end(1)]], {0: 5}, seconds=0.0)


def test_an_offset_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaError, match="an offset that was there is gone"):
        read(monkeypatch, [[Message(0, code=ClientError._AUTO_OFFSET_RESET)]], {0: 5})


def test_a_leader_election_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Sequence[Message]] = [[Message(0, code=ClientError.NOT_LEADER_FOR_PARTITION)], [Message(0), end(1)]]
    assert read(monkeypatch, answers, {0: 1}) == [0]
