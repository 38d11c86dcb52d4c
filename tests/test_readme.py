"""The README says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from click import Context

from kstream import DStream
from kstream.cli import main

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()


def test_what_does_not_work_yet_is_named() -> None:
    table = README.partition("\n## What works today")[2].partition("\n## ")[0]
    missing = " ".join(line.split("|")[3] for line in table.splitlines() if line.startswith("| "))
    assert "continuous processing" in missing and "event time in DStreams" in missing


def test_every_operator_that_is_said_to_be_of_every_stream_is_one_of_dstream() -> None:
    listed = README.partition("Every operator of DStream is there: ")[2].partition(".\n")[0]
    assert listed
    plain = re.sub(r"map … |joins,|windows,", "", listed)
    names = [name for name in re.split(r"[,\s]+", plain) if name]
    assert len(names) > 5 and [name for name in names if not hasattr(DStream, name)] == []


def test_the_table_of_commands_has_every_command() -> None:
    table = README.partition("\n## The commands")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `kstream ")]
    named = {name for row in rows for name in re.findall(r"`kstream (\w+)`", row)}
    assert set(main.list_commands(Context(main))) <= named
