"""The object store against moto's S3 server: the contract, its requests, and what happens when answers are lost."""

from __future__ import annotations

import base64
import logging
import pickle
import socket
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from integration.s3_server import BUCKET, CREDENTIALS, S3Server
from kstream.errors import (
    AlreadyExistsError,
    ConfigurationError,
    MissingDependencyError,
    MissingFileError,
    StorageError,
    UnsupportedStoreError,
)
from kstream.storage import FileStore, open_store, prepare_to_write
from kstream.storage.object_store import ObjectFileStore
from kstream.testing.file_store_contract import FileStoreContract


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.go_away()


@pytest.fixture
def s3(running: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for key, value in running.environment().items():
        monkeypatch.setenv(key, value)
    running.take()
    yield running
    running.fault, running.most_keys = lambda _method, _path: None, 1000


@pytest.fixture
def store(s3: S3Server) -> FileStore:
    return open_store(f"s3://{BUCKET}/{uuid.uuid4().hex}/orders")


def methods(s3: S3Server) -> list[str]:
    """Of the requests since the last time; newer clients delete by a POST that names the objects."""
    return ["DELETE" if method == "POST" else method for method, _path in s3.take()]


def once(method: str, fault: str) -> object:
    """A fault of the first request of that method, none of the later ones."""
    seen: list[str] = []

    def say(asked: str, _path: str) -> str | None:
        if asked != method or seen:
            return None
        seen.append(asked)
        return fault

    return say


class TestObjectFileStore(FileStoreContract):
    @pytest.fixture(autouse=True)
    def _server(self, s3: S3Server) -> None:
        pass

    def make_store(self) -> FileStore:
        return open_store(f"s3://{BUCKET}/{uuid.uuid4().hex}")

    def reopen(self, store: FileStore) -> FileStore:
        return open_store(store.url)


def test_each_call_is_one_request(store: FileStore, s3: S3Server) -> None:
    store.create("plans/1", b"x")
    assert methods(s3) == ["PUT"]
    with pytest.raises(AlreadyExistsError):
        store.create("plans/1", b"y")
    assert methods(s3) == ["PUT"]
    assert (store.exists("plans/1"), store.exists("plans/2")) == (True, False)
    assert methods(s3) == ["HEAD", "HEAD"]
    store.read("plans/1")
    store.list("plans")
    store.delete("plans/1")
    store.replace("graph", b"z")
    assert methods(s3) == ["GET", "GET", "DELETE", "PUT"]


def test_a_create_whose_answer_was_lost_finds_its_own_object_and_has_made_it(store: FileStore, s3: S3Server) -> None:
    s3.fault = once("PUT", "lost")
    store.create("epoch-1", b"mine")
    assert methods(s3) == ["PUT", "PUT", "GET"]
    assert store.read("epoch-1") == b"mine"


def test_a_create_that_was_refused_for_a_moment_and_then_meets_anothers_object_has_not_made_it(store: FileStore, s3: S3Server) -> None:
    open_store(store.url).create("epoch-1", b"the same bytes")
    s3.fault = once("PUT", "503")
    with pytest.raises(AlreadyExistsError):
        store.create("epoch-1", b"the same bytes")


@pytest.mark.parametrize("fault", ["503", "409"])
def test_a_create_is_tried_again_when_the_server_asks_for_it(store: FileStore, s3: S3Server, fault: str) -> None:
    s3.fault = once("PUT", fault)
    store.create("a", b"1")
    assert store.read("a") == b"1"


def test_a_server_that_refuses_for_long_is_one_clear_error(s3: S3Server) -> None:
    store = ObjectFileStore(f"s3://{BUCKET}/{uuid.uuid4().hex}", retry_for=timedelta(milliseconds=300))
    s3.fault = lambda _method, _path: "503"
    for call in (lambda: store.create("a", b"1"), lambda: store.read("a"), lambda: store.list("plans"), lambda: store.exists("a")):
        with pytest.raises(StorageError, match=r"cannot .* s3://checkpoints/.*503") as caught:
            call()
        assert caught.type is StorageError and caught.value.retriable
        assert "\n" not in str(caught.value)


def test_a_dead_endpoint_is_one_clear_error_as_soon_as_trying_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    for key, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
        monkeypatch.setenv(key, value)
    store = ObjectFileStore("s3://bucket/x", retry_for=timedelta(milliseconds=300))
    began = time.monotonic()
    for call in (lambda: store.create("a", b"1"), lambda: store.read("a"), lambda: store.exists("a"), lambda: store.list()):
        with pytest.raises(StorageError, match=f"s3://bucket/x.*127.0.0.1:{port}") as caught:
            call()
        assert caught.type is StorageError
    assert time.monotonic() - began < 30


def test_a_bucket_that_is_not_there_is_said_and_is_no_missing_file(s3: S3Server) -> None:
    store = open_store("s3://no-such-bucket/x")
    for call in (lambda: store.create("a", b"1"), lambda: store.read("a"), lambda: store.list("plans")):
        with pytest.raises(StorageError, match="NoSuchBucket") as caught:
            call()
        assert caught.type is StorageError


def test_no_key_and_no_token_is_in_an_error_even_if_the_server_repeats_it(store: FileStore, s3: S3Server) -> None:
    s3.fault = lambda _method, _path: "token"
    with pytest.raises(StorageError, match="ExpiredToken") as caught:
        store.create("a", b"1")
    shown = "".join(traceback.format_exception(caught.value)) + repr(pickle.loads(pickle.dumps(caught.value)).__dict__) + repr(vars(store))
    assert "the-session-token" not in shown
    assert not any(secret in shown for secret in (CREDENTIALS["AWS_SECRET_ACCESS_KEY"], CREDENTIALS["AWS_ACCESS_KEY_ID"]))


def test_a_server_that_honours_the_condition_is_taken_and_nothing_is_left_behind(store: FileStore, s3: S3Server) -> None:
    assert prepare_to_write(store, single_writer=False) is store
    assert methods(s3) == ["PUT", "PUT", "DELETE"]
    assert store.list() == []


@pytest.mark.parametrize("fault", ["ignore", "501"])
def test_a_server_without_the_condition_is_refused_unless_a_single_writer_is_declared(
    store: FileStore, s3: S3Server, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    s3.fault = lambda method, _path: fault if method == "PUT" else None
    with pytest.raises(UnsupportedStoreError, match=r"If-None-Match.*singleWriter=true") as caught:
        prepare_to_write(store, single_writer=False)
    assert store.url in str(caught.value)
    with caplog.at_level(logging.WARNING):
        prepare_to_write(store, single_writer=True)
    assert "a second driver would not be noticed" in caplog.text


def test_for_a_single_writer_create_looks_first(store: FileStore, s3: S3Server) -> None:
    s3.fault = lambda method, _path: "ignore"
    prepare_to_write(store, single_writer=True)
    s3.take()
    store.create("a", b"1")
    with pytest.raises(AlreadyExistsError):
        store.create("a", b"2")
    assert methods(s3) == ["HEAD", "PUT", "HEAD"]
    assert store.read("a") == b"1"


def test_a_list_of_many_pages_is_whole(store: FileStore, s3: S3Server) -> None:
    names = [f"{number:02d}" for number in range(7)]
    for name in names:
        store.create(f"done/{name}", b"")
    s3.take()
    s3.most_keys = 3
    assert store.list("done") == names
    assert methods(s3) == ["GET", "GET", "GET"]


def test_spaces_and_percent_signs_of_a_prefix_are_kept_apart(s3: S3Server) -> None:
    root = uuid.uuid4().hex
    open_store(f"s3://{BUCKET}/{root}/a b").create("x", b"1")
    assert open_store(f"s3://{BUCKET}/{root}/a%20b/").read("x") == b"1"
    with pytest.raises(MissingFileError):
        open_store(f"s3://{BUCKET}/{root}/a").read("x")


def test_a_url_with_a_password_is_refused_without_repeating_it() -> None:
    for url in ("s3://key:pass-word@bucket/x", "ftp://user:pass-word@host/x"):
        with pytest.raises(ConfigurationError) as caught:
            open_store(url)
        assert "pass-word" not in str(caught.value) + repr(caught.value.facts)


def test_an_azure_url_without_its_account_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ConfigurationError, match="Account must be specified"):
        open_store("az://container/x")


def test_without_obstore_the_line_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'kstream-spark\[s3\]'"):
        open_store("s3://bucket/x")


def test_where_no_credentials_are_given_that_is_said(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client then asks the cloud's machine it runs on; here a server plays that, and has none to give."""
    for key in CREDENTIALS:
        monkeypatch.delenv(key)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", s3.endpoint)
    s3.fault = lambda _method, _path: "501"
    store = ObjectFileStore(f"s3://{BUCKET}/x", retry_for=timedelta(milliseconds=100))
    for call in (lambda: store.read("a"), lambda: prepare_to_write(store, single_writer=False)):
        with pytest.raises(StorageError, match="No credentials were found: set AWS_ACCESS_KEY_ID") as caught:
            call()
        assert caught.type is StorageError


class AzureServer(BaseHTTPRequestHandler):
    """Of Azure what two creates meet: the first makes a blob, a later one is told in Azure's words that it is there."""

    requests: ClassVar[list[str]] = []

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        taken = self.path in self.requests and self.headers["If-None-Match"] == "*"
        self.requests.append(self.path)
        body = b"<Error><Code>BlobAlreadyExists</Code><Message>The specified blob already exists.</Message></Error>" if taken else b""
        self.send_response(409 if taken else 201)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (("ETag", '"1"'), ("Last-Modified", "Sat, 28 Nov 2026 03:00:00 GMT"), ("Content-Type", "application/xml")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), AzureServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"key").decode())
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{server.server_port}/account")
        yield "az://checkpoints/orders"
        server.shutdown()


def test_a_name_that_is_taken_on_azure_is_refused_by_the_first_request(azure: str) -> None:
    """Its answer is a 409. That of S3 means another thing, and is tried again."""
    store = open_store(azure)
    store.create("plans/1", b"first")
    with pytest.raises(AlreadyExistsError):
        store.create("plans/1", b"second")
    assert len(AzureServer.requests) == 2
