r"""Texts for a terminal: what a record, a checkpoint or another host says may have characters that a terminal obeys. Pure.

Such are control characters (ESC, DEL, U+009B), and those that turn the direction of text round (U+202E). Each of them is shown as its
escape, such as `\x1b`. A backslash stands for itself, so that JSON stays legible.
"""

from __future__ import annotations

import json
import unicodedata


def printable(text: str) -> str:
    """Return a text in one line without characters that a terminal may obey: each that is not printable is written as its escape."""
    return text if text.isprintable() else "".join(map(_shown, text))


def printable_lines(text: str) -> str:
    """Return a text as `printable` does, which keeps its lines and tabs. A carriage return is no end of a line: it would hide the line."""
    return text if text.isprintable() else "".join(c if c in "\n\t" else _shown(c) for c in text)


def printable_json(text: str) -> str:
    """Return JSON in one line as `printable` does, with the escapes of JSON: it still has the same values."""
    return text if text.isprintable() else "".join(c if _is_shown(c) else json.dumps(c)[1:-1] for c in text)


def _shown(c: str) -> str:
    return c if _is_shown(c) else c.encode("unicode_escape").decode()


def _is_shown(c: str) -> bool:
    """Return whether a character is shown as it is. Spaces of other scripts are, though Python does not call them printable."""
    return c.isprintable() or unicodedata.category(c) == "Zs"
