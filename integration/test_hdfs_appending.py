"""Files of a real HDFS that grow: durable and to be read by everybody when an append returns, also when their writer is dead."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.hdfs_cluster import Hdfs, running_hdfs
from kstream.errors import MissingFileError, StorageError
from kstream.spark.checkpoint_store import open_checkpoint
from kstream.storage import AppendingStore
from kstream.wal import FileBasedWriteAheadLog

WRITER = """
import sys
from kstream.spark.checkpoint_store import open_checkpoint
from kstream.wal import FileBasedWriteAheadLog

log = FileBasedWriteAheadLog(open_checkpoint(sys.argv[1]), "log")
for number in range(int(sys.argv[2])):
    log.write(b"%d" % number, 1000)
print("written", flush=True)
sys.stdin.read()
"""


def killed_writer(url: str, records: int) -> None:
    """Writes so many records into one file, and is killed with the file open; its JVM ends with it."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, url, str(records)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.kill()
    process.wait()


def store_on(hdfs: Hdfs) -> AppendingStore:
    store = open_checkpoint(hdfs.url(f"appending/{uuid.uuid4().hex}"))
    assert isinstance(store, AppendingStore)
    return store


def test_an_append_gives_the_offset_of_its_first_byte_and_is_read_by_another_at_once(hdfs: Hdfs) -> None:
    store = store_on(hdfs)
    file = store.open_to_append("not/yet/there")
    other = open_checkpoint(store.url)
    assert isinstance(other, AppendingStore)
    assert [file.append(b"abc"), file.append(b"de"), file.size] == [0, 3, 5]
    assert (other.size("not/yet/there"), other.read("not/yet/there"), other.read_at("not/yet/there", 2, 2)) == (5, b"abcde", b"cd")
    assert (other.read_at("not/yet/there", 4, 9), other.read_at("not/yet/there", 9, 1)) == (b"e", b"")
    file.append(b"f" * 5_000_000)  # in several pieces
    assert (other.size("not/yet/there"), other.read_at("not/yet/there", 4, 3_000_000)) == (5_000_005, b"e" + b"f" * 2_999_999)
    file.close()
    file.close()
    assert other.read("not/yet/there") == b"abcde" + b"f" * 5_000_000 and other.list("not/yet") == ["there"]
    again = store.open_to_append("not/yet/there")
    assert [again.size, again.append(b"g")] == [5_000_005, 5_000_005]
    with pytest.raises(MissingFileError):
        store.read_at("missing", 0, 1)


def test_a_file_has_one_writer(hdfs: Hdfs) -> None:
    store = store_on(hdfs)
    store.open_to_append("a").append(b"1")
    with pytest.raises(StorageError, match=r"cannot open hdfs://.*/a: "):
        open_checkpoint(store.url).open_to_append("a")  # pyright: ignore


def test_what_a_killed_writer_has_written_is_read_at_once_and_a_log_of_many_writes_is_one_file(hdfs: Hdfs) -> None:
    store = store_on(hdfs)
    killed_writer(store.url, 100)
    assert list(FileBasedWriteAheadLog(store, "log").readAll()) == [b"%d" % number for number in range(100)]
    assert len(store.list("log")) == 1


def test_a_log_in_a_directory_of_erasure_coding_grows_all_the_same(hdfs: Hdfs) -> None:
    store: Any = store_on(hdfs)
    store.create("log/.here", b"1")
    folder = store._at("log")
    files = folder.getFileSystem(store._configuration)
    files.enableErasureCodingPolicy("XOR-2-1-1024k")
    files.setErasureCodingPolicy(folder, "XOR-2-1-1024k")
    file = store.open_to_append("log/a")
    assert [file.append(b"1"), file.append(b"2"), store.read("log/a")] == [0, 1, b"12"]


@pytest.fixture
def own_hdfs(tmp_path: Path) -> Iterator[Hdfs]:
    with running_hdfs(tmp_path / "hdfs") as hdfs:
        yield hdfs


def test_a_dead_writers_file_is_read_also_when_its_datanode_was_killed_and_started_again(
    own_hdfs: Hdfs, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not know how much of its last block is good, so the file is closed first."""
    store = store_on(own_hdfs)
    killed_writer(store.url, 100)
    own_hdfs.restart_datanode()
    assert list(FileBasedWriteAheadLog(store, "log").readAll()) == [b"%d" % number for number in range(100)]
    assert len([said for said in caplog.messages if "its writer left it open and its datanodes were restarted" in said]) == 1
