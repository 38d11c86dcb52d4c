"""`kstream dlq ls`, `show` and what `replay` says, without a broker."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from kstream_kafka.planning.dead_letter import DeadLetter
from kstream_kafka.tools import dlq_command
from kstream_kafka.tools.dead_letter_reading import Letter, PutBack
from kstream_kafka.tools.replay_position import ChosenExceptions

from kstream.cli import main
from kstream.connectors import LogRecord

HOSTILE = "\x1b]0;PWNED\x07\x1b[2J\x1b[31mred\r\x9b31m\u202e"
"""Sets the title of a terminal, clears it, makes it red, and turns the direction of what follows."""


def letter(offset: int, batch: int = 1000, text: str = "") -> Letter:
    record = LogRecord("dead", 0, offset, key=text.encode(), value=text.encode(), headers=[(text, text.encode())])
    trace = f"Traceback (most recent call last):\n  File job.py\nValueError: {text}\n"
    headers = [(text, text.encode())]
    return Letter(record, DeadLetter(f"orders{text}", 0, offset, headers, None, batch, f"map{text}", f"KeyError{text}", text, trace))


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> list[Letter]:
    made: list[Letter] = []

    class Topic:
        def __init__(self, *_: object) -> None: ...

        group = "kstream-dlq-dead"

        def letters(self) -> Iterator[Letter]:
            return iter(made)

        def put_back(self, write: bool, chosen: ChosenExceptions) -> PutBack:
            left = [letter.dead for letter in made if letter.dead is not None and letter.dead.exception not in chosen]
            return PutBack(len(made) - len(left), {"orders"} if made else set(), repeats=14, not_chosen=len(left))

        def close(self) -> None: ...

    monkeypatch.setattr(dlq_command, "DeadLetterTopic", Topic)
    return made


def dlq(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["dlq", *arguments, "--bootstrap", "h:1"])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    "arguments", [["show", "dead", "--stacktrace"], ["show", "dead", "--format", "hex", "--stacktrace"], ["ls", "dead"]]
)
def test_no_text_of_a_letter_reaches_the_terminal_as_a_command(letters: list[Letter], arguments: list[str]) -> None:
    letters.append(letter(5, text=HOSTILE))
    shown = dlq(*arguments)
    assert [character for character in shown if unicodedata.category(character) in ("Cc", "Cf") and character != "\n"] == []
    assert "KeyError" in shown


def test_a_stack_trace_is_shown_on_request_line_by_line(letters: list[Letter]) -> None:
    letters.append(letter(5, text="no"))
    assert "Traceback" not in dlq("show", "dead")
    assert "\n          Traceback (most recent call last):\n            File job.py\n          ValueError: no\n" in dlq(
        "show", "dead", "--stacktrace"
    )


def test_letters_are_counted_over_all_batches_or_batch_by_batch(letters: list[Letter]) -> None:
    letters += [letter(5), letter(6, 2000), letter(5)]
    (row,) = json.loads(dlq("ls", "dead", "--json"))["kinds"]
    assert row == {"topic": "orders", "exception": "KeyError", "operator": "map", "letters": 3, "records": 2}
    rows = json.loads(dlq("ls", "dead", "--json", "--by-batch"))["kinds"]
    assert [(row["batch"], row["letters"], row["records"]) for row in rows] == [(1000, 2, 1), (2000, 1, 1)]
    assert "batch (ms)" not in dlq("ls", "dead") and "batch (ms)" in dlq("ls", "dead", "--by-batch")


def test_a_replay_says_how_many_repeats_it_left_where_they_are(letters: list[Letter]) -> None:
    letters.append(letter(1))
    said = CliRunner().invoke(main, ["dlq", "replay", "dead", "--bootstrap", "h:1"]).stdout
    assert said == "1 record of dead went back into orders\n14 repeats of these did not go back\n"


def test_a_replay_says_how_many_letters_it_left_for_their_exception(letters: list[Letter]) -> None:
    letters += [letter(1), letter(2, text="No"), letter(3, text="No")]
    said = dlq("replay", "dead", "--exclude-exception", "KeyErrorNo", "--exclude-exception", "OSError")
    assert said.startswith("1 record of dead went back into orders\n") and "2 letters with these exceptions did not go back\n" in said
    assert "1 letter with other exceptions did not go back\n" in dlq("replay", "dead", "--exception", "KeyErrorNo")
    both = CliRunner().invoke(main, ["dlq", "replay", "dead", "--bootstrap", "h:1", "--exception", "a", "--exclude-exception", "b"])
    assert both.exit_code == 2 and "give either --exception or --exclude-exception, not both" in both.output
