"""ObjectFileStore: a prefix in a bucket of S3, of a server with S3's protocol, of Google Cloud Storage or of Azure; by obstore."""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kstream.errors import (
    AlreadyExistsError,
    ConfigurationError,
    MissingDependencyError,
    MissingFileError,
    StorageError,
    UnsupportedStoreError,
)
from kstream.storage.file_store import inside, refuses_a_second_create
from kstream.storage.settings import SINGLE_WRITER

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT = timedelta(seconds=3)  # three round trips to the other side of the world are below one second
REQUEST_TIMEOUT = timedelta(seconds=10)  # records have a few KB and take milliseconds; a large stored graph has a few MB
RETRY_FOR = timedelta(seconds=10)  # a 503 SlowDown or a failing-over balancer is over by then; a longer failure is raised
_FIRST_PAUSE = timedelta(milliseconds=100)
_LONGEST_PAUSE = timedelta(seconds=2)
_MOST_TRIES = 20
_WRITER = "kstreamwriter"  # Azure takes no dash in such a name
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
_CONFLICT = "409"  # S3: another request for this name is under way. Whether the name is taken is unknown, so the create is retried
_AZURE_TAKEN = "BlobAlreadyExists"  # but Azure's 409 with this code is its answer to a create whose name is taken
_NOT_IMPLEMENTED = "501"
_METADATA = re.compile(r"://[^/]+/latest/(api|meta-data)/")  # a cloud's metadata service: the client asks it for missing credentials


class ObjectFileStore:
    """The FileStore under a prefix of a bucket. Create-if-absent is one PUT on the condition that the name is free (`If-None-Match: *`).

    A PUT whose answer is lost is sent again, and may then find the object of the first PUT. So each create stores a nonce in the
    object's metadata. A retry that finds the name taken reads the nonce before it raises AlreadyExistsError. A call sends one request,
    retries aside; a list sends one for each 1,000 names. Endpoint and credentials come from the environment (AWS_ENDPOINT_URL,
    AWS_ACCESS_KEY_ID …). Only the client keeps them.
    """

    def __init__(self, url: str, retry_for: timedelta = RETRY_FOR, request_timeout: timedelta = REQUEST_TIMEOUT) -> None:
        """Make the clients of the bucket. Sends no request.

        Args:
            url: the URL of a bucket, with a prefix.
            retry_for: how long a failing request is retried.
            request_timeout: the timeout of one request, its body included.

        Raises:
            MissingDependencyError: obstore is not installed.
            ConfigurationError: the URL names no bucket or account.
        """
        self._url = url.rstrip("/")
        self._retry_for = retry_for
        self._conditional = True
        self._retrying = _client(self._url, _MOST_TRIES, retry_for, request_timeout)
        self._once = _client(self._url, 0, retry_for, request_timeout)

    @property
    def url(self) -> str:
        return self._url

    def path(self, name: str) -> str:
        return f"{self._url}/{name}"

    def prepare(self, single_writer: bool) -> None:
        """Test with a probe object whether the server honours the condition. Three requests.

        With `single_writer` a server that does not honour it is accepted, with a warning. From then on `create` looks for the name before
        it writes.

        Raises:
            UnsupportedStoreError: the server does not honour the condition, and `single_writer` is not set.
            StorageError: a request failed.
        """
        try:
            works = refuses_a_second_create(self)
        except UnsupportedStoreError:
            works = False
        if works:
            return
        said = f"the server of {self._url} ignores or refuses If-None-Match: it cannot create an object only if it is absent"
        if not single_writer:
            raise UnsupportedStoreError(
                f"{said}, so two drivers could overwrite each other's plans. Use a server that honours it, as Amazon S3 does; or, if never "
                f"more than one driver runs, set {SINGLE_WRITER}=true",
                path=self._url,
            )
        logger.warning("%s; singleWriter is set, so the store is used, and a second driver would not be noticed", said)
        self._conditional = False

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        """Create the object if its name is free, by a conditional PUT. Blocks, and retries errors that another try may not meet.

        If an earlier try of this call took the name, the create has succeeded. After `prepare` has accepted a server without conditions,
        this method looks the name up and then writes; then only a single writer is safe.

        Raises:
            AlreadyExistsError: another create took the name.
            UnsupportedStoreError: the server refuses the condition.
            StorageError: no try succeeded. The object may exist nevertheless.
        """
        if not self._conditional:
            self._create_as_the_only_writer(name, data)
            return
        import obstore

        nonce, unsure = uuid.uuid4().hex, False
        for last in self._tries():
            try:
                with self._mapped("write", name):
                    obstore.put(self._once, name, data, mode="create", use_multipart=False, attributes={_WRITER: nonce})
                return
            except AlreadyExistsError:
                if unsure and self._writer_of(name) == nonce:
                    return
                raise
            except StorageError as e:
                if last or not e.facts.get("passing"):
                    raise
                unsure = True

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        import obstore

        with self._mapped("write", name):
            obstore.put(self._retrying, name, data, use_multipart=False)

    def read(self, name: str) -> bytes:
        import obstore

        with self._mapped("read", name):
            return bytes(obstore.get(self._retrying, name).bytes())

    def exists(self, name: str) -> bool:
        import obstore

        try:
            with self._mapped("look up", name):
                obstore.head(self._retrying, name)
            return True
        except MissingFileError:
            return False

    def size(self, name: str) -> int:
        import obstore

        with self._mapped("look up", name):
            return int(obstore.head(self._retrying, name)["size"])

    def modified_ms(self, name: str) -> int | None:
        import obstore

        with self._mapped("look up", name):
            return round(obstore.head(self._retrying, name)["last_modified"].timestamp() * 1000)

    def list(self, folder: str = "") -> list[str]:
        import obstore

        with self._mapped("list", folder):
            found = obstore.list_with_delimiter(self._retrying, folder or None)
            return sorted(entry["path"].rpartition("/")[2] for entry in found["objects"])

    def delete(self, name: str) -> None:
        import obstore

        try:
            with self._mapped("delete", name):
                obstore.delete(self._retrying, name)
        except MissingFileError:
            pass

    def _create_as_the_only_writer(self, name: str, data: bytes) -> None:
        """Create the object without the condition: look for the name, then write. Not exclusive. AlreadyExistsError for a taken name."""
        if self.exists(name):
            raise AlreadyExistsError(f"{self.path(name)} exists already", path=self.path(name))
        self.replace(name, data)

    def _writer_of(self, name: str) -> object:
        """Return the nonce of the create that made the object; None if the object has none."""
        import obstore

        with self._mapped("read", name):
            return obstore.get(self._retrying, name).attributes.get(_WRITER)

    def _tries(self) -> Iterator[bool]:
        """Yield False for each attempt, and True for the last one. Sleep between attempts, longer each time, until `retry_for` is over."""
        end = time.monotonic() + self._retry_for.total_seconds()
        pause = _FIRST_PAUSE
        while time.monotonic() + pause.total_seconds() < end:
            yield False
            time.sleep(pause.total_seconds())
            pause = min(2 * pause, _LONGEST_PAUSE)
        yield True

    @contextmanager
    def _mapped(self, verb: str, name: str) -> Generator[None]:
        """Map errors of obstore to StorageErrors, without their causes: the body of S3's refusals repeats keys and session tokens.

        All requests are sent in this context. So it refuses names that lead out of the store, before a request is sent.
        """
        from obstore import exceptions

        place, error = self.path(inside(name, self._url)), None
        try:
            yield
        except exceptions.AlreadyExistsError as e:
            error = _taken(place, str(e))
        except (exceptions.BaseError, OSError) as e:
            error = _failed(verb, place, e)
        if error is not None:
            raise error from None


def _taken(place: str, text: str) -> StorageError:
    """Return the error of a create whose condition was not met: AlreadyExistsError, or a StorageError to retry for S3's conflict."""
    code = _CODE.search(text)
    if _status(text) == _CONFLICT and (code is None or code[1] != _AZURE_TAKEN):
        return StorageError(f"cannot write {place}: another request for it is under way", path=place, passing=True)
    return AlreadyExistsError(f"{place} exists already", path=place)


def _failed(verb: str, place: str, error: Exception) -> StorageError:
    """Return the StorageError for an error of obstore. Its fact `passing` says whether a retry may help."""
    text = str(error)
    status = _status(text)
    code = _CODE.search(text)
    if isinstance(error, FileNotFoundError) and (code is None or code[1] not in ("NoSuchBucket", "ContainerNotFound")):
        return MissingFileError(f"{place} is not there", path=place)
    said = _first_line(text) + (f" ({code[1]})" if code else "")
    no_credentials = _METADATA.search(text) is not None
    if status == _NOT_IMPLEMENTED and not no_credentials:
        return UnsupportedStoreError(f"cannot {verb} {place}: {said}", path=place)
    passing = status is None or status in ("408", "429") or status.startswith("5")
    hint = "Check the endpoint, the bucket and the credentials"
    if no_credentials:
        hint = "No credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    return StorageError(f"cannot {verb} {place}: {said}. {hint}.", path=place, passing=passing)


def _first_line(text: str) -> str:
    """Return the client's own words in the text of an error: the first line, without the body of the server's answer."""
    line = next(iter(text.splitlines()), "no reason given").partition(": <")[0]
    return line[line.find("Error performing") :] if "Error performing" in line else line


def _status(text: str) -> str | None:
    """Return the HTTP status in an error's text; None if there is none."""
    match = _STATUS.search(text)
    return match[1] if match else None


def object_client(url: str) -> ObjectStore:
    """Make obstore's client of a bucket, configured as for checkpoints. Sends no request. MissingDependencyError without obstore."""
    return _client(url, _MOST_TRIES, RETRY_FOR, REQUEST_TIMEOUT)


def _client(url: str, most_tries: int, retry_for: timedelta, request_timeout: timedelta) -> ObjectStore:
    """Make obstore's client of a bucket. Sends no request. MissingDependencyError, ConfigurationError."""
    try:
        from obstore import exceptions
        from obstore.store import from_url
    except ImportError as e:
        raise MissingDependencyError(
            f"{url} needs obstore: pip install 'kstream-spark[s3]'", package="obstore", install="kstream-spark[s3]"
        ) from e
    client: ClientConfig = {"connect_timeout": CONNECT_TIMEOUT, "timeout": request_timeout, "allow_http": _plain_http()}
    retry: RetryConfig = {
        "max_retries": most_tries,
        "retry_timeout": retry_for,
        "backoff": {"init_backoff": _FIRST_PAUSE, "max_backoff": _LONGEST_PAUSE, "base": 2},
    }
    options: Any = {"client_options": client, "retry_config": retry}
    reason = None
    try:
        return from_url(url, **options)
    except (exceptions.BaseError, ValueError) as e:
        reason = _first_line(str(e))
    raise ConfigurationError(f"{url} cannot be used: {reason}", key="url", value=url)


def _plain_http() -> bool:
    """Return whether the environment names an endpoint without TLS, or allows one. The client refuses such endpoints by default."""
    allowed = os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"
    return allowed or any(os.environ.get(name, "").startswith("http://") for name in _ENDPOINTS)
