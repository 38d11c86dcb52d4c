"""HadoopFileStore: a directory of a file system that Hadoop's client reaches, in the JVM; HdfsFileStore: HDFS, where files can also grow.

HadoopPlace is the address of such a store, pickled into tasks; a worker opens it in a JVM of its own.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from kstream.errors import AlreadyExistsError, ConfigurationError, MissingFileError, StorageError, UnsupportedStoreError
from kstream.secret import looks_secret
from kstream.spark.java_gateway import hadoop_configuration, java_view
from kstream.storage import FileStore
from kstream.storage.file_store import SINGLE_WRITER, refuses_a_second_create
from kstream.storage.open import scheme_of
from kstream.worker.process import once

_REDACTED = "<redacted>"
_DEFAULTS = "-default.xml"


@dataclass(frozen=True, slots=True)
class HadoopPlace:
    """Address of a store, pickled into tasks. `settings`: those of the driver's Hadoop client, without defaults and secrets."""

    url: str
    settings: tuple[tuple[str, str], ...]
    look_first: bool = False
    """Look for the name before a create: the file system does not refuse a rename onto a taken name, and there is a single writer."""

    def open(self) -> FileStore:
        """Return the store, opened once per process. The first call starts a JVM, which takes seconds. Asks no server. StorageError."""
        return once(self, self._opened)

    def _opened(self) -> FileStore:
        from kstream.spark.hadoop_file_store import open_hadoop

        return open_hadoop(self.url, dict(self.settings), look_first=self.look_first)


def settings_for_workers(jvm: Any, configuration: Any) -> tuple[tuple[str, str], ...]:
    """The settings that differ from Hadoop's defaults, without those that Hadoop calls sensitive and those that look like a secret."""
    writer = jvm.java.io.StringWriter()
    jvm.org.apache.hadoop.conf.Configuration.dumpConfiguration(configuration, writer)
    return not_default_nor_secret(json.loads(str(writer.toString())))


def not_default_nor_secret(dumped: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The settings of Hadoop's JSON dump that are no defaults and look like no secret, sorted."""
    return tuple(
        sorted(
            (setting["key"], setting["value"])
            for setting in dumped["properties"]
            if not setting["resource"].endswith(_DEFAULTS)
            and setting["value"] not in (None, _REDACTED)
            and not looks_secret(setting["key"], setting["value"])
        )
    )


logger = logging.getLogger(__name__)

_TEMPORARY = ".tmp-"
_TRUSTED = frozenset({"hdfs"})
_FS = "org.apache.hadoop.fs"
_PIECE = 2 << 20
"""Bytes of one transfer to the JVM, or from it."""
LIMITS = {
    # By default Hadoop waits 15 minutes for a namenode whose machine does not answer, and not at all for one that restarts. A batch that
    # cannot be planned should fail within seconds; a failover of two namenodes is over by then. The user's values win.
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
        """Open the store. Asks no server, but starts a JVM if Spark has none.

        Args:
            url: of a directory.
            settings: of Hadoop, as the driver's `for_workers` has them; None takes those of this process.
            look_first: look for the name before a create.

        Raises:
            UnsupportedStoreError: Hadoop does not know the scheme.
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
        """The address by which a worker opens this store."""
        with self._mapped("open", ""):
            return HadoopPlace(self._url, settings_for_workers(self._jvm, self._configuration), self._look_first)

    def prepare(self, single_writer: bool) -> None:
        """Create the directory and test `create` there. UnsupportedStoreError unless it is on HDFS, or a single writer is declared."""
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
        logger.warning("%s; singleWriter is set, so the store is used, and a second driver might not be noticed", said)
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
            if ".net." not in e.java_exception.getClass().getName():  # a server that does not answer would not answer this either
                self._drop(temporary)
            raise

    def _drop(self, temporary: Any) -> None:
        from py4j.protocol import Py4JError

        try:
            self._files.delete(temporary, False)
        except Py4JError as e:  # nothing reads it
            logger.debug("%s: this temporary file could not be deleted and stays: %s", temporary, e)

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
    """Write `data` in pieces, because the JVM holds several copies of each piece in transfer."""
    for at in range(0, len(data), _PIECE):
        stream.write(data[at : at + _PIECE] if len(data) > _PIECE else data)


def read_from(stream: Any, length: int = sys.maxsize) -> bytes:
    """Read up to `length` bytes, fewer where the file ends; in pieces, too."""
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
        f"cannot {verb} {place}: {kind}: {said}. Check the namenode, the datanodes and the permissions; the stream continues by itself "
        "once it works again.",
        path=place,
    )


def _taken(place: str) -> AlreadyExistsError:
    return AlreadyExistsError(f"{place} exists already", path=place)


def _limit(configuration: Any) -> None:
    """Set LIMITS where the user has set no value."""
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
            key="checkpoint",
            value=url,
        )
    return f"{parts.scheme}://{default.getAuthority()}{parts.path}"


_RECOVERY_S = 60.0
_LOOK_S = 0.2
_LENGTH_UNKNOWN = "CannotObtainBlockLengthException"
T = TypeVar("T")


def open_hadoop(url: str, settings: Mapping[str, str] | None = None, *, look_first: bool = False) -> HadoopFileStore:
    """Open the store under a URL that only Hadoop knows; on HDFS one whose files can grow. See HadoopFileStore."""
    return (HdfsFileStore if scheme_of(url) == "hdfs" else HadoopFileStore)(url, settings, look_first=look_first)


class HdfsFileStore(HadoopFileStore):
    """An AppendingStore: once `append` returns, the data is on the disks of all datanodes of the file, and readable (`hsync`).

    The namenode only learns of the beginning of a file and of each new block. So it does not know the length of a file that grows, or
    whose writer was killed; a reader asks a datanode for it. Datanodes that were restarted meanwhile do not know it either. Then, and only
    then, the lease is taken from the writer, so that the namenode determines the length (`recoverLease`).
    """

    def create(self, name: str, data: bytes) -> None:
        """Create a file. An empty file will grow, so it is replicated, also in a directory of erasure coding, where files cannot grow."""
        if data:
            super().create(name, data)
        else:
            with self._mapped("write", name):
                self._put(name, data, self._keep, self._flags_to_grow())

    def size(self, name: str) -> int:
        return self._recovered("look up", name, lambda stream: int(stream.getVisibleLength()))

    def read(self, name: str) -> bytes:
        return self._recovered("read", name, read_from)

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        def read(stream: Any) -> bytes:
            if offset >= stream.getVisibleLength():
                return b""
            stream.seek(offset)
            return read_from(stream, length)

        return self._recovered("read", name, read)

    def open_to_append(self, name: str) -> HdfsAppendableFile:
        """Open a file at its end. A file has one writer at a time.

        Raises:
            StorageError: another writer has the file open.
            UnsupportedStoreError: an append would not be durable there.
        """
        try:
            stream = self._opened_to_append(name)
        except MissingFileError:
            self.create(name, b"")
            stream = self._opened_to_append(name)
        file = HdfsAppendableFile(stream, name, self._mapped)
        if not stream.hasCapability("hsync"):
            file.close()
            raise UnsupportedStoreError(
                f"{self.path(name)} cannot grow durably: its file system has no hsync for it, as under erasure coding. Use another "
                "directory, or set closeFileAfterWrite for the write-ahead logs",
                path=self.path(name),
            )
        return file

    def _opened_to_append(self, name: str) -> Any:
        with self._mapped("open", name):
            flags = self._jvm.java.util.EnumSet.of(self._jvm.org.apache.hadoop.fs.CreateFlag.APPEND)
            return self._files.create(self._at(name), flags, self._with_parents)

    def _flags_to_grow(self) -> Any:
        flag = self._jvm.org.apache.hadoop.fs.CreateFlag
        return self._jvm.java.util.EnumSet.of(flag.CREATE, flag.SHOULD_REPLICATE)

    def _recovered(self, verb: str, name: str, use: Callable[[Any], T]) -> T:
        """Return `use(open file)`; recover the lease first if no datanode knows the length."""
        try:
            return self._used(verb, name, use)
        except StorageError as e:
            if _LENGTH_UNKNOWN not in str(e):
                raise
        self._recover(name)
        return self._used(verb, name, use)

    def _used(self, verb: str, name: str, use: Callable[[Any], T]) -> T:
        with self._mapped(verb, name):
            stream = self._files.open(self._at(name))
            try:
                return use(stream)
            finally:
                stream.close()

    def _recover(self, name: str) -> None:
        """Recover the lease; block until the namenode has closed the file, a minute at most."""
        logger.warning("%s: its writer left it open and its datanodes were restarted, so its lease is recovered", self.path(name))
        with self._mapped("recover", name):
            path = self._at(name)
            hdfs = path.getFileSystem(self._configuration)
            end = time.monotonic() + _RECOVERY_S
            while not hdfs.recoverLease(path) and time.monotonic() < end:
                time.sleep(_LOOK_S)


class HdfsAppendableFile:
    """A file that only this process writes. After an error its end cannot be truncated."""

    def __init__(self, stream: Any, name: str, mapped: Callable[[str, str], AbstractContextManager[None]]) -> None:
        self._stream = stream
        self._name = name
        self._mapped = mapped

    @property
    def size(self) -> int:
        with self._mapped("look up", self._name):
            return int(self._stream.getPos())

    def append(self, data: bytes) -> int:
        with self._mapped("write", self._name):
            offset = int(self._stream.getPos())
            write_to(self._stream, data)
            self._stream.hsync()
            return offset

    def close(self) -> None:
        with self._mapped("close", self._name):
            self._stream.close()
