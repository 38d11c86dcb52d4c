"""`make docs`: the site is whole, needs no other host, and has every setting, command and public name."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import kstream_kafka
import pytest
from kstream_kafka import errors as kafka_errors
from markdown_it import MarkdownIt

import kstream
import kstream.testing
from integration.site_pages import COUNTED, SitePage, addresses_in_style, dead_links, is_foreign, read_page, read_site, target_of
from kstream import DStream, StreamingContext, StreamingListener, errors, listener
from kstream.cli import main
from kstream.context.settings_table import settings_table

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
WITH_DOCSTRINGS = "api"
"""The folder whose pages are filled from docstrings, so that a renderer of Markdown alone sees less."""
GITHUB = MarkdownIt("commonmark").enable("table")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the site, built as `make docs` builds it."""
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(built)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return built


@pytest.fixture(scope="module")
def site(directory: Path) -> dict[str, SitePage]:
    return read_site(directory)


def place(page: Path) -> str:
    """The place in the site of a page of docs/."""
    return page.with_suffix(".html").as_posix()


# -- the site is whole


def test_every_page_of_docs_is_built(site: dict[str, SitePage]) -> None:
    assert [page for page in PAGES if place(page) not in site] == []


def test_every_page_of_docs_is_in_the_navigation(site: dict[str, SitePage]) -> None:
    shown = {target_of("index.html", link)[0] for link in site["index.html"].navigation}
    assert [page for page in PAGES if place(page) not in shown] == []


def test_every_link_leads_to_a_page_and_an_anchor_of_it(site: dict[str, SitePage], directory: Path) -> None:
    assert sorted(set(dead_links(site, directory))) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    """Else the test above could not fail."""
    (tmp_path / "a.html").write_text('<h1 id="x">a</h1> <a href="b.html">b</a> <a href="#x">x</a> <a href="#y">y</a>')
    (tmp_path / "c.html").write_text('<a href="a.html#x">x</a> <a href="a.html#z">z</a> <a href="https://example.org/b.html">b</a>')
    assert list(dead_links(read_site(tmp_path), tmp_path)) == ["a.html: b.html", "a.html: #y", "c.html: a.html#z"]


def test_a_link_out_of_docs_leads_to_a_page_of_the_site(site: dict[str, SitePage]) -> None:
    """Such as those to ARCHITECTURE.md, to a folder of the repository, and from the README to docs/."""
    assert "internals/architecture.html#the-life-of-a-batch" in site["testing.html"].links
    assert {"repository/kstream/examples/index.html", "internals/index.html", "kafka.html"} <= set(site["index.html"].links)
    listed = {link.removesuffix(".html") for link in site["repository/kstream/examples/index.html"].links}
    assert {file.name for file in (ROOT / "kstream" / "examples").glob("*.py")} <= listed
    assert "def " in site["repository/kstream/examples/network_wordcount.py.html"].text


@pytest.mark.parametrize("page", [page for page in PAGES if page.parts[0] != WITH_DOCSTRINGS], ids=str)
def test_a_page_has_the_lists_and_tables_that_a_renderer_of_commonmark_sees(page: Path, site: dict[str, SitePage]) -> None:
    """Two renderers read the pages: that of the repository's host, and the site's, which asks more of a nested list."""
    expected = read_page(place(page), GITHUB.render((DOCS / page).read_text()), whole=True).elements
    assert {tag: site[place(page)].elements[tag] for tag in COUNTED} == {tag: expected[tag] for tag in COUNTED}


# -- nothing comes from elsewhere


def test_a_browser_loads_nothing_from_another_host(site: dict[str, SitePage], directory: Path) -> None:
    of_pages = {(page.path, address) for page in site.values() for address in page.loads if is_foreign(address)}
    sheets = directory.rglob("*.css")
    of_sheets = {(sheet.name, address) for sheet in sheets for address in addresses_in_style(sheet.read_text()) if is_foreign(address)}
    assert of_pages | of_sheets == set()


def test_no_page_has_a_part_for_which_the_themes_script_asks_another_host(site: dict[str, SitePage]) -> None:
    """A diagram of Mermaid, and the number of stars of a repository."""
    assert {page.path for page in site.values() if "mermaid" in page.classes or "source" in page.components} == set()


def test_what_a_page_loads_is_found() -> None:
    """Else the two tests above could not fail."""
    html = '<link rel="stylesheet" href="//a/b.css"><script src="https://c/d.js"></script><style>@import "http://e/f.css";</style>'
    page = read_page("a.html", html + '<img src="g.png"><p style="background: url(https://h/i.png)" class="mermaid">')
    assert [address for address in page.loads if is_foreign(address)] == [
        "//a/b.css",
        "https://c/d.js",
        "http://e/f.css",
        "https://h/i.png",
    ]
    assert "mermaid" in page.classes


def test_all_that_a_page_loads_is_in_the_site(site: dict[str, SitePage], directory: Path) -> None:
    loads = {target_of(page.path, address)[0] for page in site.values() for address in page.loads if not is_foreign(address)}
    assert len(loads) > 3 and [path for path in sorted(loads) if not (directory / path).is_file()] == []


def test_the_search_has_every_page(site: dict[str, SitePage], directory: Path) -> None:
    """As JSON for a server, and as a script for a site on a disk."""
    for name in ("search/search_index.json", "search/search_index.js"):
        index = (directory / name).read_text()
        assert [page for page in PAGES if f'"{place(page)}' not in index] == []
    assert all("assets/iframe-worker.js" in {target_of(page.path, address)[0] for address in page.loads} for page in site.values())


# -- nothing is left out


def test_every_setting_is_on_the_page_of_settings(site: dict[str, SitePage]) -> None:
    assert [entry.key for entry in settings_table().entries if entry.key not in site["settings.html"].text] == []


def commands(command: click.Command, path: str) -> Iterator[str]:
    """The names of a command and of all below it, as one types them."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            if not found.hidden:
                yield from commands(found, f"{path} {name}")


def test_every_command_is_on_a_page(site: dict[str, SitePage]) -> None:
    text = "\n".join(page.text for page in site.values() if not page.path.startswith("repository/"))
    names = list(commands(main, "kstream"))
    assert len(names) > 15 and [name for name in names if name not in text] == []


def entries_of(site: dict[str, SitePage]) -> set[str]:
    """The names that have an entry of the API."""
    return {anchor for page in site.values() if page.path.startswith(WITH_DOCSTRINGS) for anchor in page.anchors}


def test_every_public_name_has_an_entry(site: dict[str, SitePage]) -> None:
    names = [f"{module.__name__}.{name}" for module in (kstream, kstream_kafka, kstream.testing) for name in module.__all__]
    assert len(names) > 40 and [name for name in names if name not in entries_of(site)] == []


@pytest.mark.parametrize("owner", [StreamingContext, DStream, StreamingListener], ids=lambda owner: owner.__name__)
def test_a_class_shows_its_public_names_and_no_other(owner: type, site: dict[str, SitePage]) -> None:
    prefix = f"kstream.{owner.__name__}."
    shown = {entry.removeprefix(prefix) for entry in entries_of(site) if entry.startswith(prefix)}
    attributes = {"is_cached", "is_checkpointed"} if owner is DStream else set()
    assert shown == {name for name in dir(owner) if not name.startswith("_")} | attributes


def errors_of(module: ModuleType) -> Iterator[str]:
    """The public errors of a module; one that `kstream` exports has its entry there."""
    for name, kind in vars(module).items():
        if isinstance(kind, type) and issubclass(kind, errors.KStreamError) and not name.startswith("_"):
            yield f"kstream.{name}" if vars(kstream).get(name) is kind else f"{module.__name__}.{name}"


@pytest.mark.parametrize("module", [errors, kafka_errors], ids=lambda module: module.__name__)
def test_every_error_has_an_entry(module: ModuleType, site: dict[str, SitePage]) -> None:
    names = list(errors_of(module))
    assert len(names) > 15 and [name for name in names if name not in entries_of(site)] == []


def test_every_event_of_a_listener_has_an_entry(site: dict[str, SitePage]) -> None:
    classes = {node.name for node in ast.parse(Path(listener.__file__).read_text()).body if isinstance(node, ast.ClassDef)}
    events = {name for name in classes if name.startswith("StreamingListener")} - {"StreamingListener", "StreamingListenerBus"}
    assert len(events) > 8 and {name for name in events if f"kstream.listener.{name}" not in entries_of(site)} == set()


def test_an_example_of_a_docstring_is_shown_as_code(site: dict[str, SitePage]) -> None:
    """With its indentation: the docstring has no fences, as Python's own `help` shows it."""
    assert "def setup():\n    ssc = StreamingContext(" in site["api/streaming-context.html"].code
