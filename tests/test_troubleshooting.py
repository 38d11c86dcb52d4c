"""docs/messages.md quotes messages as the code has them, and leaves no error and no warning out. docs/troubleshooting.md is for people."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from kstream_kafka import errors as kafka_errors

from kstream import errors
from kstream.cli import main

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "messages.md").read_text()
SYMPTOMS = (ROOT / "docs" / "troubleshooting.md").read_text()
ROW = re.compile(r"^\| (`.+?) \| (.+?) \| ", re.MULTILINE)
MESSAGES = [
    (message, kinds.replace("`", "").split(", ")) for messages, kinds in ROW.findall(PAGE) for message in re.findall(r"`([^`]+)`", messages)
]
"""(message, the errors that have it or its level in the log) of each row."""
PLACEHOLDER = re.compile(r"%[-+ 0#]*\d*(?:\.\d+)?[srdgf]")
LEVELS = {"warning": "warning", "error": "error", "exception": "error", "critical": "error"}
NOT_ON_THE_PAGE = {
    "KStreamError": "the base of all errors",
    "BatchError": "the base of errors of one batch",
    "TransientError": "for connectors, which write its message",
    "RangeLostError": "the base of RecordsRemovedError and LogTruncatedError",
}


def text_of(node: ast.AST) -> str | None:
    """The text of a string in the code, with `…` for each value in it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "…" for part in node.values)
    return PLACEHOLDER.sub("…", node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


@cache
def trees() -> list[ast.Module]:
    files = [*(ROOT / "kstream").rglob("*.py"), *(ROOT / "connectors").rglob("*.py")]
    return [ast.parse(file.read_text()) for file in files]


@cache
def texts() -> list[str]:
    return [text for tree in trees() for node in ast.walk(tree) if (text := text_of(node))]


def kind_of(node: ast.AST) -> str | None:
    """The error that a part of the code makes, or the level at which it logs; None for any other."""
    if isinstance(node, ast.ClassDef):
        return node.name if node.name.endswith("Error") else None
    if not isinstance(node, ast.Call):
        return None
    called = ast.unparse(node.func)
    level = called.removeprefix("logger.")
    if called != level:
        return LEVELS.get(level)
    name = called.rpartition(".")[2]
    return name if name.endswith("Error") and name[0].isupper() else None


@cache
def told() -> list[tuple[str, str]]:
    """(text, error or level) of each text that belongs to an error or to the log where it stands."""
    found = ((kind_of(node), node) for tree in trees() for node in ast.walk(tree))
    return [(text, kind) for kind, node in found if kind is not None for part in ast.walk(node) if (text := text_of(part))]


def logged() -> Iterator[str]:
    """The texts of all warnings and errors of the log that have words of their own."""
    for tree in trees():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and kind_of(node) in LEVELS.values()
                and (text := text_of(node.args[0]))
                and re.search(r"\w", text)
            ):
                yield text


def test_the_page_has_messages() -> None:
    """Else the next tests could not fail."""
    assert len(MESSAGES) > 200 and not any("a message that nobody writes" in text for text in texts())
    assert len(list(logged())) > 100 and ("no Java … or newer was found", ["JavaNotFoundError"]) in MESSAGES


def test_each_quoted_message_exists_in_the_code() -> None:
    assert [message for message, _ in MESSAGES if not any(message in text for text in texts())] == []


def test_the_error_or_the_level_of_a_message_is_that_of_the_code() -> None:
    wrong = {
        message: found
        for message, kinds in MESSAGES
        if (found := {kind for text, kind in told() if message in text}) and not found & set(kinds)
    }
    assert wrong == {}


def test_every_warning_and_error_of_the_log_is_on_the_page() -> None:
    assert sorted({text for text in logged() if not any(message in text for message, _ in MESSAGES)}) == []


@pytest.mark.parametrize("module", [errors, kafka_errors], ids=lambda module: module.__name__)
def test_every_error_is_on_the_page(module: object) -> None:
    kinds = {name for name, kind in vars(module).items() if isinstance(kind, type) and issubclass(kind, errors.KStreamError)}
    shown = {kind for _, kinds_of_row in MESSAGES for kind in kinds_of_row}
    public = {name for name in kinds if not name.startswith("_")}
    assert len(public) > 15 and public - shown - NOT_ON_THE_PAGE.keys() == set()
    assert NOT_ON_THE_PAGE.keys() & shown == set()


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`kstream ([a-z]+)", PAGE + SYMPTOMS))))
def test_each_command_exists(command: str) -> None:
    assert command in main.list_commands(click.Context(main))


def test_a_symptom_is_short_and_says_what_to_run_or_to_read() -> None:
    symptoms = re.split(r"^#{2,3} ", SYMPTOMS, flags=re.MULTILINE)
    found = [symptom for symptom in symptoms if symptom.partition("\n")[2].strip()][1:]
    assert len(found) > 25
    assert [symptom for symptom in found if len(symptom.split()) > 120] == []
    assert [symptom for symptom in found if "\nkstream " not in symptom and ".md" not in symptom and "nothing to do" not in symptom] == []
