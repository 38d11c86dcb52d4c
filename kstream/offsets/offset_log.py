"""The offset log of a query of Structured Streaming, as text. Pure.

Spark writes a file when a batch begins: the first line is the version of the log, the second the metadata of the batch, and each other line
the offset of a source, up to which the batch reads. `-` stands for a source that has no offset yet. In `v1` the lines are in the order of
the sources; in `v2` each begins with the name of its source, and a source that was not named has its number.
"""

from __future__ import annotations

import re

from kstream.errors import ConfigurationError

OFFSETS = "offsets"
"""The folder of the log in a checkpoint. A file is named after its batch."""
VERSIONS = ("v1", "v2")
NO_OFFSET = "-"
_NAMED = re.compile(r"(\w+):(.*)", re.DOTALL)


def sources_of(text: str, where: str) -> dict[str, str]:
    """Return the offset of each source, by its name or number, from a file of the offset log.

    Args:
        text: the content of the file.
        where: its place, for errors.

    Raises:
        ConfigurationError: the version is unknown, or the file is cut short.
    """
    version, *lines = text.split("\n")
    if version not in VERSIONS:
        known = " and ".join(VERSIONS)
        text = f"{where} has the version {short(version)}: kstream reads {known} of the offset log"
        raise ConfigurationError(text, key="checkpoint", value=where)
    offsets = [line for line in lines[1:] if line]
    if version == "v1":
        named = {str(number): offset for number, offset in enumerate(offsets)}
    else:
        named = {match[1]: match[2] for line in offsets if (match := _NAMED.fullmatch(line)) is not None}
    if not offsets or len(named) != len(offsets):
        raise ConfigurationError(f"{where} is damaged: it has not a line with an offset for each source", key="checkpoint", value=where)
    return named


def short(text: str) -> str:
    """Return a text for a sentence: printable, and at most 60 characters."""
    shown = ascii(text)[1:-1]
    return f"{shown[:60]}…" if len(shown) > 60 else shown
