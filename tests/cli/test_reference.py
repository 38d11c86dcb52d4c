"""docs/cli.md says what the commands say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kstream import connectors
from kstream.cli import main
from kstream.cli.reference import markdown_reference, sections

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "cli.md").read_text()


def leaves(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """The commands below this one that are no groups, with their names."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, f"{path} {name}")


def ours() -> dict[str, click.Command]:
    """The commands of this project: an installed connector may have added others."""
    known = {*main.commands, *(name for name, entry in connectors.commands().items() if entry.module.startswith("kstream_kafka."))}
    return {path: command for path, command in leaves(main, "kstream") if path.split()[1] in known}


def test_the_page_is_that_of_the_commands() -> None:
    """`python -m kstream.cli.reference` prints what belongs between the marks."""
    found = re.search(r"<!-- commands -->\n(.*?)\n<!-- /commands -->", PAGE, re.DOTALL)
    assert found is not None and found[1] == markdown_reference(), "docs/cli.md is stale: python -m kstream.cli.reference"


def test_every_command_is_in_one_group_and_has_a_section() -> None:
    named = [name for names in sections().values() for name in names]
    assert sorted(named) == sorted({path.split()[1] for path in ours()})
    assert sorted(re.findall(r"^### (.*)$", PAGE, re.MULTILINE)) == sorted(ours())


@pytest.mark.parametrize("path", sorted(ours()))
def test_every_option_of_a_command_has_a_meaning_on_the_page(path: str) -> None:
    section = re.search(rf"^### {path}$\n(.*?)(?=^##|^<!--)", PAGE, re.MULTILINE | re.DOTALL)
    common = re.search(r"^## Options of a connection$\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None and common is not None
    text = section[1] + (common[1] if "(#options-of-a-connection)" in section[1] else "")
    rows = {name: row for row in text.splitlines() if row.startswith("| `-") for name in re.findall(r"--?[a-z-]+", row.split(" | ")[0])}
    options = [param for param in ours()[path].params if isinstance(param, click.Option)]
    assert {name for option in options for name in option.opts} == rows.keys()
    assert all(row.rstrip(" |").rpartition(" | ")[2].strip() for row in rows.values())
