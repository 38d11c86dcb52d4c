"""The stored form of a log: Spark's names and framing, to the byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kstream.errors import ConfigurationError
from kstream.storage import LocalFileStore
from kstream.wal import FileBasedWriteAheadLog, FileBasedWriteAheadLogSegment
from kstream.wal import file_format as file_format_module
from kstream.wal.file_format import FrameReader, LogFile, first_free, frame, log_files

GOLDEN = bytes.fromhex("00000005 66697273 74 00000001 ff 0000000c 7468652074686972642100 0a".replace(" ", ""))


def reader_of(data: bytes) -> FrameReader:
    return FrameReader(lambda offset, length: data[offset : offset + length], len(data))


def test_a_file_of_a_log_is_lengths_and_records_and_nothing_else(tmp_path) -> None:
    """Spark behaviour WL1."""
    store = LocalFileStore(tmp_path)
    log = FileBasedWriteAheadLog(store, "log")
    handles = [log.write(r, 1000) for r in (b"first", b"\xff", b"the third!\0\n")]
    assert store.list("log") == ["log-1000-61000"] and store.read("log/log-1000-61000") == GOLDEN
    path = "log/log-1000-61000"
    assert handles == [FileBasedWriteAheadLogSegment(path, offset, length) for offset, length in ((0, 5), (9, 1), (14, 12))]


def test_the_records_of_a_file_written_long_ago_are_read() -> None:
    """Spark behaviour WL1."""
    assert list(reader_of(GOLDEN)) == [b"first", b"\xff", b"the third!\0\n"]


def test_files_are_in_the_order_of_their_starts_as_numbers_and_strangers_are_left_alone() -> None:
    """Spark behaviour WL1."""
    names = ["log-1000-2000", "log-999-1999", "log-20-30", "log-1000-1500", "log-5", "log-1-2.tmp", "xlog-1-2", "log--1-2"]
    assert [file.name for file in log_files(names)] == ["log-20-30", "log-999-1999", "log-1000-1500", "log-1000-2000"]


def test_the_next_free_start_passes_by_all_that_are_taken() -> None:
    """Spark behaviour WL1."""
    assert first_free(5, [LogFile(5, 9), LogFile(6, 10), LogFile(8, 12)]) == 7


@pytest.mark.parametrize("last", [b"x", b"0123456789" * 3])
def test_a_file_cut_at_any_byte_of_its_last_record_loses_only_that(last: bytes) -> None:
    """Spark behaviour WL4."""
    before = frame(b"a") + frame(b"bb")
    for cut in range(len(frame(last))):
        reader = reader_of(before + frame(last)[:cut])
        assert list(reader) == [b"a", b"bb"], cut
        assert (reader.end, reader.is_whole) == (len(before), cut == 0)
    assert list(reader_of(before + frame(last))) == [b"a", b"bb", last]


@pytest.mark.parametrize("garbage", [b"\0", b"\0" * 4096, b"\xff" * 64, b"garbage!", b"\x7f\xff\xff\xff"])
def test_what_follows_the_last_record_and_is_none_ends_the_reading(garbage: bytes) -> None:
    """Spark behaviour WL4."""
    reader = reader_of(frame(b"a") + garbage)
    assert list(reader) == [b"a"] and not reader.is_whole


def test_asking_past_the_end_raises_and_an_empty_file_has_no_record() -> None:
    """Spark behaviour WL4."""
    records = iter(reader_of(frame(b"a")))
    assert next(records) == b"a"
    with pytest.raises(StopIteration):
        next(records)
    assert list(reader_of(b"")) == [] and reader_of(b"").is_whole


@pytest.mark.parametrize("chunk", [1, 3, 8, 1000])
def test_records_come_out_alike_whatever_is_read_at_once_and_no_more_than_the_file_has(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark behaviour WL4."""
    monkeypatch.setattr(file_format_module, "CHUNK", chunk)
    records = [bytes([i]) * i for i in range(1, 30)]
    data = b"".join(frame(r) for r in records)
    asked: list[tuple[int, int]] = []

    def read_at(offset: int, length: int) -> bytes:
        asked.append((offset, length))
        return data[offset : offset + length]

    assert list(FrameReader(read_at, len(data))) == records
    assert all(offset + length <= len(data) for offset, length in asked)


def test_a_file_that_shrinks_while_it_is_read_ends_there() -> None:
    """Spark behaviour WL4."""
    data = frame(b"a") + frame(b"bb")
    assert list(FrameReader(cutting(data, 7), len(data))) == [b"a"]
    assert list(FrameReader(cutting(data, 10), len(data))) == [b"a"]


def cutting(data: bytes, end: int) -> Callable[[int, int], bytes]:
    return lambda offset, length: data[:end][offset : offset + length]


def test_a_record_without_a_byte_is_refused_as_a_run_of_zeros_is_no_record() -> None:
    """Spark behaviour WL4."""
    with pytest.raises(ConfigurationError, match="1 to 2147483647 bytes, this one 0"):
        frame(b"")
