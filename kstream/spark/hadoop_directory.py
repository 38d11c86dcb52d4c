"""HadoopDirectory: a watched directory on a file system that only Hadoop's client knows (hdfs://, viewfs:// …), read by Spark itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from kstream.files import FileFormat, FileStatus, FixedRecords, TextLines, WholeFile

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext


class HadoopDirectory:
    """A watched directory, whose path may have Hadoop's wild cards.

    A listing costs a call to the JVM for each file, and several for a new file. Names that begin with `_` are left out, because Spark's
    readers refuse them. A stream leaves out names that begin with a dot anyway. Spark's readers cannot read a name with a comma either.
    """

    def __init__(self, directory: str, sc: SparkContext) -> None:
        self.directory = directory
        self._sc = sc
        self._path: Any = None
        self._fs: Any = None

    def list(self, newer_than_ms: int) -> list[FileStatus]:
        """Return the files that were modified after `newer_than_ms`, which is in ms since the epoch. Blocks on the file system.

        Raises:
            OSError: the file system cannot be listed. The next call begins with a new client.
        """
        try:
            found = self._opened().globStatus(self._path)
            directories = [status for status in found or () if status.isDirectory()]
            return [file for status in directories for file in self._files(status.getPath(), newer_than_ms)]
        except Py4JJavaError as e:
            self._fs = None  # so the next listing begins with a new client, as in Spark
            said = e.java_exception.toString().splitlines()[0]
            raise OSError(f"{self.directory}: {said}") from None

    def _opened(self) -> Any:
        """Return Hadoop's client for the directory; create it at the first use, and after an error."""
        if self._fs is None:
            jvm: Any = self._sc._jvm  # pyright: ignore[reportPrivateUsage]
            self._path = jvm.org.apache.hadoop.fs.Path(self.directory.rstrip("/") or "/")
            self._fs = self._path.getFileSystem(self._sc._jsc.hadoopConfiguration())  # pyright: ignore
        return self._fs

    def _files(self, directory: Any, newer_than_ms: int) -> Iterable[FileStatus]:
        """Yield the files of one directory that are new enough; none if the directory no longer exists."""
        try:
            found = self._fs.listStatus(directory)
        except Py4JJavaError as e:
            if "FileNotFoundException" in e.java_exception.toString():  # the directory was removed after the wild cards were resolved
                return
            raise
        for status in found:
            modified = status.getModificationTime()
            if modified > newer_than_ms and status.isFile() and not status.getPath().getName().startswith("_"):
                yield FileStatus(status.getPath().toString(), modified, status.getLen())

    def rdd(self, files: Sequence[FileStatus], format: FileFormat) -> RDD[Any]:
        """Return an RDD of the records of these files, made by `sc.textFile`, `sc.binaryRecords` or `sc.binaryFiles`.

        Spark divides the files into partitions by their blocks, and reads them in tasks.
        """
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


def default_file_system(sc: SparkContext) -> str:
    """Return the URL of the file system that Hadoop uses for a path without a scheme; an empty text if Hadoop names none."""
    return str(sc._jsc.hadoopConfiguration().get("fs.defaultFS") or "")  # pyright: ignore


def _escaped(path: str) -> str:
    """Return the path in the form in which Hadoop sees no wild card in it."""
    return "".join(f"\\{char}" if char in "*?[]{}\\" else char for char in path)
