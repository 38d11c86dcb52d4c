"""Each command that a page shows can be typed: it exists, and so do its options and arguments. integration/test_docs.py runs many."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kstream.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "kstream" / "examples").glob("*.md"))]
PROGRAM = re.compile(r"^(?:[A-Z_]+=\S+ )*kstream (?P<rest>.*)$")


def shown(page: Path) -> Iterator[str]:
    """The commands in the blocks of a page, without comments, redirections and `&`."""
    for block in re.findall(r"^```(?:sh|bash)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            found = PROGRAM.match(line.strip())
            if found:
                yield re.split(r"\s(?:\d?>>?|<|&|\|)", found["rest"] + " ")[0]


COMMANDS = [(page.relative_to(ROOT), command) for page in PAGES for command in shown(page)]


def parse(words: list[str]) -> None:
    """Parse a command as click does before it runs. UsageError if there is no such command, option or argument."""
    context = main.make_context("kstream", words)
    while isinstance(group := context.command, click.Group):
        name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])  # pyright: ignore[reportPrivateUsage]
        assert command is not None
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=str)
def test_a_command_of_a_page_can_be_typed(page: Path, command: str) -> None:
    parse(shlex.split(command, comments=True))


@pytest.mark.parametrize("wrong", ["kstreams", "status", "status a b", "status a --jsn", "offsets nosuch a", "run job.py:setup"])
def test_a_command_that_cannot_be_typed_is_told_apart(wrong: str) -> None:
    with pytest.raises(click.UsageError):
        parse(shlex.split(wrong))


def test_many_commands_are_shown() -> None:
    assert len(COMMANDS) > 50 and {"README.md", "docs/page.md"} <= {str(page) for page, _ in COMMANDS}
