"""docs/page.md names each field of each form, and each path of the server."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, get_args, is_typeddict

from kstream.ui import forms
from kstream.ui.page_site import _STATUSES, _STREAMING

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "page.md").read_text()
TABLE = re.compile(r"<!-- (\w+) -->\n\| field \| meaning \|\n\|---\|---\|\n((?:\|.*\|\n)+)")


def own_fields(form: Any) -> list[str]:
    """The fields of a form without those of its base: of a TypedDict the annotations have both."""
    inherited = inspect.get_annotations(forms.BatchForm) if form is forms.BatchDetailForm else {}
    return [name for name in inspect.get_annotations(form) if name not in inherited]


def test_the_page_explains_each_field_of_each_form_in_its_order() -> None:
    of_docs = {name: re.findall(r"^\| `(\w+)` \| \S", rows, re.MULTILINE) for name, rows in TABLE.findall(PAGE)}
    of_code = {name: own_fields(form) for name, form in vars(forms).items() if is_typeddict(form)}
    assert of_docs == of_code and len(of_code) > 15


def test_the_page_names_each_path_and_each_status() -> None:
    paths = set(re.findall(r"^\| `(?:/api/v1/applications/ID|…)/streaming/(\w+)", PAGE, re.MULTILINE))
    assert paths == {path.partition("/")[0] for path in _STREAMING}
    assert {status.upper() for status in _STATUSES} == set(get_args(forms.BatchStatus))
    for values in (_STATUSES, get_args(forms.BatchStatus), get_args(forms.OperationStatus), get_args(forms.DecisionKind)):
        assert [value for value in values if f"`{value}`" not in PAGE] == []
