"""The bytes of a partition of state: read for ever, whole or not at all."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import pytest

from kstream.checkpoint.state_format import decode_state, encode_state
from kstream.errors import CorruptRecordError, FormatVersionError

STATE_BYTES = (
    b"KSTATE\x00\x01"
    b"P\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x14Z\x0b\xf4\x99\xd6E.c\xb4\xcc\x0c70\xcb)O"
    b"\x80\x05\x95\t\x00\x00\x00\x00\x00\x00\x00]\x94(K\x01K\x02e."
    b"B\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\xf7\xa8x\xb0\xfb\xf2\xd8\xf3\xd0\x11\x16\xa8\x9a\xb1\xba\xa3xy"
    b"P\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x17\x91PK}\x00\x9e\x80\xa8k6\x19\xca\xb92f@"
    b"\x80\x05\x95\x0c\x00\x00\x00\x00\x00\x00\x00]\x94\x8c\x01a\x94K\x03\x86\x94a."
    b"E\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\xff\xee\xbc(\xc2\x03\x97\\\xd9\xff{\xb0K\x03%\xfa"
)
ELEMENTS = [1, 2, b"xy", ("a", 3)]


def dumps(elements: list[Any]) -> bytes:
    return pickle.dumps(elements, 5)


def encoded(elements: Iterable[Any]) -> bytes:
    return encode_state(elements, dumps)


def decoded(data: bytes) -> list[Any]:
    return list(decode_state(data, "state/the-file", pickle.loads))


def test_the_bytes_of_a_state() -> None:
    assert encoded(ELEMENTS) == STATE_BYTES
    assert decoded(STATE_BYTES) == ELEMENTS


def test_a_partition_without_elements_is_a_whole_file() -> None:
    assert decoded(encoded([])) == []


def test_an_element_of_bytes_is_stored_as_it_is_and_comes_back_as_bytes() -> None:
    """What packs its own state (mapWithState) is not packed again."""
    blob = bytes(range(256)) * 100
    data = encoded([blob])
    assert blob in data and len(data) < len(blob) + 150
    assert decoded(data) == [blob] and type(decoded(data)[0]) is bytes


def test_many_small_elements_share_a_frame_and_large_ones_do_not() -> None:
    assert encoded(range(100_000)).count(b"P\x00\x00\x00\x00") < 20
    large = ["x" * 300_000] * 300
    assert max(len(chunk) for chunk in _payloads(large)) < 64 * 300_100
    assert decoded(encoded(large)) == large


def _payloads(elements: list[Any]) -> list[bytes]:
    payloads: list[bytes] = []
    encode_state(elements, lambda chunk: payloads.append(dumps(chunk)) or payloads[-1])
    return payloads


def test_elements_are_unpickled_as_they_are_asked_for() -> None:
    loaded: list[int] = []

    def loads(data: bytes) -> list[Any]:
        loaded.append(len(data))
        return pickle.loads(data)

    elements = decode_state(encoded(range(1000)), "p", loads)
    assert next(elements) == 0 and len(loaded) == 1


def test_any_flipped_byte_is_refused_with_the_files_name() -> None:
    for place in range(len(STATE_BYTES)):
        for flip in (1, 0x80, 0xFF):
            damaged = STATE_BYTES[:place] + bytes([STATE_BYTES[place] ^ flip]) + STATE_BYTES[place + 1 :]
            with pytest.raises((CorruptRecordError, FormatVersionError), match="state/the-file"):
                decoded(damaged)


def test_any_cut_is_refused_with_the_files_name() -> None:
    for length in range(len(STATE_BYTES)):
        with pytest.raises(CorruptRecordError, match="state/the-file"):
            decoded(STATE_BYTES[:length])


def test_frames_that_change_places_or_come_from_another_file_are_refused() -> None:
    begin, end = STATE_BYTES.index(b"B\x00"), STATE_BYTES.rindex(b"P\x00\x00\x00")
    with pytest.raises(CorruptRecordError):
        decoded(STATE_BYTES[:begin] + STATE_BYTES[end:])
    with pytest.raises(CorruptRecordError, match="continues"):
        decoded(STATE_BYTES + b"\0")
    with pytest.raises(CorruptRecordError):
        decoded(STATE_BYTES[:-41] + encoded([b"xy", *ELEMENTS])[8:])


def test_the_error_says_what_is_lost_and_what_to_do() -> None:
    with pytest.raises(CorruptRecordError, match="Restore the file from a copy") as caught:
        decoded(b"junk")
    assert caught.value.facts["path"] == "state/the-file"


def test_elements_that_cannot_be_unpickled_are_told_with_the_files_name() -> None:
    data = encode_state([1], lambda _elements: b"no pickle")
    with pytest.raises(CorruptRecordError, match="unpickled"):
        decoded(data)


def test_a_file_of_a_newer_kstream_is_refused_with_both_versions() -> None:
    with pytest.raises(FormatVersionError, match="upgrade") as caught:
        decoded(b"KSTATE\0\x02" + STATE_BYTES[8:])
    assert (caught.value.facts["version"], caught.value.facts["supported"]) == (2, 1)
