"""HadoopFileStore: a directory of HDFS, by Hadoop's own client in the JVM."""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from kstream.errors import AlreadyExistsError, ConfigurationError, MissingFileError, StorageError, UnsupportedStoreError
from kstream.spark.hadoop_place import HadoopPlace, settings_for_workers
from kstream.spark.java_gateway import hadoop_configuration, java_view
from kstream.storage.file_store import SINGLE_WRITER, refuses_a_second_create

logger = logging.getLogger(__name__)

_TEMPORARY = ".tmp-"
_TRUSTED = frozenset({"hdfs"})
_FS = "org.apache.hadoop.fs"
_PIECE = 2 << 20
"""Bytes that go to the JVM, or come from it, at once."""
LIMITS = {
    # Left alone, Hadoop waits 15 minutes for a namenode whose machine does not answer, and not a second for one that is being
    # restarted. A batch that cannot be planned is to be told in seconds; a failover of two namenodes is over by then. A user's values win.
    "ipc.client.connect.timeout": "5000",
    "ipc.client.connect.max.retries.on.timeouts": "1",
    "ipc.client.rpc-timeout.ms": "10000",
    "dfs.client.retry.policy.enabled": "true",
    "dfs.client.retry.policy.spec": "2000,1",  # once more, two seconds later; two layers of the client do so each
    "dfs.client.failover.max.attempts": "6",
    "dfs.client.socket-timeout": "15000",
}


class HadoopFileStore:
    """Create-if-absent = temporary file, hsync, close, then a rename that refuses a name that is taken (`Rename.NONE`).

    `create(overwrite=false)` alone refuses, too, but makes the name first and the bytes then: a reader finds an empty file, and a
    driver killed in between leaves one for good. The namenode renames under its lock: of two writers one wins. The old
    `FileSystem.rename` would move the file *into* a directory of that name; FileContext's does not.
    Whether other file systems than HDFS rename so is not known: they are for a single writer.
    """

    def __init__(self, url: str, settings: Mapping[str, str] | None = None, *, look_first: bool = False) -> None:
        """Asks no server yet, but starts a JVM where Spark has none. UnsupportedStoreError where Hadoop does not know the scheme.

        `settings` and `look_first`: what `for_workers` of the driver's store has said.
        """
        self._url = url.rstrip("/")
        self._jvm = java_view()
        with self._mapped("open", ""):
            self._path_class = self._jvm.org.apache.hadoop.fs.Path  # looked up once: each look-up takes several calls
            self._configuration = configuration = hadoop_configuration(self._jvm, settings)
            _limit(configuration)
            self._root = _qualified(self._jvm, self._url, configuration)
            self._files = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._jvm.java.net.URI(self._root), configuration)
            self._keep, self._overwrite = (self._options("Options$Rename", name) for name in ("NONE", "OVERWRITE"))
            self._flags = self._jvm.java.util.EnumSet.of(self._jvm.org.apache.hadoop.fs.CreateFlag.CREATE)
            self._with_parents = self._array("Options$CreateOpts", self._jvm.org.apache.hadoop.fs.Options.CreateOpts.createParent())
        self._look_first = look_first

    def __copy__(self) -> HadoopFileStore:
        """A second handle on the same connection."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    @property
    def url(self) -> str:
        return self._url

    def path(self, name: str) -> str:
        return f"{self._url}/{name}"

    def for_workers(self) -> HadoopPlace:
        """What a worker needs to open this store."""
        with self._mapped("open", ""):
            return HadoopPlace(self._url, settings_for_workers(self._jvm, self._configuration), self._look_first)

    def prepare(self, single_writer: bool) -> None:
        """Makes the directory and tries `create` there. UnsupportedStoreError unless it is on HDFS, or a single writer is declared."""
        with self._mapped("open", ""):
            permission = self._jvm.org.apache.hadoop.fs.permission.FsPermission.getDirDefault()
            self._files.mkdir(self._at(""), permission, True)
            scheme = self._files.resolvePath(self._at("")).toUri().getScheme()
        refuses = refuses_a_second_create(self)
        if scheme in _TRUSTED and refuses:
            return
        said = f"{self._url} lies on {scheme}://, whose rename is not known to refuse a name that is taken"
        if not single_writer:
            raise UnsupportedStoreError(
                f"{said}, so two drivers could overwrite each other's plans. Use hdfs://, s3://, gs://, az:// or a local directory; or, "
                f"if never more than one driver runs, set {SINGLE_WRITER}=true",
                path=self._url,
            )
        logger.warning("%s; singleWriter is set, so it is used, and a second driver might not be noticed", said)
        self._look_first = not refuses

    def create(self, name: str, data: bytes) -> None:
        if self._look_first and self.exists(name):
            raise _taken(self.path(name))
        with self._mapped("write", name):
            self._put(name, data, self._keep)

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        with self._mapped("write", name):
            self._put(name, data, self._overwrite)

    def read(self, name: str) -> bytes:
        with self._mapped("read", name):
            stream = self._files.open(self._at(name))
            try:
                return read_from(stream)
            finally:
                stream.close()

    def exists(self, name: str) -> bool:
        with self._mapped("look up", name):
            return bool(self._files.util().exists(self._at(name)))

    def size(self, name: str) -> int:
        with self._mapped("look up", name):
            return int(self._files.getFileStatus(self._at(name)).getLen())

    def list(self, folder: str = "") -> list[str]:
        try:
            with self._mapped("list", folder):
                found = self._files.util().listStatus(self._at(folder))
                names = [status.getPath().getName() for status in found if status.isFile()]
        except MissingFileError:
            return []
        return sorted(name for name in names if not name.startswith(_TEMPORARY))

    def delete(self, name: str) -> None:
        try:
            with self._mapped("delete", name):
                self._files.delete(self._at(name), False)
        except MissingFileError:
            pass

    def _at(self, name: str) -> Any:
        return self._path_class(f"{self._root}/{name}")

    def _put(self, name: str, data: bytes, rename: Any, flags: Any = None) -> None:
        from py4j.protocol import Py4JJavaError

        folder = name.rpartition("/")[0]
        temporary = self._at(f"{folder}/{_TEMPORARY}{uuid.uuid4().hex}" if folder else f"{_TEMPORARY}{uuid.uuid4().hex}")
        try:
            stream = self._files.create(temporary, flags or self._flags, self._with_parents)
            try:
                write_to(stream, data)
                stream.hsync()
            finally:
                stream.close()
            self._files.rename(temporary, self._at(name), rename)
        except Py4JJavaError as e:
            if ".net." not in e.java_exception.getClass().getName():  # who does not answer would not answer this either
                self._drop(temporary)
            raise

    def _drop(self, temporary: Any) -> None:
        from py4j.protocol import Py4JError

        try:
            self._files.delete(temporary, False)
        except Py4JError as e:  # nobody reads it
            logger.debug("%s stays behind: %s", temporary, e)

    def _options(self, enum: str, name: str) -> Any:
        constants = self._jvm.java.lang.Class.forName(f"{_FS}.{enum}").getEnumConstants()
        return self._array(enum, next(constant for constant in constants if constant.toString() == name))

    def _array(self, of: str, element: Any) -> Any:
        """A Java array of one element, for a method of variable arguments."""
        array = self._jvm.java.lang.reflect.Array.newInstance(self._jvm.java.lang.Class.forName(f"{_FS}.{of}"), 1)
        array[0] = element
        return array

    @contextmanager
    def _mapped(self, verb: str, name: str) -> Generator[None]:
        from py4j.protocol import Py4JError, Py4JJavaError

        place = self.path(name).rstrip("/")
        try:
            yield
        except Py4JJavaError as e:
            raise _error_of(verb, place, e.java_exception) from e
        except Py4JError as e:
            raise StorageError(f"cannot {verb} {place}: the JVM does not answer: {e}", path=place) from e


def write_to(stream: Any, data: bytes) -> None:
    """In pieces, each of which is in the JVM's memory several times while it comes."""
    for at in range(0, len(data), _PIECE):
        stream.write(data[at : at + _PIECE] if len(data) > _PIECE else data)


def read_from(stream: Any, length: int = sys.maxsize) -> bytes:
    """Up to `length` bytes, fewer where the file ends; in pieces, as well."""
    pieces: list[bytes] = []
    while length > 0 and (piece := bytes(stream.readNBytes(min(length, _PIECE)))):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _error_of(verb: str, place: str, error: Any) -> Exception:
    kind = error.getClass().getSimpleName()
    said = str(error.getMessage()).partition("\n")[0]
    if kind == "FileAlreadyExistsException" and verb == "write":
        return _taken(place)
    if kind == "FileNotFoundException" and verb != "write":
        return MissingFileError(f"{place} is not there", path=place)
    if kind == "UnsupportedFileSystemException" or "ClassNotFoundException" in said:
        return UnsupportedStoreError(f"neither kstream, fsspec nor this Hadoop knows how to open {place}: {said}", path=place)
    return StorageError(
        f"cannot {verb} {place}: {kind}: {said}. Check the namenode, the datanodes and the permissions; the stream goes on by itself "
        "once it works again.",
        path=place,
    )


def _taken(place: str) -> AlreadyExistsError:
    return AlreadyExistsError(f"{place} exists already", path=place)


def _limit(configuration: Any) -> None:
    """Our limits wherever nobody has set another."""
    for key, value in LIMITS.items():
        sources = configuration.getPropertySources(key)
        if sources is None or all(source.endswith("-default.xml") for source in sources):
            configuration.set(key, value)


def _qualified(jvm: Any, url: str, configuration: Any) -> str:
    """The URL with its authority: of `hdfs:///x` and `hdfs:/x` the default file system's."""
    parts = urlsplit(url)
    if parts.netloc:
        return url
    default = jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(configuration)
    if default.getScheme() != parts.scheme:
        raise ConfigurationError(
            f"{url} names no namenode, and the default file system is {default.toString()}: give hdfs://namenode:port/path, or set "
            "HADOOP_CONF_DIR",
            key="checkpoint", value=url,
        )  # fmt: skip
    return f"{parts.scheme}://{default.getAuthority()}{parts.path}"
