"""StreamFactories: the methods of StreamingContext that make input streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from pyspark.storagelevel import StorageLevel

from kstream.clock import Clock
from kstream.conf import Settings
from kstream.dstream import DStream, FileInputDStream, QueueInputDStream, ReceiverInputDStream
from kstream.dstream.recipe import on_workers, recorded
from kstream.errors import ConfigurationError
from kstream.files import FileFormat, FileSource, FixedRecords, TextLines, WatchedDirectory, WholeFile
from kstream.receiver import Receiver, SocketReceiver, lines_of
from kstream.spark.hadoop_directory import HadoopDirectory, default_file_system
from kstream.spark.worker_rdd import WorkerRDD
from kstream.storage.open import is_known, scheme_of

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from kstream.dstream.graph import DStreamGraph
    from kstream.dstream.ports import StateRDDs
    from kstream.dstream.recipe import Recorder

SPLIT_BYTES = "spark.streaming.kstream.fileStream.splitBytes"


class StreamFactories:
    """Part of StreamingContext, which has what is declared here. All but `queueStream` are made again from a stored graph."""

    if TYPE_CHECKING:
        _sc: SparkContext
        _clock: Clock

        @property
        def sparkContext(self) -> SparkContext: ...
        @property
        def settings(self) -> Settings: ...
        @property
        def graph(self) -> DStreamGraph: ...
        @property
        def recorder(self) -> Recorder: ...
        @property
        def state_rdds(self) -> StateRDDs: ...
        def check_can_add(self, what: str) -> None: ...

    # -- files

    @recorded
    def textFileStream(self, directory: str) -> DStream:
        """The lines of files as they arrive in a directory; UTF-8. Files must be moved there whole, and then be left alone.

        `directory` is a path, or a URL of anything that Hadoop (`hdfs://…`) or fsspec (`s3://…`) knows, with wild cards for directories
        if need be (`logs/*/`). A batch takes the files modified up to its time that none has taken; names that begin with a dot are
        ignored, and so is what was modified before this call, or more than `spark.streaming.fileStream.minRememberDuration` before the
        batch. `.gz`, `.bz2` and `.deflate` are decompressed.
        """
        return self._file_stream(directory, TextLines())

    @recorded
    def binaryRecordsStream(self, directory: str, recordLength: int) -> DStream:
        """The records, each `recordLength` bytes, of files as they arrive in a directory; see `textFileStream`."""
        if recordLength <= 0:
            raise ConfigurationError(f"recordLength must be above zero, it is {recordLength}", key="recordLength", value=recordLength)
        return self._file_stream(directory, FixedRecords(recordLength))

    @recorded
    @on_workers("reader")
    def fileStream(
        self,
        directory: str,
        filter: Callable[[str], bool] | None = None,
        newFilesOnly: bool = True,
        reader: Callable[[BinaryIO, str], Iterable[Any]] | None = None,
    ) -> DStream:
        """Files as they arrive in a directory, in the user's own way; see `textFileStream`.

        `filter(path)` says on the driver which files are taken. Without `newFilesOnly` those that are there already are taken, too, as
        far back as the first batch looks. `reader(file, path)` makes the records of a file, in a worker; `file` is open for reading
        bytes, as they are stored. Without a reader: the lines.
        """
        return self._file_stream(directory, TextLines() if reader is None else WholeFile(reader), filter, newFilesOnly)

    def _file_stream(
        self, directory: str, format: FileFormat, filter: Callable[[str], bool] | None = None, newFilesOnly: bool = True
    ) -> DStream:
        return FileInputDStream(self, self._file_source(directory), format, self._clock, filter, newFilesOnly)

    def _file_source(self, directory: str) -> FileSource:
        scheme = scheme_of(directory)
        if not is_known(scheme) or (scheme == "" and not _local(default_file_system(self._sc))):
            return HadoopDirectory(directory, self._sc)
        return WatchedDirectory(directory, self.settings.get(SPLIT_BYTES), partial(WorkerRDD, self._sc))

    # -- receivers

    @recorded
    def socketTextStream(self, hostname: str, port: int, storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_2) -> DStream:
        """The lines (UTF-8) that a TCP server sends. Refused, or hung up on, it connects again; see `receiverStream`."""
        return self._receiver_stream(SocketReceiver(hostname, port, lines_of, storageLevel))

    @recorded
    @on_workers("converter")
    def socketStream(
        self,
        hostname: str,
        port: int,
        converter: Callable[[BinaryIO], Iterable[Any]],
        storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_2,
    ) -> DStream:
        """What `converter(file)` makes of the bytes that a TCP server sends: records, for as long as they come. See `socketTextStream`."""
        return self._receiver_stream(SocketReceiver(hostname, port, converter, storageLevel))

    @recorded
    @on_workers("receiver")
    def receiverStream(self, receiver: Receiver) -> DStream:
        """What a receiver of the user's own stores; see `kstream.Receiver`. It runs on an executor and takes one of its cores.

        Its blocks lie on two executors, so that one may die. They die with the driver, unless
        `spark.streaming.receiver.writeAheadLog.enable` keeps them in the checkpoint, too; what becomes of a batch whose blocks are gone is
        `spark.streaming.kstream.receiver.onDataLoss`.
        """
        return self._receiver_stream(receiver)

    def _receiver_stream(self, receiver: Receiver) -> DStream:
        return ReceiverInputDStream(self, receiver)

    # -- queues

    def queueStream(self, rdds: Sequence[Any], oneAtATime: bool = True, default: Any = None) -> DStream:
        """A stream of queued RDDs or lists, one a batch or all that wait. For tests.

        `rdds` is looked at for each batch: what is appended to it later is seen. `default` is the batch when nothing waits (without it:
        an empty one). With a checkpoint the stream starts and its plans are written, but it is not recovered: the next start from there
        fails with NotRecoverableError, whether the graph was stored or `setup` has made it anew. Use a new checkpoint directory, or
        none.
        """
        queue = rdds if isinstance(rdds, list) else list(rdds)
        stream = QueueInputDStream(self, queue, oneAtATime, None if default is None else self._as_rdd(default), self._as_rdd)
        stream.register_recipe()
        return stream

    def _as_rdd(self, records: Any) -> RDD[Any]:
        return records if hasattr(records, "ctx") else self._sc.parallelize(records)


def _local(url: str) -> bool:
    return url == "" or url.startswith("file:")
