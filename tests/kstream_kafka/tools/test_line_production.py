"""Lines as records: their form, the count of their answers, and what the command says about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from kstream_kafka.tools.line_production import (
    MOST_PARTITIONS,
    MOST_REFUSED,
    Answers,
    LineForm,
    LineProduction,
    MalformedLineError,
    stored_sentence,
    trouble_sentence,
)


class Broker:
    """Stores every record in partition 0, except values that are to be refused or that get no answer."""

    def __init__(self, refuse: bytes = b"", silent: bytes = b"") -> None:
        self.refuse, self.silent = refuse, silent
        self.records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int | None]] = []

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        on_failure: Callable[[str], None],
        partition: int | None = None,
        on_stored: Callable[[int, int], None] | None = None,
    ) -> None:
        if value and self.refuse and self.refuse in value:
            on_failure("too large")
        elif not (value and self.silent and self.silent in value):
            assert on_stored is not None
            self.records.append((key, value, list(headers), partition))
            on_stored(partition or 0, len(self.records) - 1)

    def flush(self, seconds: float) -> int:
        return 1 if self.silent else 0


def produced(lines: Sequence[bytes], broker: Broker, form: LineForm | None = None) -> Answers:
    production = LineProduction(broker, "orders", form or LineForm())
    production.send(lines)
    production.wait(0)
    return production.answers


def test_only_the_line_feed_is_no_part_of_the_record() -> None:
    broker = Broker()
    produced([b"a\n", b"\n", b" b\r\n", b"\xff\x00"], broker)
    assert [value for _, value, _, _ in broker.records] == [b"a", b"", b" b\r", b"\xff\x00"]
    assert {key for key, _, _, _ in broker.records} == {None}


def test_the_first_separator_ends_the_key_and_the_options_are_in_every_record() -> None:
    broker = Broker()
    produced([b"k::v:w\n", b":v\n"], broker, LineForm(b":", (("source", b"x=y"),), 3))
    assert broker.records == [(b"k", b":v:w", [("source", b"x=y")], 3), (b"", b"v", [("source", b"x=y")], 3)]


def test_a_line_without_the_separator_is_named_and_the_others_are_stored() -> None:
    with pytest.raises(MalformedLineError, match="no key separator ':'"):
        LineForm(b":").key_and_value(b"v\n")
    answers = produced([b"a:1\n", b"b\n", b"c:3\n"], Broker(), LineForm(b":"))
    assert stored_sentence("orders", answers) == "2 records are stored in orders: 2 in partition 0 at offsets 0 to 1"
    assert trouble_sentence(answers) == "1 record is not stored: line 2: it has no key separator ':'"


def test_refused_lines_that_follow_each_other_are_named_together() -> None:
    answers = produced([b"x", b"ok", b"x", b"x", b"ok"], Broker(refuse=b"x"))
    assert trouble_sentence(answers) == "3 records are not stored: line 1: too large; lines 3 to 4: too large"
    assert answers.acknowledged == 2 and answers.read == 5


def test_no_more_lines_are_read_once_many_are_refused() -> None:
    answers = produced([b"x"] * 100, Broker(refuse=b"x"))
    assert answers.read == MOST_REFUSED
    assert trouble_sentence(answers).endswith(f"lines 1 to {MOST_REFUSED}: too large. No line after line {MOST_REFUSED} was read")


def test_refusals_in_many_places_stay_one_line_of_some_length() -> None:
    """Refusals come late: more lines may be on their way than are refused in the end."""
    answers = Answers(read=100, refused=dict.fromkeys(range(1, 100, 2), "gone"))
    assert trouble_sentence(answers).startswith("50 records are not stored: line 1: gone; line 3: gone; ")
    assert trouble_sentence(answers).endswith("line 19: gone; and lines in 40 more places. No line after line 100 was read")


def test_a_record_without_an_answer_is_neither_stored_nor_refused() -> None:
    answers = produced([b"a", b"x"], Broker(silent=b"x"))
    assert (answers.acknowledged, answers.unanswered) == (1, 1)
    assert trouble_sentence(answers) == "1 record had no answer, and may be stored or not: the brokers gave none in time"
    assert "the command was ended first" in trouble_sentence(answers, is_cut_short=True)


def test_a_second_interrupt_leaves_the_count_of_records_without_an_answer() -> None:
    class Interrupted(Broker):
        def flush(self, seconds: float) -> int:
            raise KeyboardInterrupt

    production = LineProduction(Interrupted(refuse=b"r", silent=b"x"), "orders", LineForm(b":"))
    production.send([b":a", b":x", b":r", b":x", b"no key"])
    with pytest.raises(KeyboardInterrupt):
        production.wait(3)
    assert production.answers.acknowledged == 1
    assert trouble_sentence(production.answers, is_cut_short=True) == (
        "2 records are not stored: line 3: too large; line 5: it has no key separator ':'. "
        "2 records had no answer, and may be stored or not: the command was ended first"
    )


def test_one_sentence_says_how_many_records_are_where() -> None:
    answers = Answers(read=1)
    answers.add(2, 7)
    assert stored_sentence("orders", answers) == "1 record is stored in orders: 1 in partition 2 at offset 7"
    answers.add(0, 9)
    answers.add(0, 4)
    sentence = "3 records are stored in orders: 2 in partition 0 at offsets 4 to 9, 1 in partition 2 at offset 7"
    assert stored_sentence("orders", answers) == sentence and trouble_sentence(answers) == ""
    assert stored_sentence("orders", Answers()) == "0 records are stored in orders: standard input has no line"


def test_a_sentence_about_many_partitions_stays_short() -> None:
    answers = Answers(read=1)
    for partition in range(MOST_PARTITIONS + 3):
        answers.add(partition, 0)
    assert stored_sentence("orders", answers).endswith("1 in partition 7 at offset 0, 3 in 3 more partitions")
