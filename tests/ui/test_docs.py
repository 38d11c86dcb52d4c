"""docs/page.md has the reference of the forms, and names each path of the server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from kstream.ui import forms
from kstream.ui.page_site import _STATUSES, _STREAMING
from kstream.ui.reference import markdown_reference

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "page.md").read_text()


def test_the_reference_of_the_page_is_that_of_the_forms() -> None:
    """`python -m kstream.ui.reference` prints what belongs between the marks."""
    found = re.search(r"<!-- forms -->\n(.*?)\n<!-- /forms -->", PAGE, re.DOTALL)
    assert found is not None and found[1] == markdown_reference(), "docs/page.md is stale: python -m kstream.ui.reference"


def test_each_form_of_the_reference_has_a_sentence_and_fields() -> None:
    reference = markdown_reference()
    sections = re.findall(r"^### .+\n\n\w.*\.\n", reference, re.MULTILINE)
    assert len(sections) == reference.count("### ") == reference.count("|---|---|---|\n| `") > 15
    assert "| `latest` | number | the end of its log |" in reference
    assert reference.count("| `batchId` |") == 1, "the fields of a base stand at the base alone"


def test_the_page_names_each_path_and_each_status() -> None:
    paths = set(re.findall(r"^\| `(?:/api/v1/applications/ID|…)/streaming/(\w+)", PAGE, re.MULTILINE))
    assert paths == {path.partition("/")[0] for path in _STREAMING}
    assert {status.upper() for status in _STATUSES} == set(get_args(forms.BatchStatus))
    for values in (_STATUSES, get_args(forms.BatchStatus), get_args(forms.OperationStatus), get_args(forms.DecisionKind)):
        assert [value for value in values if f"`{value}`" not in PAGE] == []
