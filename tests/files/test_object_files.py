"""Files in a bucket, against moto's S3 server: by obstore, and by fsspec with obstore under it."""

from __future__ import annotations

import sys
import time as real_time
import uuid
from collections.abc import Iterator
from typing import Any

import obstore
import pytest
from obstore.fsspec import FsspecStore

from integration.s3_server import BUCKET, S3Server
from kstream.errors import ConfigurationError
from kstream.files import TextLines, WatchedDirectory
from kstream.files.file_systems import FsspecFiles, ObjectFiles, file_system
from kstream.storage.object_store import object_client
from kstream.testing import ManualClock
from tests.files.partitions import partitions
from tests.harness import INTERVAL, World
from tests.inputs import FileDriver


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.go_away()


@pytest.fixture(params=["obstore", "fsspec"])
def s3(request: pytest.FixtureRequest, running: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """s3:// reached in either way, for as long as the test runs."""
    for key, value in running.environment().items():
        monkeypatch.setenv(key, value)
    file_system.cache_clear()
    if request.param == "fsspec":

        class S3(FsspecStore):
            protocol = "s3"

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, client_options={"allow_http": True}, **kwargs)

        monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "s3", S3)
    running.take()
    yield running
    file_system.cache_clear()


@pytest.fixture
def url(s3: S3Server) -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/in"


def put(url: str, data: bytes) -> None:
    obstore.put(object_client(f"s3://{BUCKET}"), url.removeprefix(f"s3://{BUCKET}/"), data)


def test_a_bucket_is_reached_by_fsspecs_package_where_there_is_one_and_by_obstore_elsewhere(
    request: pytest.FixtureRequest, url: str
) -> None:
    by = request.node.callspec.params["s3"]
    assert isinstance(file_system(url), {"fsspec": FsspecFiles, "obstore": ObjectFiles}[by])


def test_objects_directly_under_a_prefix_are_its_files(url: str) -> None:
    for name in ("a", "b", "deep/c"):
        put(f"{url}/{name}", name.encode())
    source = WatchedDirectory(url, 100, partitions)
    found = sorted(source.list(0))
    assert [(file.path, file.size) for file in found] == [(f"{url}/a", 1), (f"{url}/b", 1)]
    assert all(abs(file.mtime_ms - real_time.time() * 1000) < 60_000 for file in found)
    deeper = WatchedDirectory(f"{url}/d*/", 100, partitions)
    assert [file.path for file in deeper.list(0)] == [f"{url}/deep/c"]


def test_large_objects_are_read_by_ranges(url: str) -> None:
    lines = [f"line {number}" for number in range(3000)]
    put(f"{url}/a", "\n".join(lines).encode())
    source = WatchedDirectory(url, 10_000, partitions)
    read = source.rdd(source.list(0), TextLines())
    assert len(read) == 3 and [line for part in read for line in part] == lines


def test_a_stream_of_a_bucket_has_each_object_once_also_after_a_restart(url: str) -> None:
    put(f"{url}/there", b"there\n")
    world = World(clock=ManualClock(int(real_time.time()) * 1000 - 10_000))
    driver = FileDriver(world, url, newFilesOnly=False).start()
    for _ in range(12):
        driver.tick()
    driver.kill()
    put(f"{url}/new", b"new\n")
    world.clock.advance(5 * INTERVAL)
    second = FileDriver(world, url, newFilesOnly=False).start()
    second.tick()
    assert [record for attempt in world.attempts for record in attempt.records] == ["there", "new"]


def test_an_empty_prefix_is_no_trouble_for_the_stream(url: str) -> None:
    world = World(clock=ManualClock(int(real_time.time()) * 1000))
    driver = FileDriver(world, url).start()
    driver.tick()
    assert driver.errors == [] and [list(a.records) for a in world.attempts] == [[]]


def test_a_url_without_a_bucket_says_so() -> None:
    with pytest.raises(ConfigurationError, match="names no bucket"):
        ObjectFiles("s3:///in")
