"""The files of the page: they are whole, make no HTML out of data, and name no other machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

STATIC = Path(__file__).resolve().parent.parent.parent / "kstream" / "ui" / "static"
FILES = sorted(path for path in STATIC.iterdir())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
NAMESPACE = "http://www.w3.org/2000/svg"
PARSES = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|\beval\(|new Function"
)
LONGEST_LINE = 140
DOCS = STATIC.parent.parent.parent / "docs"
LARGEST_PICTURE = 200_000


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_the_page_has_its_files_and_no_others() -> None:
    assert {path.name for path in FILES} >= {"index.html", "page.css", "page.js"}
    assert {path.suffix for path in FILES} <= {".html", ".css", ".js", ".svg"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_data_is_never_parsed_as_html_or_as_a_script(path: Path) -> None:
    assert PARSES.findall(text_of(path)) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_module_that_is_imported_is_there(path: Path) -> None:
    imported = re.findall(r'from "\./([^"]+)"', text_of(path))
    assert [name for name in imported if not (STATIC / name).is_file()] == []


def test_every_module_is_used() -> None:
    used = set(re.findall(r'static/([\w.]+)"', text_of(STATIC / "index.html")))
    used |= {name for path in SCRIPTS for name in re.findall(r'from "\./([^"]+)"', text_of(path))}
    assert {path.name for path in FILES} - {"index.html"} == used


def test_the_html_has_neither_script_nor_style_nor_handler_inline() -> None:
    html = text_of(STATIC / "index.html")
    assert re.findall(r"<script(?![^>]*\bsrc=)", html) == [] and "<style" not in html
    assert re.findall(r"""\s(?:style|on\w+)\s*=""", html) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_names_another_machine(path: Path) -> None:
    """The addresses of a page are relative: it works offline, and below a path of a proxy."""
    text = text_of(path).replace(NAMESPACE, "")
    assert re.findall(r"""["'(](?:https?:)?//[\w.]""", text) == []
    assert re.findall(r"""(?:src|href)="/""", text) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_lines_and_files_are_short_enough_to_read(path: Path) -> None:
    lines = text_of(path).splitlines()
    assert [n for n, line in enumerate(lines, 1) if len(line) > LONGEST_LINE] == [] and len(lines) <= 600


def test_every_picture_of_the_docs_is_small_and_shown() -> None:
    """`python -m integration.pictures` makes them."""
    pictures = sorted((DOCS / "pictures").iterdir())
    shown = {name for page in DOCS.rglob("*.md") for name in re.findall(r"\]\((?:\.\./)?pictures/([^)]+)\)", text_of(page))}
    assert {path.name for path in pictures} == shown != set()
    assert [path.name for path in pictures if path.stat().st_size > LARGEST_PICTURE] == []
