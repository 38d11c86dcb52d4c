"""Counting letters and putting them back, without a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from kstream_kafka.errors import KafkaError
from kstream_kafka.planning.dead_letter import CONNECT, HEADERS, TOPIC, DeadLetter
from kstream_kafka.tools import dead_letter_reading
from kstream_kafka.tools.dead_letter_reading import DeadLetterTopic, Letter, counts_by_kind

from kstream.connectors import LogRecord
from kstream.offsets.offset_range import Partition
from tests.kstream_kafka.fakes import FakeClient


def letter(offset: int, exception: str = "KeyError", batch: int | None = 1000, topic: str = "orders") -> Letter:
    return Letter(LogRecord("dead", 0, 0), DeadLetter(topic, 0, offset, [], None, batch, "map at job.py:7", exception))


LETTERS = [
    letter(5),
    letter(7, batch=2000),
    letter(5),
    letter(9, "ValueError"),
    letter(1, topic="a"),
    Letter(LogRecord("dead", 0, 9), None),
]


def test_letters_are_counted_by_origin_exception_and_operator_over_all_batches_and_repeats_as_one_record() -> None:
    found, others = counts_by_kind(LETTERS)
    assert {kind: (n.letters, len(n.places)) for kind, n in found.items()} == {
        ("a", "KeyError", "map at job.py:7", None): (1, 1),
        ("orders", "KeyError", "map at job.py:7", None): (3, 2),
        ("orders", "ValueError", "map at job.py:7", None): (1, 1),
    }
    assert list(found) == sorted(found) and others == 1


def test_letters_are_counted_batch_by_batch_on_request() -> None:
    found, others = counts_by_kind(LETTERS, by_batch=True)
    assert {(topic, exception, batch): (n.letters, len(n.places)) for (topic, exception, _, batch), n in found.items()} == {
        ("a", "KeyError", 1000): (1, 1),
        ("orders", "KeyError", 1000): (2, 1),
        ("orders", "KeyError", 2000): (1, 1),
        ("orders", "ValueError", 1000): (1, 1),
    }
    assert list(found) == sorted(found) and others == 1


# -- putting records back


class Letters:
    """The topic "dead" with two partitions, in which a test puts letters of the topic "orders", and the records that went back."""

    def __init__(self) -> None:
        self.client = Committing({("dead", 0): (0, 0), ("dead", 1): (0, 0)})
        self.logs: dict[int, list[LogRecord]] = {0: [], 1: []}
        self.back: list[int] = []
        self.producers = 0
        self.unanswered = 0
        """How many records no broker answers."""

    def add(self, partition: int, offset: int, *more: tuple[str, bytes]) -> None:
        """Add a letter of orders-0@offset to a partition."""
        log = self.logs[partition]
        headers = [(TOPIC, b"orders"), (CONNECT + "partition", b"0"), (CONNECT + "offset", b"%d" % offset), *more]
        log.append(LogRecord("dead", partition, len(log), headers=headers, value=b"%d" % offset))
        self.client.logs["dead", partition] = (0, len(log))

    def put_back(self, **given: Any) -> dead_letter_reading.PutBack:
        return DeadLetterTopic({"bootstrap.servers": "h:1"}, "dead").put_back(**given)


class Committing(FakeClient):
    """A client whose group has what was committed, at once."""

    def __init__(self, logs: Any) -> None:
        super().__init__(logs)
        self.group: dict[Partition, int] = {}

    def committed(self, group: str, partitions: Any) -> dict[Partition, int]:
        return dict(self.group)

    def commit(self, group: str, offsets: Mapping[Partition, int], on_done: Callable[[Exception | None], None]) -> None:
        self.group.update(offsets)
        on_done(None)


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> Letters:
    made = Letters()

    class Producer:
        def __init__(self, _settings: Any) -> None:
            made.producers += 1

        def send(self, _topic: str, _key: Any, value: bytes, *_: Any, **__: Any) -> None:
            made.back.append(int(value))

        def flush(self) -> int:
            return made.unanswered

    def read(_connection: Any, _data: Any, ranges: Sequence[Any]) -> Any:
        return (record for _, partition, begin, end in ranges for record in made.logs[partition][begin:end])

    monkeypatch.setattr(dead_letter_reading, "KafkaDriverClient", lambda _params: made.client)
    monkeypatch.setattr(dead_letter_reading, "RecordProducer", Producer)
    monkeypatch.setattr(dead_letter_reading, "read_records", read)
    return made


def test_a_record_goes_back_once_whatever_partitions_its_letters_are_in(letters: Letters) -> None:
    letters.add(1, 7)
    assert letters.put_back().records == 1
    letters.add(0, 7)  # the batch ran again
    letters.add(0, 8)
    result = letters.put_back()
    assert (result.records, result.repeats, result.before) == (1, 1, 1) and letters.back == [7, 8]
    assert (again := letters.put_back()).records == 0 and again.before == 3


def test_what_no_broker_has_answered_is_not_remembered_and_goes_back_in_the_next_run(letters: Letters) -> None:
    letters.add(0, 7)
    letters.unanswered = 1
    with pytest.raises(KafkaError, match="put back into orders: 1 records have had no answer"):
        letters.put_back()
    assert letters.client.group == {}
    letters.unanswered = 0
    assert letters.put_back().records == 1 and letters.back == [7, 7] and letters.client.group == {("dead", 0): 1}


def test_a_dry_run_counts_and_makes_no_producer(letters: Letters) -> None:
    letters.add(0, 7)
    assert letters.put_back(write=False).records == 1
    assert (letters.producers, letters.back, letters.client.group) == (0, [], {})


@pytest.mark.parametrize("why", [b"not readable", b"14 left out"])
def test_a_letter_without_all_headers_of_its_record_does_not_go_back(letters: Letters, why: bytes) -> None:
    letters.add(0, 7, (HEADERS, why))
    letters.add(0, 8)
    result = letters.put_back()
    assert (result.records, result.without_headers) == (1, 1) and letters.back == [8]
