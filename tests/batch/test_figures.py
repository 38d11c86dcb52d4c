"""Figures: how they fold, and their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from kstream.batch import InputOutcome
from kstream.batch.figures import PARTS, FigureField, Figures, InputFigures, StateFigures, Unit, declared, figure, together


@dataclass(frozen=True, slots=True)
class CommitFigures(Figures):
    part: ClassVar[str] = "commit"
    errors: int = 0
    sent_bytes: int | None = figure("sent", Unit.BYTES, "Bytes.")
    longest_ms: int | None = figure("longest", Unit.MILLISECONDS, "The longest.", adds=False)


def test_parts_and_batches_add_up_or_the_largest_part_and_the_newest_batch_count() -> None:
    one, other = CommitFigures(1, 10, 70), CommitFigures(2, 5, 40)
    assert one.plus(other) == CommitFigures(3, 15, 70)
    assert one.then(other) == CommitFigures(3, 15, 40)


def test_what_one_of_them_does_not_know_is_what_the_other_knows() -> None:
    known, unknown = CommitFigures(0, 10, 70), CommitFigures()
    assert known.plus(unknown) == unknown.plus(known) == known.then(unknown) == unknown.then(known) == known
    assert unknown.plus(unknown) == unknown
    assert CommitFigures(0, 0, 0).plus(unknown) == CommitFigures(0, 0, 0)


def test_no_part_has_the_figures_of_nothing() -> None:
    assert together(CommitFigures(), []) == CommitFigures()
    assert together(CommitFigures(), [CommitFigures(1, 2), CommitFigures(1, 3, 4)]) == CommitFigures(2, 5, 4)


def test_the_names_are_made_of_the_part_and_the_field() -> None:
    assert [(one.name, one.key) for one in declared(CommitFigures)] == [
        ("commit_sent_bytes", "sentBytes"),
        ("commit_longest_ms", "longestMs"),
    ]
    assert [(found.field.name, found.value) for found in CommitFigures(7, 0).known()] == [("commit_sent_bytes", 0)]


def test_a_person_reads_the_label_and_the_unit() -> None:
    sent, longest = declared(CommitFigures)
    assert (sent.text(4096), longest.text(7)) == ("sent 4096 bytes", "longest 7 ms")
    assert FigureField("tries", Unit.COUNT, "Tries.", True, "tries").text(3) == "tries 3"


@pytest.mark.parametrize("part", PARTS)
def test_a_name_says_the_unit(part: type[Figures]) -> None:
    endings = {Unit.BYTES: "bytes", Unit.MILLISECONDS: "_ms", Unit.COUNT: ""}
    for one in declared(part):
        assert one.name.startswith(f"{part.part}_") and one.name.endswith(endings[one.unit])
        assert one.meaning.endswith(".") and one.meaning[0].isupper()


def test_the_latency_of_an_input_is_from_its_oldest_record_to_the_end_of_the_batch() -> None:
    outcome = InputOutcome(errors=[("map", "ValueError", 3)], num_bytes=70, oldest_ms=1000)
    assert outcome.figures(2500) == InputFigures(3, 0, 0, 70, 1500)
    assert outcome.figures(900).latency_ms == 0, "the clock of the producer is ahead"
    assert outcome.figures(None).latency_ms is InputOutcome().figures(2500).latency_ms is None


def test_no_two_figures_have_one_name() -> None:
    names = [one.name for part in PARTS for one in declared(part)]
    assert len(names) == len(set(names))
    assert {"input_bytes", "state_written_bytes"} <= set(names)
    assert InputFigures().known() == StateFigures().known() == []
