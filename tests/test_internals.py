"""The pages for those who change kstream name tests, rooms and modules that exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.named_tests import ROOT, names_of_tests_in, place_now

MAP = ROOT / "kstream" / "ARCHITECTURE.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
INTERNALS = sorted((ROOT / "docs" / "internals").glob("*.md"))
PAGES = [*INTERNALS, MAP]
LINKED = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", MAP])
TEST = re.compile(r"\b((?:tests|integration)/[\w/]+\.py)((?:::\w+)*)")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#[^)\s]*)?\)")
INVARIANT = re.compile(r"^- \*\*.*?(?=^- |^#|\Z)", re.MULTILINE | re.DOTALL)
LAYERS = re.compile(r"layers = \[\n(.*?)\n\]", re.DOTALL)


def missing_tests(text: str) -> list[str]:
    """The files and tests that a text names and that do not exist."""
    missing: list[str] = []
    for file, test in TEST.findall(text):
        path = ROOT / file
        if not path.is_file() or (test and test.removeprefix("::") not in names_of_tests_in(path)):
            missing.append(file + test + (place_now(test) if test else ""))
    return missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    assert missing_tests(page.read_text()) == []


def test_a_test_that_does_not_exist_is_found() -> None:
    """Else the test above could not fail."""
    this = "tests/test_internals.py"
    gone = [f"{this}::test_that_was_renamed", "tests/test_gone.py"]
    assert missing_tests(f"`{gone[0]}`, `{gone[1]}`") == gone
    assert missing_tests(f"`{this}::test_a_test_that_does_not_exist_is_found`, `{this}`") == []
    assert sum(len(TEST.findall(page.read_text())) for page in PAGES) > 150


@pytest.mark.parametrize("page", INTERNALS, ids=lambda page: page.stem)
def test_an_invariant_names_the_test_that_holds_it_or_says_that_there_is_none(page: Path) -> None:
    invariants = INVARIANT.findall(page.read_text())
    assert [text for text in invariants if "::test_" not in text and "No test." not in text] == []


def layers(contract: int) -> list[str]:
    """The layers of a contract of import-linter in pyproject.toml, the highest first."""
    found = LAYERS.findall((ROOT / "pyproject.toml").read_text())[contract]
    return re.findall(r'"([^"]+)"', found)


def test_the_map_draws_the_layers_of_pyproject() -> None:
    drawn = MAP.read_text().split("```")[1].strip("\n").splitlines()
    assert [line[:60].strip() for line in drawn] == layers(0)
    assert [line[60:] for line in drawn if line[60:]] == layers(1)


ROOMS = (
    "batch checkpoint context continuous direct dstream files http loop metrics monitoring offsets rdd receiver rpc scheduler spark "
    "storage ui wal"
)
ROOMS_WITH_A_MAP = [
    *(f"kstream/{room}" for room in ROOMS.split()),
    *(
        f"connectors/kstream_kafka/{room}"
        for room in ("client", "continuous", "demo", "planning", "schemas", "source", "structured", "zookeeper")
    ),
]
LINE_OF_A_MAP = re.compile(r"^ {0,4}((?:\w+, )*\w+)(?:  .*)?$", re.MULTILINE)


@pytest.mark.parametrize("room", ROOMS_WITH_A_MAP)
def test_the_map_of_a_room_names_each_of_its_files_once(room: str) -> None:
    """The map is in the docstring of the room's `__init__.py`."""
    _, document, _ = (ROOT / room / "__init__.py").read_text().split('"""', 2)
    named = [name for line in LINE_OF_A_MAP.findall(document) for name in line.split(", ")]
    assert sorted(named) == sorted(path.stem for path in (ROOT / room).glob("[a-z]*.py"))


def terms() -> list[tuple[str, str]]:
    """Each term of the glossary with the module where it lives."""
    rows = [line.strip("|").split("|") for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    return [(row[0].strip(), row[2].strip()) for row in rows if row[0].strip() != "term"]


def test_a_module_that_the_glossary_names_exists() -> None:
    named = {module for _, place in terms() for module in re.findall(r"`(kstream[\w.]*)`", place)}
    assert [module for module in sorted(named) if importlib.util.find_spec(module) is None] == []
    assert len(named) > 20


def test_the_glossary_has_each_term_once_in_alphabetical_order() -> None:
    names = [term.lower() for term, _ in terms()]
    assert names == sorted(set(names)) and 20 < len(names) <= 60


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    assert [link for link in LINK.findall(page.read_text()) if link and not (page.parent / link).exists()] == []
