"""Counting letters, without a broker."""

from __future__ import annotations

from kstream_kafka.planning.dead_letter import DeadLetter
from kstream_kafka.tools.dead_letter_reading import Letter, counts_by_kind

from kstream.connectors import LogRecord


def letter(offset: int, exception: str = "KeyError", batch: int | None = 1000, topic: str = "orders") -> Letter:
    return Letter(LogRecord("dead", 0, 0), DeadLetter(topic, 0, offset, [], None, batch, "map at job.py:7", exception))


def test_letters_are_counted_by_origin_exception_operator_and_batch_and_repeats_as_one_record() -> None:
    others: list[int] = []
    found = counts_by_kind(
        [letter(5), letter(7, batch=2000), letter(5), letter(9, "ValueError"), letter(1, topic="a"), Letter(LogRecord("dead", 0, 9), None)],
        lambda: others.append(1),
    )
    assert {(topic, exception, batch): (n.letters, len(n.places)) for (topic, exception, _, batch), n in found.items()} == {
        ("a", "KeyError", 1000): (1, 1),
        ("orders", "KeyError", 1000): (2, 1),
        ("orders", "KeyError", 2000): (1, 1),
        ("orders", "ValueError", 1000): (1, 1),
    }
    assert list(found) == sorted(found) and len(others) == 1
