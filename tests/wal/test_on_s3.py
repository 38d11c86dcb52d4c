"""Logs on an S3 server: one object a write, one request a write."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from integration.s3_server import BUCKET, S3Server
from kstream.storage import open_store
from kstream.wal import FileBasedWriteAheadLog, create_log_for_driver, create_log_for_receiver
from tests.fakes import FakeConf
from tests.wal.logs import record


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    server = S3Server()
    for key, value in server.environment().items():
        monkeypatch.setenv(key, value)
    yield server
    server.go_away()


def test_a_log_on_s3_is_written_read_recovered_and_cleaned_object_by_object(s3: S3Server) -> None:
    """Spark behaviours WL3, WL5 and WL6."""
    store = open_store(f"s3://{BUCKET}/{uuid.uuid4().hex}")
    log = create_log_for_receiver(FakeConf(), store, 0)
    s3.take()
    handles = [log.write(record(i), 1000 * i) for i in range(25)]
    assert [method for method, _path in s3.take()] == ["PUT"] * 25
    assert [log.read(handle) for handle in reversed(handles)] == [record(i) for i in reversed(range(25))]
    assert list(FileBasedWriteAheadLog(store, "receivedData/0", close_file_after_write=True).readAll()) == [record(i) for i in range(25)]
    log.clean(70_001, wait=True)
    assert [name.split("-")[1] for name in store.list("receivedData/0")] == [str(1000 * i) for i in range(11, 25)]

    driver = create_log_for_driver(FakeConf(), store)
    driver.write(b"added", 1)
    driver.close()
    again = create_log_for_driver(FakeConf(), store)
    assert list(again.readAll()) == [b"added"]
    again.close()
