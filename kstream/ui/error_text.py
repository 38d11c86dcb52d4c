"""Texts of errors as the page shows them: without what may be a secret, and otherwise as they are. Pure."""

from __future__ import annotations

import re

from kstream.secret import looks_secret

_PORT = r"\d{1,5}(?![^\s,;/])"
_URL_LOGIN = re.compile(rf"(://(?!\[)[^/@\s:\"'<>]*:)(?!{_PORT})\S*@|(https?://)[^/@\s]+@", re.IGNORECASE)
"""User and password of a URL, in a line that is not long. What the groups have may be shown."""
_LONGEST_LINE = 2000
"""A longer line is cut: the text may be that of a hostile record, and the time of a search depends on the length of the line."""
_LONGEST_BEGIN = 500


def without_secrets(text: str) -> str:
    """Return the text of an error, which may have many lines, without what may be a secret. The other lines stay as they are.

    The password of a URL becomes `(secret)`. Of another line that may hold a secret only the beginning stays. Of a private key nothing
    stays. A line is cut after 2,000 characters.

    Args:
        text: such as a traceback.
    """
    lines: list[str] = []
    in_key = False
    for line in text.split("\n"):
        begins = "-----BEGIN" in line
        if in_key or begins:
            if begins:
                lines.append(_named(line[:_LONGEST_LINE]))
            in_key = "-----END" not in line
        else:
            lines.append(_without_secret(line))
    return "\n".join(lines)


def line_without_secrets(text: str) -> str:
    """Return the text of an error in one line, without what may be a secret."""
    return without_secrets(" ".join(text.split()))


def _without_secret(line: str) -> str:
    """Return a line without the password of a URL; of one that may hold another secret its beginning."""
    is_cut = len(line) > _LONGEST_LINE
    seen = f"{line[: _LONGEST_LINE - 1]}@" if is_cut else line  # the password of a URL that is cut ends there
    if looks_secret("", _URL_LOGIN.sub("://", seen)):
        return _named(seen)
    shown = _URL_LOGIN.sub(lambda found: f"{found[1] or found[2]}(secret)@", seen)
    return f"{shown.removesuffix('@')}…" if is_cut else shown


def _named(line: str) -> str:
    """Return the part of a line before its first colon, if that is harmless, and that the rest may hold a secret."""
    begin, colon, _ = line.partition(":")
    if not colon or len(begin) > _LONGEST_BEGIN or looks_secret("", begin):
        indent = line[: len(line) - len(line.lstrip())]
        return f"{indent}a line of this text may hold a secret and is in the log of the driver only"
    return f"{begin}: its text may hold a secret and is in the log of the driver only"
