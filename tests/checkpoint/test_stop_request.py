"""The request to stop in a checkpoint: its bytes, and that it is for one driver only."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from kstream.checkpoint.stop_request import StopRequest, ask_to_stop, drop_stops_before, read_stop
from kstream.errors import CorruptRecordError
from kstream.storage import MemoryFileStore

REQUEST = StopRequest(3, 1_700_000_000_000, "host-1, pid 4711")
STORED = (
    b'{"asked_by":"host-1, pid 4711","at":1700000000000,"checksum":"939204f960986c826f8ce87afec71dfe4bcfcfc68503f66d'
    b'19838f44575aaa09","epoch":3,"kind":"stop","now":false,"version":1}'
)


def store() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def test_the_bytes_and_the_name_of_a_request_to_stop() -> None:
    files = store()
    ask_to_stop(files, REQUEST)
    assert files.list("stop") == ["000003"] and files.read("stop/000003") == STORED
    assert read_stop(files, 3) == REQUEST
    assert read_stop(files, 2) is None and read_stop(files, 4) is None, "it is for one driver"


def test_a_second_request_changes_nothing_unless_it_wants_more() -> None:
    files = store()
    assert ask_to_stop(files, REQUEST) == REQUEST
    assert ask_to_stop(files, replace(REQUEST, at_ms=9)) == REQUEST
    at_once = replace(REQUEST, at_ms=10, now=True)
    assert ask_to_stop(files, at_once) == at_once
    assert ask_to_stop(files, replace(REQUEST, at_ms=11)) == at_once
    assert read_stop(files, 3) == at_once


def test_requests_to_earlier_drivers_can_be_removed() -> None:
    files = store()
    for epoch in (1, 2, 3):
        ask_to_stop(files, replace(REQUEST, epoch=epoch))
    drop_stops_before(files, 3)
    assert files.list("stop") == ["000003"]


@pytest.mark.parametrize("damage", [(b"4711", b"4712"), (b'"epoch":3', b'"epoch":4')])
def test_a_damaged_request_is_an_error_that_names_it(damage: tuple[bytes, bytes]) -> None:
    files = store()
    ask_to_stop(files, REQUEST)
    files.replace("stop/000003", files.read("stop/000003").replace(*damage))
    with pytest.raises(CorruptRecordError, match="stop/000003"):
        read_stop(files, 3)


def test_a_request_under_the_name_of_another_driver_is_an_error() -> None:
    files = store()
    ask_to_stop(files, REQUEST)
    files.create("stop/000004", files.read("stop/000003"))
    with pytest.raises(CorruptRecordError, match="copied or renamed"):
        read_stop(files, 4)
