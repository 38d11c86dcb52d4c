"""The pages of the built documentation, read from their HTML: links, anchors, what a browser loads, and the number of each element."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    **dict.fromkeys(("script", "img", "iframe", "embed", "source", "video", "audio", "track", "input"), ("src", "srcset", "poster")),
    "link": ("href",),
    "object": ("data",),
    "form": ("action",),
    "use": ("href", "xlink:href"),
    "image": ("href", "xlink:href"),
}
"""The attributes with an address that a browser loads, or prepares to load, by element."""
LINKS_THAT_LOAD_NOTHING = {"canonical", "prev", "next", "alternate", "edit"}
IN_STYLES = re.compile(r"""url\(\s*["']?(?!data:)([^"')]+)|@import\s+["']([^"']+)""")
COUNTED = frozenset(
    ("ul", "ol", "li", "table", "tr", "td", "pre", "code", "h1", "h2", "h3", "h4", "blockquote", "strong", "em", "br", "img")
)


@dataclass
class SitePage:
    """One page.

    Attributes:
        path: of the page in the site, with `/`.
        anchors: the ids of its elements.
        links: the `href` of each `a`.
        navigation: those of them that are in the navigation.
        loads: the addresses that a browser loads, or connects to.
        classes: the classes of its elements.
        components: the parts of the theme that are in the page.
        elements: how many of each element its text has.
        text: its text, without the navigation.
        code: the part of the text that is in blocks of code.
    """

    path: str
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    navigation: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    classes: set[str] = field(default_factory=set)
    components: set[str] = field(default_factory=set)
    elements: Counter[str] = field(default_factory=Counter)
    text: str = ""
    code: str = ""


class _Reader(HTMLParser):
    """Fills a SitePage."""

    def __init__(self, page: SitePage, whole: bool) -> None:
        super().__init__()
        self.page = page
        self.in_text = whole
        self.in_navigation = 0
        self.in_style = False
        self.in_code = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        page = self.page
        page.anchors.update(filter(None, (given.get("id"), given.get("name") if tag == "a" else None)))
        page.classes.update(given.get("class", "").split())
        page.components.add(given.get("data-md-component", ""))
        page.loads += [address for text in (given.get("style", ""),) for address in addresses_in_style(text)]
        if not (tag == "link" and given.get("rel") in LINKS_THAT_LOAD_NOTHING):
            page.loads += [given[name] for name in LOADED.get(tag, ()) if name in given]
        self.in_navigation += tag == "nav"
        self.in_style |= tag == "style"
        self.in_text |= tag == "article"
        self.in_code |= tag == "pre"
        if tag == "a" and "href" in given:
            page.links.append(given["href"])
            if self.in_navigation:
                page.navigation.append(given["href"])
        if self.in_text and tag in COUNTED:
            page.elements[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self.in_navigation -= tag == "nav"
        self.in_style &= tag != "style"
        self.in_text &= tag != "article"
        self.in_code &= tag != "pre"

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.page.loads += addresses_in_style(data)
        if self.in_text:
            self.page.text += data
        if self.in_text and self.in_code:
            self.page.code += data


def addresses_in_style(text: str) -> list[str]:
    """Return the addresses that a style sheet loads; data in the sheet itself is none."""
    return [first or second for first, second in IN_STYLES.findall(text)]


def read_page(path: str, html: str, whole: bool = False) -> SitePage:
    """Read a page. The text of a page of the theme is its article; `whole`: all of it is text."""
    page = SitePage(path)
    reader = _Reader(page, whole)
    reader.feed(html)
    reader.close()
    return page


def read_site(directory: Path) -> dict[str, SitePage]:
    """Read all pages under a directory, by path."""
    paths = [(file.relative_to(directory).as_posix(), file) for file in sorted(directory.rglob("*.html"))]
    return {path: read_page(path, file.read_text()) for path, file in paths}


def target_of(page: str, link: str) -> tuple[str, str]:
    """Return (path in the site, anchor) to which a link of a page leads. A path that ends in `/` is that of its index."""
    parts = urlsplit(link)
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path))) if parts.path else page
    path = path.lstrip("/")
    return ("index.html" if path == "." else f"{path}/index.html" if parts.path.endswith("/") else path), unquote(parts.fragment)


def is_foreign(address: str) -> bool:
    """Return whether an address is that of another host. Data in the address itself is none."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def dead_links(pages: Mapping[str, SitePage], directory: Path) -> Iterator[str]:
    """Yield `page: link` for each link inside of the site that leads to no file, or to no anchor."""
    for page in pages.values():
        for link in page.links:
            if is_foreign(link):
                continue
            path, anchor = target_of(page.path, link)
            anchors = pages[path].anchors if path in pages else {anchor}
            if not (directory / path).is_file() or (anchor and anchor not in anchors):
                yield f"{page.path}: {link}"
