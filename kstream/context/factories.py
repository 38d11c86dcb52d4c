"""StreamFactories: the methods of StreamingContext that make streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from pyspark.storagelevel import StorageLevel

from kstream.clock import Clock
from kstream.conf import Settings
from kstream.dstream import (
    DStream,
    DStreamGraph,
    FileInputDStream,
    QueueInputDStream,
    ReceiverInputDStream,
    TransformedDStream,
    UnionDStream,
)
from kstream.dstream.arguments import takes_one_argument
from kstream.dstream.base import node_of
from kstream.dstream.ports import StateRDDs
from kstream.dstream.recipe import Recorder, on_workers, recorded
from kstream.errors import ConfigurationError
from kstream.files import FileFormat, FileSource, FixedRecords, TextLines, WatchedDirectory, WholeFile
from kstream.files.settings import SPLIT_BYTES
from kstream.receiver import Receiver, SocketReceiver, lines_of
from kstream.spark.hadoop_directory import HadoopDirectory, default_file_system
from kstream.spark.worker_rdd import WorkerRDD
from kstream.storage.open import is_known, scheme_of

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

T = TypeVar("T")


@dataclass(frozen=True)
class ContextServices:
    """The parts of a StreamingContext that its streams use (`kstream.dstream.ports.StreamServices`). They are not for users."""

    context: StreamFactories
    sparkContext: SparkContext
    settings: Settings
    graph: DStreamGraph
    state_rdds: StateRDDs
    clock: Clock
    check_can_add: Callable[[str], None]


class StreamFactories:
    """Base of StreamingContext: its methods make streams. A stored graph can restore all of them except those of `queueStream`.

    Each method raises IllegalStateError once the context has started.
    """

    _services: ContextServices

    @property
    def sparkContext(self) -> SparkContext:
        """The SparkContext the streams run on."""
        return self._services.sparkContext

    @property
    def _recorder(self) -> Recorder:
        """The recorder of the graph's calls, for `recorded`."""
        return self._services.graph.recorder

    # -- files

    @recorded
    def textFileStream(self, directory: str) -> DStream[str]:
        """Read the lines of files as they arrive in a directory; UTF-8. Files must be moved there whole, and then be left alone.

        A batch takes the files modified up to its time that no batch has taken. It ignores names that begin with a dot, and files modified
        before this call or more than `spark.streaming.fileStream.minRememberDuration` before the batch. `.gz`, `.bz2` and `.deflate` are
        decompressed.

        Args:
            directory: a path, or a URL of anything that Hadoop (`hdfs://…`) or fsspec (`s3://…`) knows, with wild cards for directories
                if need be (`logs/*/`).

        Returns:
            A stream of lines.
        """
        return self._file_stream(directory, TextLines())

    @recorded
    def binaryRecordsStream(self, directory: str, recordLength: int) -> DStream[bytes]:
        """Read the records of files as they arrive in a directory; see `textFileStream`.

        Args:
            directory: as for `textFileStream`.
            recordLength: the length of every record in bytes.

        Returns:
            A stream of bytes.

        Raises:
            ConfigurationError: the length is not above zero.
        """
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
    ) -> DStream[Any]:
        """Read files as they arrive in a directory, by a function of the user; see `textFileStream`.

        Args:
            directory: as for `textFileStream`.
            filter: filter(path) runs on the driver and returns whether a file is taken (default: all).
            newFilesOnly: False also takes the files that are in the directory already, as far back as the first batch looks.
            reader: reader(file, path) yields the records of a file, in a worker. `file` is open for reading its stored bytes.
                Without a reader the records are the lines.

        Returns:
            A stream of the records.
        """
        return self._file_stream(directory, TextLines() if reader is None else WholeFile(reader), filter, newFilesOnly)

    def _file_stream(
        self, directory: str, format: FileFormat, filter: Callable[[str], bool] | None = None, newFilesOnly: bool = True
    ) -> DStream[Any]:
        return FileInputDStream(self, self._file_source(directory), format, self._services.clock, filter, newFilesOnly)

    def _file_source(self, directory: str) -> FileSource:
        """Return the source that lists and reads a directory: by Hadoop if kstream does not know the URL's scheme.

        A path without a scheme is Hadoop's, unless Hadoop's default file system is the local one.
        """
        scheme = scheme_of(directory)
        if not is_known(scheme) or (scheme == "" and not _local(default_file_system(self.sparkContext))):
            return HadoopDirectory(directory, self.sparkContext)
        return WatchedDirectory(directory, self._services.settings[SPLIT_BYTES], partial(WorkerRDD, self.sparkContext))

    # -- receivers

    @recorded
    def socketTextStream(self, hostname: str, port: int, storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_2) -> DStream[str]:
        """Receive the lines (UTF-8) that a TCP server sends. The receiver reconnects if the server refuses or closes the connection.

        Args:
            hostname: the server.
            port: the server's port.
            storageLevel: where the received blocks are kept; see `receiverStream`.

        Returns:
            A stream of lines.
        """
        return self._receiver_stream(SocketReceiver(hostname, port, lines_of, storageLevel))

    @recorded
    @on_workers("converter")
    def socketStream(
        self,
        hostname: str,
        port: int,
        converter: Callable[[BinaryIO], Iterable[T]],
        storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_2,
    ) -> DStream[T]:
        """Receive records from a TCP server; see `socketTextStream`.

        Args:
            hostname: the server.
            port: the server's port.
            converter: converter(file) yields records from the received bytes until the connection ends. It runs in the receiver.
            storageLevel: where the received blocks are kept; see `receiverStream`.

        Returns:
            A stream of the records.
        """
        return self._receiver_stream(SocketReceiver(hostname, port, converter, storageLevel))

    @recorded
    @on_workers("receiver")
    def receiverStream(self, receiver: Receiver) -> DStream[Any]:
        """Receive the records that the user's own receiver stores. The receiver runs on an executor and takes one of its cores.

        Its blocks are on two executors, so that one may die. They are lost with the driver, unless
        `spark.streaming.receiver.writeAheadLog.enable` keeps them in the checkpoint, too. The setting
        `spark.streaming.kstream.receiver.onDataLoss` decides the result of a batch whose blocks are lost.

        Args:
            receiver: see `kstream.Receiver`.

        Returns:
            A stream of the records.
        """
        return self._receiver_stream(receiver)

    def _receiver_stream(self, receiver: Receiver) -> DStream[Any]:
        return ReceiverInputDStream(self, receiver)

    # -- queues

    def queueStream(
        self, rdds: Sequence[RDD[T] | Sequence[T]], oneAtATime: bool = True, default: RDD[T] | Sequence[T] | None = None
    ) -> DStream[T]:
        """Make a stream of queued RDDs or lists, for tests.

        No restart recovers this stream. With a checkpoint the stream starts and its plans are written, but the next start from this
        checkpoint raises NotRecoverableError. Use a new checkpoint directory, or none.

        Args:
            rdds: the queue. Each batch reads it again, so later batches see elements that were appended.
            oneAtATime: a batch takes one element; otherwise all elements in the queue.
            default: the batch if the queue is empty (default: an empty batch).

        Returns:
            A stream of the records.
        """
        queue = rdds if isinstance(rdds, list) else list(rdds)
        stream = QueueInputDStream(self, queue, oneAtATime, None if default is None else self._as_rdd(default), self._as_rdd)
        stream.register_recipe()
        return stream

    def _as_rdd(self, records: Any) -> RDD[Any]:
        """Return the RDD itself, or make one of a list."""
        return records if hasattr(records, "ctx") else self.sparkContext.parallelize(records)

    # -- streams of streams

    @recorded
    def union(self, *dstreams: DStream[T]) -> DStream[T]:
        """Return a stream of all records of the streams, batch by batch.

        Args:
            dstreams: streams of this context.

        Raises:
            ValueError: the streams have different slide durations, or belong to different contexts.
        """
        return dstreams[0] if len(dstreams) == 1 else DStream(UnionDStream([node_of(stream) for stream in dstreams]))

    @recorded
    def transform(self, dstreams: Sequence[DStream[Any]], transformFunc: Callable[..., RDD[T]]) -> DStream[T]:
        """Apply a function to the RDDs of several streams, batch by batch.

        Args:
            dstreams: streams of this context with the same slide duration.
            transformFunc: transformFunc(tuple of RDDs) or transformFunc(time, tuple of RDDs), on the driver; returns an RDD.

        Returns:
            A stream of the RDDs returned.
        """
        parents = [node_of(stream) for stream in dstreams]
        if takes_one_argument(transformFunc):
            return DStream(TransformedDStream(parents, lambda _time, *rdds: transformFunc(rdds)))
        return DStream(TransformedDStream(parents, lambda time, *rdds: transformFunc(time.to_datetime(), rdds)))


def _local(url: str) -> bool:
    return url == "" or url.startswith("file:")


def services_of_context(context: StreamFactories) -> ContextServices:
    """Return the services of a context, for commands and the testing kit."""
    return context._services  # pyright: ignore[reportPrivateUsage]
