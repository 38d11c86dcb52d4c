"""What the pages name is there: settings in the table of settings, parameters of a receiver's methods in the class. So are the pages."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
from kstream_kafka.zookeeper.receiver_settings import _NUMBERS

from kstream import Receiver
from kstream.context.settings_table import settings_table

ROOT = Path(__file__).parent.parent
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
OURS = ("spark.streaming.",)
"""What begins otherwise is Spark's own setting."""
SETTING = re.compile(r"(?<![\w./])spark\.[a-zA-Z][\w.]*\w(\.\*)?")
NO_SETTINGS = re.compile(r"spark\.streaming\.(kafka(010)?|listener|Seconds|StreamingContext)$|spark\.streaming$")
"""Packages and modules of Spark in code that is shown."""


KNOWN = {entry.key for entry in settings_table().entries}


def settings_named_in(page: Path) -> set[str]:
    found = {match.group() for match in SETTING.finditer(page.read_text())}
    return {key for key in found if key.startswith(OURS) and not NO_SETTINGS.match(key)}


def test_each_page_is_in_the_navigation_of_the_site() -> None:
    """`mkdocs build --strict` refuses a page that is not; this says so in a second."""
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")]
    assert [page for page in pages if not re.search(rf"[-:] {re.escape(page)}$", navigation, re.MULTILINE)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    unknown = {
        key
        for key in settings_named_in(page)
        if not (any(known.startswith(key[:-1]) for known in KNOWN) if key.endswith(".*") else key in KNOWN)
    }
    assert unknown == set()


def test_settings_are_found_in_pages() -> None:
    """Else the test above could not fail."""
    found = settings_named_in(ROOT / "docs" / "receivers.md")
    assert {"spark.streaming.blockInterval", "spark.streaming.receiver.maxRate"} <= found


def calls_in_table(page: str) -> list[ast.Call]:
    rows = [line.split("|")[1] for line in (ROOT / "docs" / page).read_text().splitlines() if line.startswith("| `")]
    parsed = [ast.parse(code, mode="eval").body for row in rows for code in re.findall(r"`([^`]+\(.*?\))`", row)]
    return [call for call in parsed if isinstance(call, ast.Call)]


def test_the_parameters_of_a_receivers_methods_are_named_as_they_are() -> None:
    """A call by keyword, as the page shows it, works."""
    calls = calls_in_table("receivers.md")
    assert len(calls) == 8
    for call in calls:
        assert isinstance(call.func, ast.Name)
        parameters = list(inspect.signature(getattr(Receiver, call.func.id)).parameters.values())[1:]
        shown = [name.id for name in call.args if isinstance(name, ast.Name)]
        optional = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        assert [parameter.name for parameter in parameters] == [*shown, *optional], call.func.id
        assert {p.name: p.default for p in parameters if p.default is not p.empty} == optional, call.func.id


def test_every_page_stores_blocks_of_a_receiver_by_calls_that_exist() -> None:
    shown = {call for page in PAGES for call in re.findall(r"`(store\w*\([^`]*\))`", page.read_text())}
    assert len(shown) > 3
    for code in shown:
        call = ast.parse(code, mode="eval").body
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        parameters = list(inspect.signature(getattr(Receiver, call.func.id)).parameters)[1:]
        named = [*(argument.id for argument in call.args if isinstance(argument, ast.Name)), *(k.arg for k in call.keywords)]
        assert named == parameters[: len(named)], code


def test_no_page_sends_a_job_to_sparks_kafka_sink_without_its_jar() -> None:
    """`KAFKA_DATA_SOURCE_NOT_ENABLED` is what such a job would meet."""
    lines = [line for page in PAGES for line in page.read_text().splitlines() if 'format("kafka")' in line and "readStream" not in line]
    assert lines and [line for line in lines if "spark-sql-kafka" not in line] == []


def test_the_defaults_of_the_old_consumers_parameters_are_those_of_the_page() -> None:
    rows = [line.split("|")[1:3] for line in (ROOT / "docs" / "kafka-receiver.md").read_text().splitlines() if line.startswith("| `")]
    shown = {name.strip(" `"): default.strip(" `") for name, default in rows}
    assert {name: shown.get(name) for name in _NUMBERS} == {name: str(default) for name, default in _NUMBERS.items()}
