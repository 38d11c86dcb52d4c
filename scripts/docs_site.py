"""Hooks of MkDocs: the pages link to files of the repository, and the links work in the site as they do in the repository.

A link is resolved in the repository, and then written as the path of its page in the site. README.md is the front page, and
ARCHITECTURE.md a page of the internals. Another file outside of docs/ to which a page links becomes a page with its text. A directory
becomes a page that lists its files. So no link needs the address of a repository's host. A second, small one: names of settings break
in narrow tables where a reader would break them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = PurePosixPath("docs")
PAGES_OF_THE_REPOSITORY = {PurePosixPath("README.md"): "index.md", PurePosixPath("kstream/ARCHITECTURE.md"): "internals/architecture.md"}
"""Pages that are outside of docs/ in the repository, and their places in the site."""
LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)#\s]+)(#[^)\s]*)?(?=\))")
DOTTED_NAME = re.compile(r"(?<=<code>)\w+(?:\.\w+){2,}(?=</code>)")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml", ".sh": "sh"}
FENCE = "`" * 8
"""Longer than any fence in a file that is shown."""
FOR_DEVELOPERS = ("internals/", "repository/")
BOOST_FOR_DEVELOPERS = 0.3
"""The search lists these pages after those for users."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are outside of docs/, and those that links lead to. A hook of MkDocs."""
    for path, place in PAGES_OF_THE_REPOSITORY.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    texts = [(origin(file.src_uri), file.content_string) for file in files.documentation_pages()]
    targets = {target for source, text in texts for target, _ in links(source, text)}
    shown = {path for path in targets if (ROOT / path).is_dir()}
    for path in sorted(targets | {file for directory in shown for file in listed(directory)}):
        if files.get_file_from_path(place_of(path)) is None:
            content = listing(path) if (ROOT / path).is_dir() else source_page(path)
            files.append(File.generated(config, place_of(path), content=content, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write the links of a page as they are in the site. A hook of MkDocs."""
    if page.file.src_uri.startswith(FOR_DEVELOPERS):
        page.meta.setdefault("search", {"boost": BOOST_FOR_DEVELOPERS})
    source, here = origin(page.file.src_uri), PurePosixPath(page.file.src_uri).parent

    def in_the_site(match: re.Match[str]) -> str:
        path = resolved(source, match[1])
        return match[0] if path is None else os.path.relpath(place_of(path), here) + (match[2] or "")

    return LINK.sub(in_the_site, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let a long dotted name, such as that of a setting, break after its dots alone. A hook of MkDocs."""
    return DOTTED_NAME.sub(lambda match: match[0].replace(".", ".<wbr>"), html)


def origin(place: str) -> PurePosixPath:
    """Return the path in the repository of a page at this place in the site."""
    return next((path for path, of in PAGES_OF_THE_REPOSITORY.items() if of == place), DOCS / place)


def place_of(path: PurePosixPath) -> str:
    """Return the place in the site of a file or directory of the repository."""
    if path in PAGES_OF_THE_REPOSITORY:
        return PAGES_OF_THE_REPOSITORY[path]
    inside = path.is_relative_to(DOCS)
    place = path.relative_to(DOCS) if inside else PurePosixPath("repository") / path
    if (ROOT / path).is_dir():
        return str(place / "index.md")
    return str(place) if inside else f"{place}.md"


def resolved(source: PurePosixPath, link: str) -> PurePosixPath | None:
    """Return the path in the repository to which a link of the file `source` leads; None if nothing of the repository is there."""
    path = PurePosixPath(os.path.normpath(source.parent / link))
    return path if ".." not in path.parts and (ROOT / path).exists() else None


def links(source: PurePosixPath, text: str) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield (path in the repository, anchor) of each link in the text of the file `source`."""
    for link, anchor in LINK.findall(text):
        if (path := resolved(source, link)) is not None:
            yield path, anchor


def listed(directory: PurePosixPath) -> list[PurePosixPath]:
    """Return the files of a directory that its page lists."""
    return [directory / file.name for file in sorted((ROOT / directory).iterdir()) if file.is_file()]


def listing(directory: PurePosixPath) -> str:
    """Return the page of a directory."""
    rows = (f"- [{file.name}]({os.path.relpath(place_of(file), PurePosixPath(place_of(directory)).parent)})" for file in listed(directory))
    return "\n".join([f"# {directory}", "", *rows, ""])


def source_page(path: PurePosixPath) -> str:
    """Return the page of a file that is no page of the documentation."""
    return f"# {path}\n\n{FENCE}{LANGUAGES.get(path.suffix, '')}\n{(ROOT / path).read_text().rstrip()}\n{FENCE}\n"
