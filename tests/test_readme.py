"""The README says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from kstream.conf import markdown_table

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()


def test_the_table_of_settings_is_that_of_the_code() -> None:
    table = re.search(r"<!-- settings -->\n(.*?)\n<!-- /settings -->", README, re.DOTALL)
    assert table is not None and table[1] == markdown_table()


def test_what_does_not_work_yet_is_named() -> None:
    assert "Structured Streaming and continuous processing" in README
