"""A record with a right checksum and any contents at all is read, or is an error that names it: whoever writes there stops no command."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kstream.checkpoint import format, read_log, take_epoch
from kstream.checkpoint.driver_status import read_status
from kstream.checkpoint.stored_graph import read_graph
from kstream.errors import CorruptRecordError, FormatVersionError, GraphNotRestoredError
from kstream.storage import FileStore, MemoryFileStore
from tests.checkpoint.written_records import GONE, KINDS, Kind, changed, new_store, written

REFUSALS = (CorruptRecordError, GraphNotRestoredError)
VALUES = (GONE, None, True, 0, -1, 1.5, 10**30, "", "text", "../../victim", [], [[]], ["text"], [7, None, {}], {}, {"0": 0}, {"text": None})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in JSON, of the innermost ones, too."""
    for key, inner in list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


def refusal(store: FileStore, name: str, read: Callable[[FileStore], object]) -> str | None:
    """What a reader says of the record: None if it reads it, else its error, which names the record."""
    try:
        read(store)
        return None
    except REFUSALS as e:
        assert store.path(name) in str(e) and "\n" not in str(e)
        return str(e)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_whatever_a_record_holds_it_is_read_or_refused_by_its_name(kind: Kind) -> None:
    store, fields = written(kind)
    assert [refusal(store, kind.name, read) for read in kind.readers] == [None] * len(kind.readers)
    refused = 0
    for path in places(fields):
        for value in VALUES:
            store.replace(kind.name, format.encode(kind.kind, changed(fields, path, value)))
            said = [refusal(store, kind.name, read) for read in kind.readers]
            refused += any(said)
            store.replace(kind.name, format.encode(kind.kind, fields))
    assert refused or kind.kind == "connections", "commands go on without the connections"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_record_that_is_nested_too_deep_is_refused_by_its_name(kind: Kind, opening: bytes) -> None:
    store, _ = written(kind)
    store.replace(kind.name, opening * 100_000)
    said = [refusal(store, kind.name, read) for read in kind.readers]
    assert any(said) or kind.kind == "connections", "commands go on without the connections"


def of(kind: str) -> tuple[MemoryFileStore, dict[str, Any], Kind]:
    found = next(each for each in KINDS if each.kind == kind)
    return *written(found), found


IMPOSSIBLE = [
    ("meta", ("interval",), 0),
    ("meta", ("interval",), -1000),
    ("meta", ("zero_time",), "1000"),
    ("meta", ("zero_time",), 10**18),
    ("interval-change", ("interval",), 0),
    ("status", ("interval",), 0),
    ("status", ("written",), 10**18),
    ("status", ("recent", 0, "records"), "4"),
    ("status", ("recent", 0), {"time": 2000}),
    ("plan", ("inputs",), [[0, {}]]),
    ("plan", ("names",), {"orders": "orders"}),
    ("plan", ("floor",), None),
    ("plan", ("records",), {"0": "many"}),
    ("done", ("states", "s0"), {"time": 2000, "files": []}),
    ("done", ("states", "s0", "window"), 0),
    ("done", ("states", "s0", "files"), ["/etc/victim"]),
    ("gone-states", ("states", "s0", "files"), ["../victim"]),
    ("gone-states", ("states", "s0", "files"), ["state/../../victim"]),
    ("gone-states", ("states", "s0", "files"), ["plans/000000000002000-000001"]),
    ("lost", ("lost", "0"), [["orders", 5, 8]]),
    ("block-added", ("block", "handle"), ["receivedData/0/log-1", "0", 9]),
    ("block-added", ("block", "handle"), {"class": "", "fields": {}}),
]


@pytest.mark.parametrize(("kind", "path", "value"), IMPOSSIBLE, ids=lambda value: str(value).replace("/", "_"))
def test_a_value_that_no_driver_writes_is_refused(kind: str, path: tuple[Any, ...], value: object) -> None:
    store, fields, known = of(kind)
    store.replace(known.name, format.encode(kind, changed(fields, path, value)))
    assert any(refusal(store, known.name, read) for read in known.readers)


def test_the_refusal_says_what_is_wrong_in_a_line() -> None:
    store, fields, kind = of("plan")
    store.replace(kind.name, format.encode("plan", changed(fields, ("floor",), "soon")))
    with pytest.raises(CorruptRecordError, match=r"its contents are of another form, TypeError: Time\.milliseconds cannot be of type str"):
        read_log(store)
    store.replace(kind.name, format.encode("plan", changed(fields, ("nonce",), 7)))
    with pytest.raises(CorruptRecordError, match=r"TypeError: BatchPlan\.nonce cannot be of type int"):
        read_log(store)


def test_a_long_value_is_not_repeated_in_the_refusal() -> None:
    store, fields, kind = of("plan")
    store.replace(kind.name, format.encode("plan", changed(fields, ("names",), {"x" * 100_000: None})))
    with pytest.raises(CorruptRecordError) as caught:
        read_log(store)
    assert len(str(caught.value)) < 1000


def test_a_file_with_digits_of_other_scripts_in_its_name_is_no_record() -> None:
    store = new_store()
    for name in ("plans/²-1", "epoch-²", "status/²", "settled/1-²-1"):
        store.create(name, b"")
    assert read_log(store).plans == {} and read_status(store) is None and take_epoch(store, 5) == 1


def test_a_newer_version_of_a_record_is_still_told_as_such() -> None:
    store, _, kind = of("status")
    store.replace(kind.name, json.dumps(json.loads(store.read(kind.name)) | {"version": 2, "interval": 0}).encode())
    with pytest.raises(FormatVersionError):
        read_status(store)


def test_functions_that_are_no_base64_are_a_damaged_graph() -> None:
    store, fields, kind = of("graph")
    assert base64.b64decode(fields["worker_functions"]) == b"w"
    store.replace(kind.name, format.encode("graph", fields | {"worker_functions": "YQ"}))
    with pytest.raises(GraphNotRestoredError, match="the file is damaged"):
        read_graph(store)
