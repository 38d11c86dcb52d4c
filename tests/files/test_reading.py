"""From a planned file to records, by one task or by several."""

from __future__ import annotations

import bz2
import gzip
import os
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark.cloudpickle import dumps, loads

from kstream.errors import FileLostError, RecordLengthError, UnreadableFileError
from kstream.files import FileFormat, FileStatus, FixedRecords, TextLines, WatchedDirectory, WholeFile
from kstream.files.formats import Split, cut
from tests.files.partitions import partitions


def read(directory: Path, format: FileFormat, split_bytes: int = 1 << 20) -> list[list[Any]]:
    source = WatchedDirectory(str(directory), split_bytes, partitions)
    return source.rdd(sorted(source.list(0)), format)


def test_a_file_is_a_partition_and_a_large_one_several(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n")
    (tmp_path / "b").write_bytes(b"".join(b"%03d\n" % n for n in range(10)))
    assert read(tmp_path, TextLines(), 20) == [["1", "2"], [f"{n:03d}" for n in range(6)], [f"{n:03d}" for n in range(6, 10)]]
    assert read(tmp_path, TextLines()) == [["1", "2"], [f"{n:03d}" for n in range(10)]]


def test_a_batch_without_files_has_no_task(tmp_path: Path) -> None:
    assert read(tmp_path, TextLines()) == []


def test_files_are_cut_at_units_and_a_small_rest_is_no_task_of_its_own() -> None:
    file = FileStatus("f", 0, 105)
    assert cut([file], 50, 1, lambda _p: True) == [Split(file, 0, 50), Split(file, 50, 105)]
    assert cut([file], 50, 7, lambda _p: True) == [Split(file, 0, 49), Split(file, 49, 98), Split(file, 98, 105)]
    assert cut([file], 5, 35, lambda _p: True) == [Split(file, 0, 35), Split(file, 35, 70), Split(file, 70, 105)]
    assert cut([file], 50, 1, lambda _p: False) == [Split(file, 0, 105)]


def test_records_of_a_fixed_length_are_bytes_however_the_file_is_cut(tmp_path: Path) -> None:
    """Spark behaviour IS3."""
    (tmp_path / "a").write_bytes(bytes(range(30)))
    records = [bytes(range(n, n + 3)) for n in range(0, 30, 3)]
    assert read(tmp_path, FixedRecords(3)) == [records]
    assert read(tmp_path, FixedRecords(3), 10) == [records[0:3], records[3:6], records[6:9], records[9:]]
    assert read(tmp_path, FixedRecords(1)) == [[bytes([n]) for n in range(30)]]


def test_a_file_that_is_no_whole_number_of_records_is_an_error_with_the_numbers(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1234567")
    with pytest.raises(RecordLengthError, match="7 bytes, which is no whole number of records of 3") as caught:
        read(tmp_path, FixedRecords(3))
    assert (caught.value.facts["size"], caught.value.facts["record_length"]) == (7, 3)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".deflate", zlib.compress)])
def test_compressed_text_is_read_by_one_task(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    lines = [f"line {n} {os.urandom(20).hex()}" for n in range(5000)]
    (tmp_path / f"a{suffix}").write_bytes(pack("\n".join(lines).encode()))
    assert read(tmp_path, TextLines(), 1000) == [lines]
    (tmp_path / f"a{suffix}").write_bytes(pack("\n".join(lines).encode())[:-200])
    with pytest.raises(EOFError):
        read(tmp_path, TextLines())


def test_a_compression_that_is_not_read_says_so_instead_of_giving_garbage(tmp_path: Path) -> None:
    (tmp_path / "a.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(UnreadableFileError, match=r"a\.zst"):
        read(tmp_path, TextLines())


def test_a_reader_of_the_users_gets_the_open_file_and_its_path(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"12;34")
    whole = WholeFile(lambda file, path: [(Path(path).name, int(n)) for n in file.read().split(b";")])
    assert read(tmp_path, whole, 2) == [[("a.gz", 12), ("a.gz", 34)]]


@pytest.mark.parametrize("format", [TextLines(), FixedRecords(2), WholeFile(lambda file, _path: [file.read()])])
def test_a_planned_file_that_is_gone_is_told_with_its_name(tmp_path: Path, format: FileFormat) -> None:
    source = WatchedDirectory(str(tmp_path), 100, partitions)
    lost = FileStatus(str(tmp_path / "gone"), 1, 10)
    with pytest.raises(FileLostError, match="gone") as caught:
        source.rdd([lost], format)
    assert caught.value.facts["path"] == lost.path


def test_a_planned_file_that_was_cut_is_told_and_one_that_grew_is_read_as_it_was(tmp_path: Path) -> None:
    source = WatchedDirectory(str(tmp_path), 100, partitions)
    (tmp_path / "a").write_bytes(b"1\n2\n")
    planned = source.list(0)
    (tmp_path / "a").write_bytes(b"1\n2\n3\n")
    assert source.rdd(planned, TextLines()) == [["1", "2"]]
    (tmp_path / "a").write_bytes(b"1\n")
    with pytest.raises(FileLostError, match="had 4 bytes when its batch was planned and has 2 now"):
        source.rdd(planned, TextLines())


def test_what_lies_in_the_drivers_memory_is_sent_along() -> None:
    url = f"memory://{uuid.uuid4().hex}"
    memory = fsspec.filesystem("memory")
    memory.pipe_file(f"{url}/a", b"1\n2\n")
    tasks: list[Any] = []
    source = WatchedDirectory(url, 100, lambda _count, make: tasks.append(dumps(make)))
    source.rdd(source.list(0), TextLines())
    memory.rm(url, recursive=True)  # as in a worker, where it never was
    assert list(loads(tasks[0])(0)) == ["1", "2"]
