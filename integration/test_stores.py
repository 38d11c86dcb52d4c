"""Checkpoints on a real namenode and datanode, and on an S3 server in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.hdfs_cluster import Hdfs
from integration.s3_server import S3Process
from kstream.conf import Settings
from kstream.errors import AlreadyExistsError, MissingFileError, StorageError
from kstream.spark.checkpoint_store import open_checkpoint, open_checkpoint_to_write
from kstream.storage import FileStore
from kstream.testing.file_store_contract import FileStoreContract

ROUNDS = 30
NOT_DECLARED = Settings({})


@pytest.fixture
def s3_here(s3: S3Process, monkeypatch: pytest.MonkeyPatch) -> S3Process:
    for key, value in s3.environment().items():
        monkeypatch.setenv(key, value)
    return s3


class TestHadoopFileStore(FileStoreContract):
    @pytest.fixture(autouse=True)
    def _hdfs(self, hdfs: Hdfs) -> None:
        self.hdfs = hdfs

    def make_store(self) -> FileStore:
        return open_checkpoint_to_write(self.hdfs.url(f"contract/{uuid.uuid4().hex}"), NOT_DECLARED)


class TestObjectFileStoreOfAnotherProcess(FileStoreContract):
    @pytest.fixture(autouse=True)
    def _s3(self, s3_here: S3Process) -> None:
        self.s3 = s3_here

    def make_store(self) -> FileStore:
        return open_checkpoint_to_write(self.s3.url(f"contract/{uuid.uuid4().hex}"), NOT_DECLARED)

    def reopen(self, store: FileStore) -> FileStore:
        return open_checkpoint(store.url)


RACER = """
import sys
from kstream.errors import AlreadyExistsError
from kstream.spark.checkpoint_store import open_checkpoint

store = open_checkpoint(sys.argv[1])
print("ready", flush=True)
for number in map(int, sys.stdin):
    try:
        store.create(f"plans/{number:03d}", (sys.argv[2] * 1000).encode())
        print("won", flush=True)
    except AlreadyExistsError:
        print("lost", flush=True)
"""


@pytest.mark.parametrize("kind", ["hdfs", "s3"])
def test_of_two_processes_that_create_one_name_at_the_same_moment_one_wins(
    kind: str, request: pytest.FixtureRequest, s3_here: S3Process
) -> None:
    url = (request.getfixturevalue("hdfs") if kind == "hdfs" else s3_here).url(f"race/{uuid.uuid4().hex}")
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, url, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        for name in "ab"
    ]
    try:
        wins = {"a": 0, "b": 0}
        assert [said(racer) for racer in racers] == ["ready", "ready"]
        store = open_checkpoint(url)
        for number in range(ROUNDS):
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"{number}\n")
            results = [said(racer) for racer in racers]
            assert sorted(results) == ["lost", "won"], f"round {number}: {results}"
            winner = "ab"[results.index("won")]
            assert store.read(f"plans/{number:03d}") == winner.encode() * 1000
            wins[winner] += 1
        assert len(store.list("plans")) == ROUNDS
        assert all(wins.values()), f"the race was none: {wins}"
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()


def said(racer: subprocess.Popen[str]) -> str:
    assert racer.stdout is not None
    return racer.stdout.readline().strip()


KILLED = """
import os, signal, sys
from kstream.spark.checkpoint_store import open_checkpoint

store = open_checkpoint(sys.argv[1])
files = store._files

class Killing:
    def __getattr__(self, name):
        return os.kill(os.getpid(), signal.SIGKILL) if name == "rename" else getattr(files, name)

store._files = Killing()
store.create("plans/1", b"bytes")
"""


def test_a_file_of_hdfs_is_never_seen_before_it_is_whole_and_a_killed_writer_leaves_no_name(hdfs: Hdfs) -> None:
    """Killed between its bytes and the rename. `create(overwrite=false)` on the name itself would have left an empty plan."""
    url = hdfs.url(f"killed/{uuid.uuid4().hex}")
    done = subprocess.run([sys.executable, "-c", KILLED, url], check=False, timeout=120)
    assert done.returncode == -9
    store = open_checkpoint(url)
    assert store.list("plans") == [] and not store.exists("plans/1")
    store.create("plans/1", b"another's")
    assert store.read("plans/1") == b"another's"


def test_a_refused_create_leaves_nothing_beside_the_file(hdfs: Hdfs) -> None:
    store = open_checkpoint(hdfs.url(f"refused/{uuid.uuid4().hex}"))
    store.create("plans/1", b"1")
    with pytest.raises(AlreadyExistsError):
        store.create("plans/1", b"2")
    files = store._files.util().listStatus(store._at("plans"))  # pyright: ignore
    assert [status.getPath().getName() for status in files] == ["1"]


def test_a_name_that_is_a_directory_is_not_moved_into(hdfs: Hdfs) -> None:
    store = open_checkpoint(hdfs.url(f"directory/{uuid.uuid4().hex}"))
    store.create("plans/1/2", b"")
    with pytest.raises(StorageError, match="plans/1"):
        store.create("plans/1", b"1")
    assert store.list("plans/1") == ["2"]


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("scheme", ["hdfs", "s3"])
def test_a_server_that_never_answers_is_one_clear_error_in_seconds(
    scheme: str, silent: int, s3_here: S3Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent}")
    store = open_checkpoint(f"hdfs://127.0.0.1:{silent}/x" if scheme == "hdfs" else "s3://bucket/x")
    began = time.monotonic()
    with pytest.raises(StorageError, match=f"{scheme}://.*/x"):
        store.create("a", b"1")
    assert time.monotonic() - began < 60


def test_a_namenode_that_is_not_there_is_one_clear_error_in_seconds(unused_port: int) -> None:
    store = open_checkpoint(f"hdfs://127.0.0.1:{unused_port}/x")
    began = time.monotonic()
    with pytest.raises(StorageError, match="Connection refused") as caught:
        store.list("plans")
    assert not isinstance(caught.value, MissingFileError)
    assert time.monotonic() - began < 60


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("kind", ["hdfs", "s3"])
def test_the_commands_read_a_checkpoint_wherever_it_lies(kind: str, request: pytest.FixtureRequest, s3_here: S3Process) -> None:
    url = (request.getfixturevalue("hdfs") if kind == "hdfs" else s3_here).url(f"none/{uuid.uuid4().hex}")
    command = [sys.executable, "-m", "kstream.cli", "checkpoint", "show", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [f"kstream: there is no checkpoint in {url}: no stream has started there (looked for {url}/meta)"]


def test_our_own_jvm_gives_way_to_sparks(hdfs: Hdfs, tmp_path: Path) -> None:
    """In one process: a checkpoint is read before there is a SparkContext, then written through Spark's JVM; one JVM is left."""
    script = tmp_path / "script.py"
    script.write_text(HANDOVER)
    done = subprocess.run([sys.executable, script, hdfs.url(uuid.uuid4().hex)], capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


HANDOVER = """
import subprocess, sys
from pyspark import SparkConf
from kstream.conf import Settings
from kstream.spark.checkpoint_store import open_checkpoint, open_checkpoint_to_write
from kstream.spark.spark_context import make_spark_context

def jvms():
    import os
    children = subprocess.run(["ps", "-o", "comm=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout.split()
    return children.count("java")

assert not open_checkpoint(sys.argv[1]).exists("meta")
assert jvms() == 1, jvms()
sc = make_spark_context(SparkConf().setMaster("local[1]").set("spark.ui.enabled", "false").set("spark.driver.memory", "600m"))
assert jvms() == 2
assert int(sc._jvm.java.lang.Runtime.getRuntime().maxMemory()) < 700 * 1024 * 1024
open_checkpoint_to_write(sys.argv[1], Settings({})).create("meta", b"1")
assert jvms() == 1, jvms()
sc.stop()
assert open_checkpoint(sys.argv[1]).read("meta") == b"1"
"""
