"""HadoopDirectory: a watched directory on a file system that only Hadoop's client knows (hdfs://, viewfs:// …), read by Spark itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from kstream.errors import StorageError
from kstream.files import FileFormat, FileStatus, FixedRecords, TextLines, WholeFile

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext


class HadoopDirectory:
    """The wild cards are Hadoop's own. A listing costs one call of the JVM a file, and three more for one that is new.

    Names that begin with `_` are left out besides those that begin with a dot: Spark's readers refuse them. A name with a comma cannot be
    read by them either.
    """

    def __init__(self, directory: str, sc: SparkContext) -> None:
        self.directory = directory
        self._sc = sc
        self._path: Any = None
        self._fs: Any = None

    def list(self, newer_than_ms: int) -> list[FileStatus]:
        try:
            found = self._opened().globStatus(self._path)
            directories = [status for status in found or () if status.isDirectory()]
            return [file for status in directories for file in self._files(status.getPath(), newer_than_ms)]
        except Py4JJavaError as e:
            self._fs = None  # as Spark does: the next listing begins with a new client
            said = e.java_exception.toString().splitlines()[0]
            raise OSError(f"{self.directory}: {said}") from None

    def _opened(self) -> Any:
        if self._fs is None:
            jvm: Any = self._sc._jvm  # pyright: ignore[reportPrivateUsage]
            self._path = jvm.org.apache.hadoop.fs.Path(self.directory.rstrip("/") or "/")
            self._fs = self._path.getFileSystem(self._sc._jsc.hadoopConfiguration())  # pyright: ignore
        return self._fs

    def _files(self, directory: Any, newer_than_ms: int) -> Iterable[FileStatus]:
        try:
            found = self._fs.listStatus(directory)
        except Py4JJavaError as e:
            if "FileNotFoundException" in e.java_exception.toString():  # gone since the look at the wild cards
                return
            raise
        for status in found:
            modified = status.getModificationTime()
            if modified > newer_than_ms and status.isFile() and not status.getPath().getName().startswith("_"):
                yield FileStatus(status.getPath().toString(), modified, status.getLen())

    def rdd(self, files: Sequence[FileStatus], format: FileFormat) -> RDD[Any]:
        """By `sc.textFile`, `sc.binaryRecords` and `sc.binaryFiles`, whose partitions are a file's blocks."""
        if not files:
            return self._sc.emptyRDD()
        paths = ",".join(_escaped(file.path) for file in files)
        match format:
            case TextLines():
                return self._sc.textFile(paths, 1)
            case FixedRecords(length):
                return self._sc.binaryRecords(paths, length)
            case WholeFile(reader):
                return self._sc.binaryFiles(paths).flatMap(lambda pair: reader(BytesIO(pair[1]), pair[0]))
            case _:
                raise StorageError(f"{type(format).__name__} cannot be read from {self.directory}", path=self.directory)


def default_file_system(sc: SparkContext) -> str:
    """The URL of the file system that Hadoop uses for a path without a scheme; "" if Hadoop names none."""
    return str(sc._jsc.hadoopConfiguration().get("fs.defaultFS") or "")  # pyright: ignore


def _escaped(path: str) -> str:
    """A path that stands for itself where Hadoop looks for wild cards."""
    return "".join(f"\\{char}" if char in "*?[]{}\\" else char for char in path)
