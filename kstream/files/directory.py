"""From a directory's path, wild cards allowed, to the files in it. The wild cards are Hadoop's: `*`, `?`, `[abc]`, `[^a-c]`, `{a,b}`.

They stand for directories; only files directly inside a directory count. The cost is one listing a directory that matches, and one a
directory that is walked through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kstream.files.file_status import Entry, FileStatus

List = Callable[[str], list[Entry]]
"""Everything directly in a directory; FileNotFoundError or NotADirectoryError if it is none."""
_WILD = re.compile(r"[*?\[{]")


def files_in(ls: List, pattern: str) -> list[FileStatus]:
    """The files in every directory that matches. FileNotFoundError if a path without wild cards is no directory.

    A directory that goes away meanwhile has no files.
    """
    parts = (pattern.rstrip("/") or "/").split("/")
    wild = next((index for index, part in enumerate(parts) if _WILD.search(part)), None)
    if wild is None:
        return list(_files(ls(pattern.rstrip("/") or "/")))
    found = ["/".join(parts[:wild]) or "/"]
    for part in parts[wild:]:
        found = [path for directory in found for path in _matching(ls, directory, part)]
    return [file for directory in found for file in _files(_present(ls, directory))]


def _matching(ls: List, directory: str, part: str) -> list[str]:
    if not _WILD.search(part):
        return [f"{directory.rstrip('/')}/{part}"]
    matches = re.compile(_translated(part), re.DOTALL).fullmatch
    return sorted(entry.path for entry in _present(ls, directory) if entry.is_directory and matches(entry.name))


def _present(ls: List, directory: str) -> list[Entry]:
    try:
        return ls(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _files(entries: list[Entry]) -> Iterator[FileStatus]:
    return (FileStatus(e.path, e.mtime_ms, e.size) for e in entries if not e.is_directory)


def _translated(part: str) -> str:
    """The regular expression of one component."""
    out, at, depth = "", 0, 0
    while at < len(part):
        char, rest = part[at], part[at + 1 :]
        at += 1
        if char == "\\" and rest:
            out += re.escape(rest[0])
            at += 1
        elif char in "*?":
            out += ".*" if char == "*" else "."
        elif char == "[" and "]" in rest[1:]:
            inner = rest[: rest.index("]", 1)]
            at += len(inner) + 1
            negated = inner[0] in "^!"
            out += "[" + "^" * negated + re.sub(r"([\\\[&~|])", r"\\\1", inner[negated:]) + "]"
        elif char == "{" or (depth and char in ",}"):
            depth += {"{": 1, "}": -1}.get(char, 0)
            out += {"{": "(?:", ",": "|", "}": ")"}[char]
        else:
            out += re.escape(char)
    return out + ")" * depth
