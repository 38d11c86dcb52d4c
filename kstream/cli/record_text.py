r"""Records of a log as text, hex or JSON, for commands that print records. Pure.

What producers have written is not trusted: no byte of it reaches a terminal as a control character. Text has `\n`, `\x1b`, `\u202e` in
place of whatever is not printable, and `\xff` for a byte that is not UTF-8. A backslash stands for itself, so that JSON stays legible; hex
and JSON are exact. A long key, value or header is cut, and its size is named. The value of a header with the name of a secret is hidden.
"""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from kstream.cli.terminal import count
from kstream.connectors import LogRecord
from kstream.printable import printable
from kstream.secret import looks_secret

TEXT, HEX, JSON = "text", "hex", "json"
FORMATS = (TEXT, HEX, JSON)
MOST_BYTES = 1000
"""The default for the most bytes of a key, a value or a header in text and hex."""
HIDDEN = "[hidden]"
_ROW = 16


def lines_of(record: LogRecord, form: str = TEXT, most_bytes: int | None = None) -> list[str]:
    """Return a record as lines for people, or as one line of JSON.

    Args:
        record: the record.
        form: one of FORMATS.
        most_bytes: the most bytes of a key, a value or a header; 0 for all of them; None for MOST_BYTES, and for all in JSON.
    """
    if form == JSON:
        return [json.dumps(as_data(record, most_bytes or 0))]
    most = MOST_BYTES if most_bytes is None else most_bytes
    lines = [f"{place(record)}  {moment(record)}"]
    for name, content in (("key", record.key), *(("header", header) for header in record.headers), ("value", record.value)):
        lines += _part(name, content, form, most)
    return lines


def value_line(record: LogRecord, most_bytes: int | None = None) -> str:
    """Return the value of a record as one line of printable text: `null` without one. A value that was cut ends with `…`.

    Args:
        record: the record.
        most_bytes: the most bytes; 0 or None for all of them.
    """
    if record.value is None:
        return "null"
    kept = record.value[:most_bytes] if most_bytes else record.value
    is_cut = len(kept) < len(record.value)
    return _text(kept, is_cut) + ("…" if is_cut else "")


def place(record: LogRecord) -> str:
    """Return the place of a record, as commands take it: `orders-0@12`."""
    return f"{printable(record.topic)}-{record.partition}@{record.offset}"


def moment(record: LogRecord) -> str:
    """Return the timestamp of a record, UTC; in milliseconds if it is no date. Producers may send any number."""
    if record.timestamp_ms is None:
        return "no timestamp"
    try:
        at = datetime.fromtimestamp(record.timestamp_ms / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return f"{record.timestamp_ms} ms ({record.timestamp_type})"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} UTC ({record.timestamp_type})"


def as_data(record: LogRecord, most_bytes: int = 0) -> dict[str, Any]:
    """Return a record as JSON values. Bytes that are UTF-8 are text; others are in base64, under a name that says so.

    Args:
        record: the record.
        most_bytes: the most bytes of a key, a value or a header; 0 for all of them. A shorter one has `…_cut_of`, its size.
    """
    headers = [
        {"name": name, "hidden": True} if _is_hidden(name) else {"name": name, **_content("value", value, most_bytes)}
        for name, value in record.headers
    ]
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type or None,
        **_content("key", record.key, most_bytes),
        "headers": headers,
        **_content("value", record.value, most_bytes),
    }


def _content(name: str, content: bytes | None, most_bytes: int) -> dict[str, Any]:
    """Return bytes as one or two fields of a JSON object."""
    if content is None:
        return {name: None}
    kept = content[:most_bytes] if most_bytes else content
    cut = {f"{name}_cut_of": len(content)} if len(kept) < len(content) else {}
    try:
        return {name: codecs.getincrementaldecoder("utf-8")().decode(kept, not cut), **cut}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(kept).decode(), **cut}


def _is_hidden(header: str) -> bool:
    """Return whether the value of a header is not shown, because its name is that of a secret."""
    return looks_secret(header, "")


def _part(name: str, content: bytes | tuple[str, bytes | None] | None, form: str, most: int) -> Iterator[str]:
    """Yield the lines of a key, a value or a header (a tuple of name and value)."""
    label, data = f"  {name:<7}", content
    if isinstance(data, tuple):
        header, data = data
        label = f"{label} {printable(header)}:"
        if data is not None and _is_hidden(header):
            yield f"{label} {HIDDEN}, {count(len(data), 'byte')}"
            return
    if data is None:
        yield f"{label} null"
        return
    kept = data[:most] if most else data
    size = count(len(data), "byte") + (f", the first {len(kept)}" if len(kept) < len(data) else "")
    if form == TEXT:
        yield f"{label} {size}: {_text(kept, len(kept) < len(data))}" if data else f"{label} {size}"
        return
    yield f"{label} {size}"
    for begin in range(0, len(kept), _ROW):
        yield _hex_row(begin, kept[begin : begin + _ROW])


def _text(data: bytes, is_cut: bool) -> str:
    """Return bytes as printable text. The begin of a character that was cut is left out."""
    return printable(codecs.getincrementaldecoder("utf-8")("backslashreplace").decode(data, not is_cut))


def _hex_row(begin: int, row: bytes) -> str:
    """Return up to 16 bytes as `hexdump -C` does: their place, their numbers, and the printable ASCII among them."""
    shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
    return f"    {begin:08x}  {row.hex(' '):<{3 * _ROW - 1}}  |{shown}|"
