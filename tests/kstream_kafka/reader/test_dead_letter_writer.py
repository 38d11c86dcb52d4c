"""The letters of a task: when they are sent, by which producer, and what a letter lacks."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from kstream_kafka.client import record_producer
from kstream_kafka.planning.dead_letter import dead_letter_of
from kstream_kafka.reader import dead_letter_writer
from kstream_kafka.reader.dead_letter_writer import KafkaDeadLetters

from kstream.errors import DeadLetterNotStoredError, TooManyRecordErrorsError
from kstream.worker import process
from kstream.worker.current_record import CurrentRecord
from kstream.worker.record_errors import ErrorLimit, ErrorsPolicy, TaskErrors
from kstream.worker.record_failure import VALUE_CONVERTER, RecordStep
from tests.kstream_kafka.fakes import Message

STEP = RecordStep(VALUE_CONVERTER, "valueDecoder", "json.loads")
BROKERS = {"bootstrap.servers": "h:1"}


class Cluster:
    """What the producers of this process have sent, by the address of their brokers."""

    def __init__(self) -> None:
        self.sent: dict[str, list[Any]] = {}
        self.refuses = False
        self.producers = self.asked = 0


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster()

    class Producer:
        def __init__(self, settings: Any) -> None:
            made.producers += 1
            self._sent = made.sent.setdefault(settings["bootstrap.servers"], [])

        def send(self, topic: str, key: Any, value: Any, headers: Any, on_failure: Any) -> None:
            made.asked += 1
            if made.refuses:
                on_failure(f"{topic}: it is full")
            else:
                self._sent.append((key, value, headers))

        def flush(self) -> int:
            return 0

    monkeypatch.setattr(record_producer, "RecordProducer", Producer)
    monkeypatch.setattr(process, "_made", {})
    yield made


def task(settings: Any = BROKERS, limit: int = 99) -> TaskErrors:
    return TaskErrors(ErrorsPolicy(ErrorLimit(limit / 100, 100), KafkaDeadLetters(settings, "dead", "shop", 1000)), 0)


def fail(errors: TaskErrors, *offsets: int, value: bytes = b"{", headers: Any = None) -> None:
    for offset in offsets:
        errors.tolerate(ValueError("no"), CurrentRecord("t", 0, offset, raw=Message(offset, value, b"k", extra=headers)), STEP)


def offsets_of(sent: list[Any]) -> list[int | None]:
    letters = [dead_letter_of(headers) for _, _, headers in sent]
    return [letter.offset for letter in letters if letter is not None]


def test_letters_go_to_the_brokers_at_the_end_of_their_task_in_order(cluster: Cluster) -> None:
    errors = task()
    fail(errors, 3, 5, headers=[("a", None)])
    assert cluster.sent == {"h:1": []}
    errors.flush()
    assert offsets_of(cluster.sent["h:1"]) == [3, 5]
    assert all((key, value, headers[0]) == (b"k", b"{", ("a", None)) for key, value, headers in cluster.sent["h:1"])


def test_a_task_with_too_many_errors_leaves_no_letter_however_often_it_runs(cluster: Cluster) -> None:
    for _ in range(3):
        errors = task(limit=2)
        fail(errors, 3, 5)
        with pytest.raises(TooManyRecordErrorsError):
            fail(errors, 7)
        errors.flush()  # the reader of a task is closed when the task fails
        assert errors.letters == {}
    assert cluster.sent == {"h:1": []}


def test_many_letters_wait_in_a_file(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task holds no more than HELD_BYTES of them in memory."""
    monkeypatch.setattr(dead_letter_writer, "HELD_BYTES", 100_000)
    errors = task()
    tracemalloc.start()
    try:
        for offset in range(90):
            fail(errors, offset, value=b"%d" % offset * 10_000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 500_000, "of 1,800,000 bytes"
    errors.flush()
    assert offsets_of(cluster.sent["h:1"]) == list(range(90))
    assert [len(value) for _, value, _ in cluster.sent["h:1"]] == [len(str(offset)) * 10_000 for offset in range(90)]


def test_after_a_letter_that_is_not_stored_the_next_task_has_another_producer(cluster: Cluster) -> None:
    for refuses, producers in ((True, 1), (False, 2), (False, 2)):
        cluster.refuses = refuses
        errors = task()
        fail(errors, 3)
        if refuses:
            with pytest.raises(DeadLetterNotStoredError, match="could not be stored in dead: it is full"):
                errors.flush()
        else:
            errors.flush()
        assert cluster.producers == producers
    assert offsets_of(cluster.sent["h:1"]) == [3, 3]


def test_after_the_first_letter_that_is_not_stored_no_further_one_is_sent(cluster: Cluster) -> None:
    """With brokers that are away each of them would wait."""
    errors = task()
    fail(errors, *range(50))
    cluster.refuses = True
    with pytest.raises(DeadLetterNotStoredError):
        errors.flush()
    assert cluster.asked == 1


def test_the_letters_of_two_clusters_in_one_process_go_to_their_own_brokers(cluster: Cluster) -> None:
    for offset, bootstrap in (3, "h:1"), (4, "other:1"), (5, "h:1"):
        errors = task({"bootstrap.servers": bootstrap})
        fail(errors, offset)
        errors.flush()
    assert {bootstrap: offsets_of(sent) for bootstrap, sent in cluster.sent.items()} == {"h:1": [3, 5], "other:1": [4]}
    assert cluster.producers == 2
