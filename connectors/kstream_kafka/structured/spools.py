"""Spools: what a task has of a batch that is to be written, until the batch is committed.

A task of Spark knows neither whether its batch will be committed nor which partition of it will come at another try. So it writes nothing
to Kafka. It gives its records to the commit: a few in the message that Spark brings there, many in files of a place that both can reach.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from kstream.errors import KStreamError, MissingFileError
from kstream.storage import StorePlace
from kstream.worker.process import once
from kstream_kafka.errors import KafkaError, SourceOptionError

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("kstream.kafka")

MESSAGE_BYTES = 4_000_000
"""The most bytes of records in a message. The driver has the messages of all tasks in its memory at once."""
FILE_BYTES = 32_000_000
"""The bytes of a file, about. Task and commit have one file in memory at once."""
QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""The properties by which Spark tells a task of its query and its batch."""
FRAMES = "frames"
"""The folder of the files of frames that belong to no query. The names of files have the id of the frame in any folder."""


@dataclass
class SpooledPartition(WriterCommitMessage):
    """What a task has of a batch.

    Attributes:
        query: the id of the query, as the task was told; None outside of a query.
        batch: the id of the batch, as the task was told; None outside of a query.
        num_records: how many records it has.
        num_bytes: how many bytes, about.
        files: the names of the files that have the first records.
        data: the other records, as a stream of Arrow.
    """

    query: str | None
    batch: int | None
    num_records: int = 0
    num_bytes: int = 0
    files: tuple[str, ...] = ()
    data: bytes = b""

    def read(self, place: StorePlace | None) -> Iterator[pa.RecordBatch]:
        """Return the records, as they were spooled. Lazy; blocks on the place.

        Args:
            place: where the files are.

        Raises:
            SourceOptionError: a file is not there.
            StorageError: a file cannot be read.
        """
        import pyarrow as pa

        for name in self.files:
            with pa.ipc.open_stream(_bytes_of_file(place, name)) as reader:
                yield from reader
        if self.data:
            with pa.ipc.open_stream(self.data) as reader:
                yield from reader


def spooled(
    batches: Iterable[pa.RecordBatch],
    told: tuple[str | None, int | None],
    place: StorePlace | None = None,
    frame: str = "",
    message_bytes: int = MESSAGE_BYTES,
    file_bytes: int = FILE_BYTES,
) -> SpooledPartition:
    """Return the spool of a task. Blocks on the place if there are many records. If it fails, it leaves no file, as far as it can.

    Args:
        batches: what the task has, as `frame_columns.kept` gives it.
        told: the query and the batch of the task.
        place: where files may be; None for nowhere.
        frame: the id of the frame, the same in all tasks. The names of the files have it.
        message_bytes: the most bytes of records in the message.
        file_bytes: the bytes of a file, about.

    Raises:
        KafkaError: there are more bytes than the message may have, and no place.
        StorageError: a file could not be written.
    """
    files, part = list[str](), _Part()
    spool = SpooledPartition(*told)
    begin = f"{FRAMES}/" if told[0] is None else f"{told[0]}/{told[1]}-"
    name = f"{begin}{frame}-{uuid.uuid4().hex}"
    try:
        for batch in batches:
            if batch.num_rows:
                part.add(batch)
                spool.num_records += batch.num_rows
                spool.num_bytes += batch.get_total_buffer_size()
            if part.size > (message_bytes if place is None else file_bytes):
                files.append(_write_file(part, place, f"{name}-{len(files)}", message_bytes))
                part = _Part()
        if part.size > message_bytes:
            files.append(_write_file(part, place, f"{name}-{len(files)}", message_bytes))
            part = _Part()
    except BaseException:
        if place is not None:
            _remove(place, files)
        raise
    spool.files, spool.data = tuple(files), part.data()
    return spool


class _Part:
    """Records that go together into a file or into the message."""

    def __init__(self) -> None:
        import pyarrow as pa

        self._ipc = pa.ipc
        self._buffer = pa.BufferOutputStream()
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records. All have the same columns."""
        self._writer = self._writer or self._ipc.new_stream(self._buffer, batch.schema)
        self._writer.write_batch(batch)

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self._buffer.tell()

    def data(self) -> bytes:
        """Return the records as a stream of Arrow, b"" without any. Nothing can be added then."""
        if self._writer is None:
            return b""
        self._writer.close()
        return self._buffer.getvalue().to_pybytes()


def batch_of_task() -> tuple[str | None, int | None]:
    """Return the id of the query and that of the batch that a task belongs to, as Spark tells it; None outside of a query."""
    from pyspark import TaskContext

    task = TaskContext.get()
    query, batch = (None, None) if task is None else (task.getLocalProperty(QUERY), task.getLocalProperty(BATCH))
    return query, None if batch is None else int(batch)


def query_of(spools: Sequence[SpooledPartition], batch: int) -> str:
    """Return the id of the query that the spools of a batch belong to. Pure.

    Args:
        spools: those of the batch, at least one.
        batch: the id of the batch, as Spark tells it at the commit.

    Raises:
        KafkaError: tasks were told of another batch, or of no query.
    """
    [*told] = {(spool.query, spool.batch) for spool in spools}
    if len(told) != 1 or told[0][0] is None or told[0][1] != batch:
        raise KafkaError(f"batch {batch} cannot be written exactly once: Spark has told its tasks of {told}, as query and batch")
    return told[0][0]


def remove_spools(place: StorePlace, spools: Iterable[SpooledPartition], until: int | None, frame: str = "") -> None:
    """Remove the files of spools, and those that earlier batches, other tries and killed tasks have left. Blocks; raises nothing.

    The folder of a query is looked through if there are files, and at the first call of a process: what a killed process has left is found
    there. That of the frames is looked through each time, since a killed task of a frame sends no message.

    Args:
        place: where the files are.
        spools: those of a batch, or of a frame.
        until: the last batch whose files nobody needs any more, whichever frame they are of; None outside of a query.
        frame: the id of a frame, none of whose files anybody needs any more; "" for none.
    """
    spools = list(spools)
    names = {name for spool in spools for name in spool.files}
    seen = once(("spools", place), set[str])
    for query in {spool.query for spool in spools if spool.query is not None}:
        if until is not None and (names or query not in seen):
            with suppress(KStreamError):
                listed = place.open().list(query)
                names.update(f"{query}/{name}" for name in listed if _batch_of(name) <= until or (frame and f"-{frame}-" in name))
                seen.add(query)
    if frame and all(spool.query is None for spool in spools):
        with suppress(KStreamError):
            names.update(f"{FRAMES}/{name}" for name in place.open().list(FRAMES) if name.startswith(f"{frame}-"))
    _remove(place, names)


def _batch_of(name: str) -> int:
    """Return the batch that a file's name begins with. For a file of another program a large number, so that it is never removed."""
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else 1 << 63


def _remove(place: StorePlace, names: Iterable[str]) -> None:
    """Remove files, as far as possible."""
    for name in names:
        try:
            place.open().delete(name)
        except KStreamError as e:
            logger.warning("a spool was not removed: %s", e)


def _write_file(part: _Part, place: StorePlace | None, name: str, most_bytes: int) -> str:
    """Write a part to a file of the place, and return its name. Errors as `spooled`, such as that there is no place."""
    if place is None:
        raise KafkaError(
            f"a partition of a batch has more than {most_bytes} bytes, and there is no place for its spool. Set the option "
            "spoolLocation to a directory or URL that driver and executors share. Or divide the batch into more partitions"
        )
    place.write(name, part.data())
    return name


def _bytes_of_file(place: StorePlace | None, name: str) -> bytes:
    """Return the bytes of a file. Errors as `SpooledPartition.read`."""
    assert place is not None
    try:
        return place.open().read(name)
    except MissingFileError:
        reason = f"is {place.url}, and the driver finds nothing there of what a task has written"
        raise SourceOptionError("spoolLocation", reason, "Give a directory or URL that driver and executors share.") from None
