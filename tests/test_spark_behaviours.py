"""The ids of Spark's behaviours that files refer to are rows of the page, and the tests that its rows name exist."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.named_tests import ROOT, names_of_tests_in, place_now

PAGE = ROOT / "docs" / "internals" / "spark-behaviours.md"
FOLDERS = ("tests", "integration", "kstream", "connectors")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md"})
ID = r"(?:[A-Z]{2}\d{1,2}|K8[ab])"
REFERENCE = re.compile(rf"(?<![A-Za-z0-9]){ID}(?![A-Za-z0-9])")
"""Also within the name of a test, as in test_KR1_count."""
ROW = re.compile(rf"\| ({ID}) \| (.+) \| (.+) \|")
NOT_HELD = re.compile(r"(not held|—): .+")


def rows() -> list[tuple[str, str]]:
    """The id and the last column of each row, in the order of the page."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| id ")]
    found = [ROW.fullmatch(line) for line in lines]
    assert None not in found, f"not a row of id, behaviour and test: {lines[found.index(None)]}"
    return [(row[1], row[3]) for row in found if row is not None]


def fault_of(node: str) -> str | None:
    """What is wrong with `path` or `path::test` in the page; None if it exists."""
    file, _, test = node.partition("::")
    path = ROOT / file
    if file.startswith(("tests/", "integration/")) and path.is_file() and (not test or test in names_of_tests_in(path)):
        return None
    return f"{node} does not exist" + (place_now(test) if test else "")


def test_every_id_that_a_file_refers_to_is_a_row_of_the_page() -> None:
    known = {name for name, _ in rows()}
    unknown = [
        f"{path.relative_to(ROOT)}:{number}: {name}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for name in REFERENCE.findall(line)
        if name not in known
    ]
    assert not unknown, "\n".join([f"{PAGE.relative_to(ROOT)} has no row for:", *unknown])


def test_references_are_found_in_docstrings_and_in_the_names_of_tests() -> None:
    """Else the test above could not fail."""
    text = '"""Spark behaviours BO1 and K8a."""  def test_KR1_count(): "RS256", "UTF8"'
    assert REFERENCE.findall(text) == ["BO1", "K8a", "KR1"]
    assert Path(__file__) in SOURCES


def test_every_test_that_the_page_names_exists() -> None:
    faults = [
        f"{name}: {fault}"
        for name, tests in rows()
        if not NOT_HELD.fullmatch(tests)
        for fault in map(fault_of, (node.strip(" `") for node in tests.split(", ")))
        if fault is not None
    ]
    assert not faults, "\n".join([f"correct the tests that {PAGE.relative_to(ROOT)} names:", *faults])


def test_every_id_has_one_row() -> None:
    counted = Counter(name for name, _ in rows())
    assert len(counted) > 150 and [name for name, count in counted.items() if count > 1] == []
