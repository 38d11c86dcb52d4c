r"""Records for people and for machines: nothing that a producer has written moves a cursor, and hex and JSON lose nothing."""

from __future__ import annotations

import base64
import json

import pytest

from kstream.cli.record_text import HEX, JSON, MOST_BYTES, TEXT, as_data, lines_of, value_line
from kstream.connectors import LogRecord

AT = 1_760_000_000_123
ORDER = LogRecord("orders", 0, 12, AT, "CreateTime", b"o-1", b'{"id": 1, "note": "a\\"b"}', [("trace", b"t-9"), ("empty", None)])


def test_a_record_is_its_place_its_time_and_its_parts_with_their_sizes() -> None:
    assert lines_of(ORDER) == [
        "orders-0@12  2025-10-09 08:53:20.123 UTC (CreateTime)",
        "  key     3 bytes: o-1",
        "  header  trace: 3 bytes: t-9",
        "  header  empty: null",
        '  value   25 bytes: {"id": 1, "note": "a\\"b"}',
    ]


def test_nothing_and_no_bytes_are_told_apart() -> None:
    lines = lines_of(LogRecord("t", 1, 0, key=None, value=b""))
    assert lines == ["t-1@0  no timestamp", "  key     null", "  value   0 bytes"]


HOSTILE = ["\x1b]0;title\x07", "\x1b[2J", "a\r\nb", "\x9b31m", "\u202egpj.exe", "\u2028", "\u200b", "\ue000", "\x7f\x00", "🂡\U000e0041"]


@pytest.mark.parametrize("form", [TEXT, HEX, JSON])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_control_character_of_a_producer_reaches_the_terminal(hostile: str, form: str) -> None:
    data = hostile.encode()
    record = LogRecord("t", 0, 0, AT, "CreateTime", data, data, [(hostile, data)])
    assert all(line.isprintable() for line in [*lines_of(record, form), value_line(record)])


def test_bytes_that_are_no_text_are_shown_one_by_one_among_the_text() -> None:
    assert lines_of(LogRecord("t", 0, 0, value=b'{"name": "M\xfcller"}\n'))[-1] == r'  value   19 bytes: {"name": "M\xfcller"}\n'


def test_a_long_value_is_cut_between_characters_and_its_size_is_named() -> None:
    value = ("a" * (MOST_BYTES - 1) + "é").encode() + b"b" * 5_000_000
    last = lines_of(LogRecord("t", 0, 0, value=value))[-1]
    assert last == f"  value   {len(value)} bytes, the first {MOST_BYTES}: {'a' * (MOST_BYTES - 1)}"
    assert len(lines_of(LogRecord("t", 0, 0, value=value), most_bytes=0)[-1]) > 5_000_000
    cut = as_data(LogRecord("t", 0, 0, value=value), most_bytes=MOST_BYTES)
    assert (cut["value"], cut["value_cut_of"]) == ("a" * (MOST_BYTES - 1), len(value))


def test_hex_has_place_numbers_and_letters_of_sixteen_bytes_a_row() -> None:
    rows = lines_of(LogRecord("t", 0, 0, value=bytes(range(60, 80)) + b"\x1b"), HEX)[-2:]
    assert rows == [
        "    00000000  3c 3d 3e 3f 40 41 42 43 44 45 46 47 48 49 4a 4b  |<=>?@ABCDEFGHIJK|",
        "    00000010  4c 4d 4e 4f 1b                                   |LMNO.|",
    ]


def test_json_is_one_line_that_gives_every_byte_back() -> None:
    (line,) = lines_of(LogRecord("t", 0, 7, AT, "LogAppendTime", b"\xff\x00", "é\n".encode(), [("h", b"\xfe"), ("h", b"x")]), JSON)
    found = json.loads(line)
    assert base64.b64decode(found.pop("key_base64")) == b"\xff\x00"
    assert base64.b64decode(found["headers"][0].pop("value_base64")) == b"\xfe"
    assert found == {
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "timestamp": AT,
        "timestamp_type": "LogAppendTime",
        "headers": [{"name": "h"}, {"name": "h", "value": "x"}],
        "value": "é\n",
    }


@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "session-token", "db.password"])
def test_the_value_of_a_header_with_the_name_of_a_secret_is_hidden(name: str) -> None:
    record = LogRecord("t", 0, 0, headers=[(name, b"swordfish")])
    for form in (TEXT, HEX, JSON):
        said = "\n".join(lines_of(record, form))
        assert "swordfish" not in said and b"swordfish".hex(" ") not in said and name in said


@pytest.mark.parametrize("stamp", [10**18, -(10**17), -1])
def test_a_timestamp_that_is_no_date_is_shown_as_its_number(stamp: int) -> None:
    said = lines_of(LogRecord("t", 0, 0, stamp, "CreateTime"))[0]
    assert str(stamp) in said or "1969-12-31 23:59:59.999 UTC" in said


def test_a_value_alone_is_one_line_and_says_whether_it_is_cut() -> None:
    assert value_line(ORDER) == '{"id": 1, "note": "a\\"b"}'
    assert value_line(LogRecord("t", 0, 0, value=b"a\nb")) == r"a\nb"
    assert value_line(LogRecord("t", 0, 0)) == "null" and value_line(LogRecord("t", 0, 0, value=b"")) == ""
    assert value_line(LogRecord("t", 0, 0, value="éé".encode()), 3) == "é…"
    assert value_line(LogRecord("t", 0, 0, value=b"abc"), 0) == value_line(LogRecord("t", 0, 0, value=b"abc"), 3) == "abc"
