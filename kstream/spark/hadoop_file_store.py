"""The stores on file systems that Hadoop's client reaches, through the JVM: HadoopFileStore, and HdfsFileStore, whose files can also grow.

HadoopPlace is the address of such a store. It is pickled into tasks, and a worker opens the store by it, in a JVM of its own.
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
from kstream.storage.file_store import inside, refuses_a_second_create
from kstream.storage.open import scheme_of
from kstream.storage.settings import SINGLE_WRITER
from kstream.worker.process import once

_REDACTED = "<redacted>"
_DEFAULTS = "-default.xml"


@dataclass(frozen=True, slots=True)
class HadoopPlace:
    """Address of a store, pickled into tasks.

    Attributes:
        url: the URL of the directory.
        settings: the settings of the driver's Hadoop client, without defaults and secrets.
    """

    url: str
    settings: tuple[tuple[str, str], ...]
    look_first: bool = False
    """Look for the name before a create: the file system does not refuse a rename onto a taken name, and there is a single writer."""

    def open(self) -> FileStore:
        """Return the store, opened once per process. The first call may start a JVM, which takes seconds. Asks no server.

        Raises:
            StorageError: the store cannot be opened; see HadoopFileStore for other errors.
        """
        return once(self, self._opened)

    def _opened(self) -> FileStore:
        """Open the store in the JVM of this process, with the driver's settings of Hadoop."""
        from kstream.spark.hadoop_file_store import open_hadoop

        return open_hadoop(self.url, dict(self.settings), look_first=self.look_first)


def settings_for_workers(jvm: Any, configuration: Any) -> tuple[tuple[str, str], ...]:
    """Return the settings that differ from Hadoop's defaults, without those that Hadoop calls sensitive and those that look like a secret.

    Args:
        jvm: py4j's view of the JVM.
        configuration: Hadoop's Configuration.
    """
    writer = jvm.java.io.StringWriter()
    jvm.org.apache.hadoop.conf.Configuration.dumpConfiguration(configuration, writer)
    return not_default_nor_secret(json.loads(str(writer.toString())))


def not_default_nor_secret(dumped: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the settings of Hadoop's JSON dump that are no defaults and look like no secret, as sorted (key, value) pairs."""
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
"""Schemes of file systems whose rename is known to refuse a name that is taken."""
_FS = "org.apache.hadoop.fs"
_PIECE = 2 << 20
"""Most bytes of one transfer to the JVM, or from it."""
LIMITS = {
    # By default Hadoop waits 15 minutes for a namenode whose machine does not answer, and not at all for one that restarts. A batch that
    # cannot be planned should fail within seconds; a failover of two namenodes is over by then. The user's values win.
    "ipc.client.connect.timeout": "5000",
    "ipc.client.connect.max.retries.on.timeouts": "1",
    "ipc.client.rpc-timeout.ms": "10000",
    "dfs.client.retry.policy.enabled": "true",
    "dfs.client.retry.policy.spec": "2000,1",  # one retry after two seconds, in each of two layers of the client
    "dfs.client.failover.max.attempts": "6",
    "dfs.client.socket-timeout": "15000",
}


class HadoopFileStore:
    """A FileStore in a directory of a file system that Hadoop's client reaches.

    Create-if-absent takes four steps: write a temporary file, sync it (hsync), close it, and rename it. The rename refuses a name that is
    taken (`Rename.NONE`). `create(overwrite=false)` alone refuses it, too, but makes the name first and writes the bytes later. A reader
    could then find an empty file, and a driver that is killed in between would leave one for good.

    The namenode renames under its lock: of two writers one wins. The old `FileSystem.rename` would move the file *into* a directory of that
    name; FileContext's rename does not. Whether other file systems than HDFS rename in this way is not known, so they are for a single
    writer.
    """

    def __init__(self, url: str, settings: Mapping[str, str] | None = None, *, look_first: bool = False) -> None:
        """Open the store. Asks no server, but starts a JVM if Spark has none.

        Args:
            url: the URL of a directory.
            settings: Hadoop's settings, as the driver's `for_workers` returns them; None takes those of this process.
            look_first: look for the name before a create.

        Raises:
            UnsupportedStoreError: Hadoop does not know the scheme.
            ConfigurationError: the URL names no namenode, and the default file system has another scheme.
            MissingDependencyError: pyspark is not installed.
            JavaNotFoundError: there is no Java for a JVM.
            StorageError: no JVM could be started, or it does not answer.
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
        """Return a second handle on the same connection."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    @property
    def url(self) -> str:
        """The URL of the directory, for messages."""
        return self._url

    def path(self, name: str) -> str:
        """Return the full URL of a name, for messages."""
        return f"{self._url}/{name}"

    def for_workers(self) -> HadoopPlace:
        """Return the address by which a worker opens this store. Asks the JVM; raises StorageError if it does not answer."""
        with self._mapped("open", ""):
            return HadoopPlace(self._url, settings_for_workers(self._jvm, self._configuration), self._look_first)

    def prepare(self, single_writer: bool) -> None:
        """Create the directory, and test `create` there. Blocks on the servers.

        Without a reliable rename, but with a single writer, the store is accepted with a warning; `create` looks for the name first if
        needed.

        Args:
            single_writer: the user says that there is never a second driver.

        Raises:
            UnsupportedStoreError: the store is not on HDFS or does not refuse a second create, and `single_writer` is false.
            StorageError: a request failed.
        """
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

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        """Create the file durably: whole, or not at all. Blocks.

        Raises:
            AlreadyExistsError: the name is taken.
            StorageError: the outcome is unknown, and the file may exist.
        """
        if self._look_first and self.exists(name):
            raise _taken(self.path(name))
        with self._mapped("write", name):
            self._put(name, data, self._keep)

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        """Create or overwrite the file durably. Blocks. Ignores `private`. Raises StorageError."""
        with self._mapped("write", name):
            self._put(name, data, self._overwrite)

    def read(self, name: str) -> bytes:
        """Return the file's bytes. Blocks. Raises MissingFileError if the file does not exist, StorageError for other failures."""
        with self._mapped("read", name):
            stream = self._files.open(self._at(name))
            try:
                return read_from(stream)
            finally:
                stream.close()

    def exists(self, name: str) -> bool:
        """Return whether the file exists. Blocks. Raises StorageError."""
        with self._mapped("look up", name):
            return bool(self._files.util().exists(self._at(name)))

    def size(self, name: str) -> int:
        """Return the file's size in bytes. Blocks. Raises MissingFileError if the file does not exist, StorageError for other failures."""
        with self._mapped("look up", name):
            return int(self._files.getFileStatus(self._at(name)).getLen())

    def modified_ms(self, name: str) -> int | None:
        """Return when the file was written, by the namenode's clock, in milliseconds since the Unix epoch. Blocks. Raises as `size`."""
        with self._mapped("look up", name):
            return int(self._files.getFileStatus(self._at(name)).getModificationTime())

    def list(self, folder: str = "") -> list[str]:
        """Return the sorted names of the files in a folder, without temporary ones. Blocks.

        A folder that does not exist has none. Raises StorageError for other failures.
        """
        try:
            with self._mapped("list", folder):
                found = self._files.util().listStatus(self._at(folder))
                names = [status.getPath().getName() for status in found if status.isFile()]
        except MissingFileError:
            return []
        return sorted(name for name in names if not name.startswith(_TEMPORARY))

    def delete(self, name: str) -> None:
        """Delete the file. Blocks. No error if the file does not exist; raises StorageError for other failures."""
        try:
            with self._mapped("delete", name):
                self._files.delete(self._at(name), False)
        except MissingFileError:
            pass

    def _at(self, name: str) -> Any:
        """Return Hadoop's Path of a name. OutsideStoreError."""
        return self._path_class(f"{self._root}/{inside(name, self._url)}")

    def _put(self, name: str, data: bytes, rename: Any, flags: Any = None) -> None:
        """Write a temporary file durably, and rename it to `name`. Raises py4j's errors, for `_mapped`.

        After an error the temporary file is deleted, unless a server did not answer.

        Args:
            name: the name in the store.
            data: the bytes.
            rename: the options of the rename: `_keep` refuses a name that is taken, `_overwrite` replaces the file.
            flags: the flags of the create; None is CREATE.
        """
        from py4j.protocol import Py4JJavaError

        target, folder = self._at(name), name.rpartition("/")[0]
        temporary = self._at(f"{folder}/{_TEMPORARY}{uuid.uuid4().hex}" if folder else f"{_TEMPORARY}{uuid.uuid4().hex}")
        try:
            stream = self._files.create(temporary, flags or self._flags, self._with_parents)
            try:
                write_to(stream, data)
                stream.hsync()
            finally:
                stream.close()
            self._files.rename(temporary, target, rename)
        except Py4JJavaError as e:
            if ".net." not in e.java_exception.getClass().getName():  # a server that does not answer would not answer the deletion either
                self._drop(temporary)
            raise

    def _drop(self, temporary: Any) -> None:
        """Delete a temporary file, if possible."""
        from py4j.protocol import Py4JError

        try:
            self._files.delete(temporary, False)
        except Py4JError as e:  # harmless: nothing reads the file
            logger.debug("%s: this temporary file could not be deleted and stays: %s", temporary, e)

    def _options(self, enum: str, name: str) -> Any:
        """Return a constant of an enum of Hadoop, in a Java array of one element."""
        constants = self._jvm.java.lang.Class.forName(f"{_FS}.{enum}").getEnumConstants()
        return self._array(enum, next(constant for constant in constants if constant.toString() == name))

    def _array(self, of: str, element: Any) -> Any:
        """Return a Java array of one element, for a method with variable arguments."""
        array = self._jvm.java.lang.reflect.Array.newInstance(self._jvm.java.lang.Class.forName(f"{_FS}.{of}"), 1)
        array[0] = element
        return array

    @contextmanager
    def _mapped(self, verb: str, name: str) -> Generator[None]:
        """Turn py4j's errors of the body into StorageErrors. `verb` and `name` describe the failed operation in the message."""
        from py4j.protocol import Py4JError, Py4JJavaError

        place = self.path(name).rstrip("/")
        try:
            yield
        except Py4JJavaError as e:
            raise _error_of(verb, place, e.java_exception) from e
        except Py4JError as e:
            raise StorageError(f"cannot {verb} {place}: the JVM does not answer: {e}", path=place) from e


def write_to(stream: Any, data: bytes) -> None:
    """Write `data` to a Java stream in pieces, because the JVM holds several copies of each piece in transfer. Raises py4j's errors."""
    for at in range(0, len(data), _PIECE):
        stream.write(data[at : at + _PIECE] if len(data) > _PIECE else data)


def read_from(stream: Any, length: int = sys.maxsize) -> bytes:
    """Read up to `length` bytes from a Java stream, in pieces; fewer where the file ends. Raises py4j's errors."""
    pieces: list[bytes] = []
    while length > 0 and (piece := bytes(stream.readNBytes(min(length, _PIECE)))):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _error_of(verb: str, place: str, error: Any) -> Exception:
    """Return this project's error for a Java exception. `verb` and `place` describe the failed operation in the message."""
    kind = error.getClass().getSimpleName()
    said = str(error.getMessage()).partition("\n")[0]
    if kind == "FileAlreadyExistsException" and verb == "write":
        return _taken(place)
    if kind == "FileNotFoundException" and verb != "write":
        return MissingFileError(f"{place} is not there", path=place)
    if kind == "UnsupportedFileSystemException" or "ClassNotFoundException" in said:
        return UnsupportedStoreError(f"neither kstream, fsspec nor this Hadoop knows how to open {place}: {said}", path=place)
    return StorageError(
        f"cannot {verb} {place}: {kind}: {said}. Check the namenode, the datanodes and the permissions.",
        path=place,
    )


def _taken(place: str) -> AlreadyExistsError:
    return AlreadyExistsError(f"{place} exists already", path=place)


def _limit(configuration: Any) -> None:
    """Set the LIMITS in a Configuration, except where the user has set a value."""
    for key, value in LIMITS.items():
        sources = configuration.getPropertySources(key)
        if sources is None or all(source.endswith("-default.xml") for source in sources):
            configuration.set(key, value)


def _qualified(jvm: Any, url: str, configuration: Any) -> str:
    """Return the URL with an authority: `hdfs:///x` and `hdfs:/x` get that of the default file system.

    Raises:
        ConfigurationError: the default file system has another scheme.
    """
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
    """Open the store under a URL that only Hadoop knows. Arguments and errors are those of HadoopFileStore.

    Returns:
        An HdfsFileStore, whose files can grow, for `hdfs:`; else a HadoopFileStore.
    """
    return (HdfsFileStore if scheme_of(url) == "hdfs" else HadoopFileStore)(url, settings, look_first=look_first)


class HdfsFileStore(HadoopFileStore):
    """An AppendingStore on HDFS: once `append` returns, the data is on the disks of all datanodes of the file, and readable (`hsync`).

    The namenode learns only of the beginning of a file and of each new block. So it does not know the length of a file that grows, or whose
    writer was killed; a reader asks a datanode for the length. Datanodes that were restarted meanwhile do not know it either. In that case
    alone, the reader takes the lease from the writer, so that the namenode determines the length (`recoverLease`).
    """

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        """Create a file. An empty file is always replicated.

        An empty file will grow, and under erasure coding files cannot grow. So it is replicated in a directory of erasure coding, too.
        """
        if data:
            super().create(name, data, private=private)
        else:
            with self._mapped("write", name):
                self._put(name, data, self._keep, self._flags_to_grow())

    def size(self, name: str) -> int:
        """Return the length that readers see, also of a file that grows. May recover the lease, for a minute at most."""
        return self._recovered("look up", name, lambda stream: int(stream.getVisibleLength()))

    def read(self, name: str) -> bytes:
        """Return the file's bytes. May recover the lease, for a minute at most."""
        return self._recovered("read", name, read_from)

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, fewer where the file ends. May recover the lease, for a minute at most."""

        def read(stream: Any) -> bytes:
            if offset >= stream.getVisibleLength():
                return b""
            stream.seek(offset)
            return read_from(stream, length)

        return self._recovered("read", name, read)

    def open_to_append(self, name: str) -> HdfsAppendableFile:
        """Open a file at its end; create it first if it does not exist. A file has one writer at a time. Blocks.

        Raises:
            StorageError: another writer has the file open, or a request failed.
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
        """Return a Java stream at the end of the file. Raises MissingFileError if the file does not exist."""
        with self._mapped("open", name):
            flags = self._jvm.java.util.EnumSet.of(self._jvm.org.apache.hadoop.fs.CreateFlag.APPEND)
            return self._files.create(self._at(name), flags, self._with_parents)

    def _flags_to_grow(self) -> Any:
        """Return the flags of Hadoop for the create of a file that will grow: it is replicated, never erasure-coded."""
        flag = self._jvm.org.apache.hadoop.fs.CreateFlag
        return self._jvm.java.util.EnumSet.of(flag.CREATE, flag.SHOULD_REPLICATE)

    def _recovered(self, verb: str, name: str, use: Callable[[Any], T]) -> T:
        """Return `use(open file)`. If no datanode knows the length, recover the lease and try once more."""
        try:
            return self._used(verb, name, use)
        except StorageError as e:
            if _LENGTH_UNKNOWN not in str(e):
                raise
        self._recover(name)
        return self._used(verb, name, use)

    def _used(self, verb: str, name: str, use: Callable[[Any], T]) -> T:
        """Return `use(open file)`, and close the file."""
        with self._mapped(verb, name):
            stream = self._files.open(self._at(name))
            try:
                return use(stream)
            finally:
                stream.close()

    def _recover(self, name: str) -> None:
        """Recover the lease of a file. Blocks until the namenode has closed the file, a minute at most."""
        logger.warning("%s: its writer left it open and its datanodes were restarted, so its lease is recovered", self.path(name))
        with self._mapped("recover", name):
            path = self._at(name)
            hdfs = path.getFileSystem(self._configuration)
            end = time.monotonic() + _RECOVERY_S
            while not hdfs.recoverLease(path) and time.monotonic() < end:
                time.sleep(_LOOK_S)


class HdfsAppendableFile:
    """An AppendableFile on HDFS, which only this process writes. After an error the end of the file cannot be truncated."""

    def __init__(self, stream: Any, name: str, mapped: Callable[[str, str], AbstractContextManager[None]]) -> None:
        self._stream = stream
        self._name = name
        self._mapped = mapped

    @property
    def size(self) -> int:
        """The number of bytes in the file now. Raises StorageError."""
        with self._mapped("look up", self._name):
            return int(self._stream.getPos())

    def append(self, data: bytes) -> int:
        """Append the data durably (`hsync`), and return the offset of its first byte. Blocks.

        Raises:
            StorageError: close the file and write to it no more. A part of the data may be at its end.
        """
        with self._mapped("write", self._name):
            offset = int(self._stream.getPos())
            write_to(self._stream, data)
            self._stream.hsync()
            return offset

    def close(self) -> None:
        """Close the file. Blocks. Raises StorageError."""
        with self._mapped("close", self._name):
            self._stream.close()
