"""ObjectFileStore: a prefix in a bucket – S3 and what speaks its language, Google Cloud Storage, Azure Blob Storage – by obstore."""

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
from kstream.storage.file_store import SINGLE_WRITER, refuses_a_second_create

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
_CONFLICT = "409"  # S3: another request for this name is under way, try again; it says nothing about whether the name is taken
_NOT_IMPLEMENTED = "501"
_METADATA = re.compile(r"://[^/]+/latest/(api|meta-data)/")  # of a cloud: asked for credentials where the environment has none


class ObjectFileStore:
    """Create-if-absent = one PUT on the condition that the name is free (`If-None-Match: *`).

    A PUT whose answer is lost is sent again, and the second may meet the first; so each create leaves a nonce in the object's
    metadata and looks whose it is before it says "already exists". One request a call (a list: one for each 1,000 names).
    Endpoint and credentials come from the environment (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID …) and are kept by the client alone.
    """

    def __init__(self, url: str, retry_for: timedelta = RETRY_FOR, request_timeout: timedelta = REQUEST_TIMEOUT) -> None:
        """Sends no request.

        Args:
            url: of a bucket, with a prefix.
            retry_for: how long a failing request is retried.
            request_timeout: of one request, its body included.

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

        With `single_writer` a server that does not is used with a warning: `create` then looks for the name before it writes.

        Raises:
            UnsupportedStoreError: the server does not honour the condition, and `single_writer` is not set.
        """
        try:
            works = refuses_a_second_create(self)
        except UnsupportedStoreError:
            works = False
        if works:
            return
        said = f"the server behind {self._url} ignores or refuses If-None-Match: it cannot create an object only if it is absent"
        if not single_writer:
            raise UnsupportedStoreError(
                f"{said}, so two drivers could overwrite each other's plans. Use a server that honours it, as Amazon S3 does; or, if never "
                f"more than one driver runs, set {SINGLE_WRITER}=true",
                path=self._url,
            )
        logger.warning("%s; singleWriter is set, so the store is used, and a second driver would not be noticed", said)
        self._conditional = False

    def create(self, name: str, data: bytes) -> None:
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
        if self.exists(name):
            raise AlreadyExistsError(f"{self.path(name)} exists already", path=self.path(name))
        self.replace(name, data)

    def _writer_of(self, name: str) -> object:
        import obstore

        with self._mapped("read", name):
            return obstore.get(self._retrying, name).attributes.get(_WRITER)

    def _tries(self) -> Iterator[bool]:
        """Yield one item per attempt, True for the last. Sleeps in between, longer each time, until `retry_for` is over."""
        end = time.monotonic() + self._retry_for.total_seconds()
        pause = _FIRST_PAUSE
        while time.monotonic() + pause.total_seconds() < end:
            yield False
            time.sleep(pause.total_seconds())
            pause = min(2 * pause, _LONGEST_PAUSE)
        yield True

    @contextmanager
    def _mapped(self, verb: str, name: str) -> Generator[None]:
        """Map errors of obstore to ours. Not raised `from` them: the body of a refusal by S3 repeats keys and session tokens."""
        from obstore import exceptions

        place, error = self.path(name), None
        try:
            yield
        except exceptions.AlreadyExistsError as e:
            error = _taken(place, str(e))
        except (exceptions.BaseError, OSError) as e:
            error = _failed(verb, place, e)
        if error is not None:
            raise error from None


def _taken(place: str, text: str) -> StorageError:
    if _status(text) == _CONFLICT:
        return StorageError(f"cannot write {place}: another request for it is under way", path=place, passing=True)
    return AlreadyExistsError(f"{place} exists already", path=place)


def _failed(verb: str, place: str, error: Exception) -> StorageError:
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
    return StorageError(
        f"cannot {verb} {place}: {said}. {hint}; the stream continues by itself once the store works again.", path=place, passing=passing
    )


def _first_line(text: str) -> str:
    """The client's own message: the first line, without the body of the server's answer."""
    line = next(iter(text.splitlines()), "no reason given").partition(": <")[0]
    return line[line.find("Error performing") :] if "Error performing" in line else line


def _status(text: str) -> str | None:
    match = _STATUS.search(text)
    return match[1] if match else None


def object_client(url: str) -> ObjectStore:
    """Make obstore's client of a bucket, configured as for checkpoints. Sends no request. MissingDependencyError without obstore."""
    return _client(url, _MOST_TRIES, RETRY_FOR, REQUEST_TIMEOUT)


def _client(url: str, most_tries: int, retry_for: timedelta, request_timeout: timedelta) -> ObjectStore:
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
    """Whether the user has named an endpoint without TLS, which the client refuses by default."""
    allowed = os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"
    return allowed or any(os.environ.get(name, "").startswith("http://") for name in _ENDPOINTS)
