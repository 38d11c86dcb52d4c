"""Counting letters and putting them back, without a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from kstream_kafka.errors import KafkaError
from kstream_kafka.planning.dead_letter import CONNECT, HEADERS, TOPIC, DeadLetter
from kstream_kafka.tools import dead_letter_reading
from kstream_kafka.tools.dead_letter_reading import DeadLetterTopic, Letter, counts_by_kind
from kstream_kafka.tools.replay_position import ChosenExceptions

from kstream.connectors import LogRecord
from kstream.errors import ConfigurationError
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

    def add(self, partition: int, offset: int, *more: tuple[str, bytes], exception: str = "KeyError") -> None:
        """Add a letter of orders-0@offset to a partition."""
        log = self.logs[partition]
        more = ((CONNECT + "exception.class.name", exception.encode()), *more)
        headers = [(TOPIC, b"orders"), (CONNECT + "partition", b"0"), (CONNECT + "offset", b"%d" % offset), *more]
        log.append(LogRecord("dead", partition, len(log), headers=headers, value=b"%d" % offset))
        self.client.logs["dead", partition] = (0, len(log))

    def put_back(self, **given: Any) -> dead_letter_reading.PutBack:
        return DeadLetterTopic({"bootstrap.servers": "h:1"}, "dead").put_back(**given)


class Committing(FakeClient):
    """A client whose group has what was committed, at once."""

    def __init__(self, logs: Any) -> None:
        super().__init__(logs)
        self.group: dict[Partition, tuple[int, str]] = {}
        """Partition → committed offset and its metadata."""

    def committed_with_metadata(self, group: str, partitions: Any) -> dict[Partition, tuple[int, str]]:
        return dict(self.group)

    def commit(
        self,
        group: str,
        offsets: Mapping[Partition, int],
        on_done: Callable[[Exception | None], None],
        metadata: Mapping[Partition, str] | None = None,
    ) -> None:
        self.group.update({p: (at, (metadata or {}).get(p, "")) for p, at in offsets.items()})
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
    assert (
        letters.put_back().records == 1
        and letters.back == [7, 7]
        and letters.client.group
        == {
            ("dead", 0): (1, ""),
            ("dead", 1): (0, ""),
        }
    )


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


# -- by exception


def test_letters_with_an_excluded_exception_wait_and_go_back_in_a_later_run(letters: Letters) -> None:
    for offset, exception in enumerate(["KeyError", "ValueError", "KeyError", "OSError"]):
        letters.add(offset % 2, offset, exception=exception)
    result = letters.put_back(chosen=ChosenExceptions(all_but=["ValueError", "OSError"]))
    assert (result.records, result.not_chosen) == (2, 2) and letters.back == [0, 2]
    letters.add(0, 9)
    result = letters.put_back(chosen=ChosenExceptions(all_but=["OSError"]))
    assert (result.records, result.not_chosen, result.before) == (2, 1, 2) and letters.back == [0, 2, 9, 1]
    assert letters.put_back().records == 1 and letters.back[4:] == [3]
    assert letters.put_back().records == 0 and letters.client.group["dead", 1] == (2, "")


def test_only_letters_with_a_named_exception_go_back_and_the_others_later(letters: Letters) -> None:
    for offset, exception in enumerate(["KeyError", "ValueError", "KeyError"]):
        letters.add(0, offset, exception=exception)
    result = letters.put_back(chosen=ChosenExceptions(only=["ValueError"]))
    assert (result.records, result.not_chosen) == (1, 2) and letters.back == [1]
    assert letters.client.group["dead", 0] == (0, '{"ValueError":3}')
    result = letters.put_back()
    assert (result.records, result.before) == (2, 1) and letters.back == [1, 0, 2]


def test_a_record_with_two_letters_goes_back_once_with_the_chosen_one(letters: Letters) -> None:
    letters.add(0, 7, exception="ValueError")
    letters.add(1, 7)
    result = letters.put_back(chosen=ChosenExceptions(all_but=["ValueError"]))
    assert (result.records, result.not_chosen) == (1, 1) and letters.back == [7]
    result = letters.put_back()
    assert (result.records, result.repeats, result.before) == (0, 1, 1)


def test_a_run_that_is_ended_early_leaves_neither_chosen_nor_other_letters_behind(letters: Letters) -> None:
    letters.add(0, 1, exception="ValueError")
    letters.add(0, 2)
    letters.unanswered = 1
    with pytest.raises(KafkaError):
        letters.put_back(chosen=ChosenExceptions(all_but=["ValueError"]))
    letters.unanswered = 0
    assert letters.put_back().records == 2


def test_an_exception_that_no_letter_has_is_refused_with_those_there_are(letters: Letters) -> None:
    with pytest.raises(ConfigurationError, match=r"^no letter of dead has the exception 'KeyErr'$"):
        letters.put_back(chosen=ChosenExceptions(all_but=["KeyErr"]))
    letters.add(0, 7)
    letters.add(1, 8, exception="OSError")
    for chosen in ChosenExceptions(only=["KeyErr"]), ChosenExceptions(all_but=["OSError", "KeyErr"]):
        with pytest.raises(ConfigurationError, match="no letter of dead has the exception 'KeyErr'; the letters have: KeyError, OSError"):
            letters.put_back(chosen=chosen)
    assert (letters.producers, letters.client.group) == (0, {})


def test_a_commit_of_someone_else_is_refused(letters: Letters) -> None:
    letters.add(0, 7)
    letters.client.group["dead", 0] = (1, "mine")
    with pytest.raises(KafkaError, match="commit that `kstream dlq` has not made, with the metadata 'mine'"):
        letters.put_back()
    assert letters.back == []
