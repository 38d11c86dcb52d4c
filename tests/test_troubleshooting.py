"""docs/troubleshooting.md quotes messages as the code has them, and names commands that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from kstream.cli import main

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE.partition("## By message")[2].partition("## By symptom")[0], re.MULTILINE)


def text_of(node: ast.AST) -> str | None:
    """The text of a string in the code, with `…` for each value in it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "…" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def texts() -> list[str]:
    files = [*(ROOT / "kstream").rglob("*.py"), *(ROOT / "connectors").rglob("*.py")]
    return [text for file in files for node in ast.walk(ast.parse(file.read_text())) if (text := text_of(node))]


def test_the_page_has_messages() -> None:
    """Else the next test could not fail."""
    assert len(MESSAGES) >= 15 and not any("a message that nobody writes" in text for text in texts())


def test_each_quoted_message_exists_in_the_code() -> None:
    known = texts()
    assert [message for message in MESSAGES if not any(message in text for text in known)] == []


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`kstream ([a-z]+)", PAGE))))
def test_each_command_exists(command: str) -> None:
    assert command in main.commands
