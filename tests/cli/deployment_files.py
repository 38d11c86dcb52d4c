"""What the tests of docs/deploy share: the folder, the exit codes that no restart can heal, and the command lines of kstream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kstream.cli import main
from kstream.cli.exit_codes import RunCode

FOLDER = Path(__file__).parent.parent.parent / "docs" / "deploy"
FINAL_FAILURES = {code.value for code in RunCode if code.final and 0 < code < 128}


def parsed(words: list[str]) -> dict[str, Any]:
    """The parameters of a command line of kstream; click's error if it has an option that does not exist."""
    assert Path(words[0]).name == "kstream"
    command = main.get_command(click.Context(main), words[1])
    assert command is not None
    return command.make_context(words[1], words[2:]).params
