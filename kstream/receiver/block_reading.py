"""Reading a received block in a worker: from the store of this executor or of another one, or from the receiver's log."""

from __future__ import annotations

import io
import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kstream.errors import (
    BlocksLostError,
    CorruptRecordError,
    KStreamError,
    RpcError,
    RpcRefusedError,
    RpcUnreachableError,
    StorageError,
    add_note,
)
from kstream.receiver.block_store import decode_block
from kstream.receiver.executor_process import executor_of_this_worker
from kstream.rpc import RpcClient, RpcCredentials
from kstream.storage import FileStore
from kstream.wal import WriteAheadLog, WriteAheadLogRecordHandle, create_log_for_receiver
from kstream.worker.current_record import CurrentRecord, between_chunks, hand_out, reading
from kstream.worker.process import once

_ANY_STREAM = -1

ReadRecord = Callable[[WriteAheadLogRecordHandle], bytes]
"""Reads a record of a receiver's log by its handle, in any worker. Picklable."""


class OpensStore(Protocol):
    """A way for workers to open the checkpoint's store. Picklable, hashable, without secrets."""

    def open(self) -> FileStore: ...


@dataclass(frozen=True, slots=True)
class ReceiverLogs:
    """The write-ahead logs of receivers. Pickled into tasks, and opened in workers."""

    conf: tuple[tuple[str, str], ...]
    """The settings under spark.streaming., which choose and configure the log. Its class may be the user's."""
    place: OpensStore
    """Opens the checkpoint's store."""

    def open(self, stream_id: int) -> WriteAheadLog:
        """Make a new log for one receiver run.

        Raises:
            ConfigurationError: a setting of the log has a value that cannot work.
            StorageError: the store could not be opened.
        """
        return create_log_for_receiver(dict(self.conf), self.place.open(), stream_id)

    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        """Read a record of any receiver's log. Any thread of any worker may call this. It opens the log once a process, and may block.

        Raises:
            StorageError: the record could not be read; or any other error of `WriteAheadLog.read`.
        """
        return once(self, lambda: self.open(_ANY_STREAM)).read(handle)


@dataclass(frozen=True, slots=True)
class Replica:
    """The address of an executor's block store, as a place that may have a block."""

    executor_id: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BlockLocations:
    """The places where a block can be read. Pickled into tasks. Without replicas and without a handle the block is lost."""

    block_id: str
    num_records: int | None
    replicas: tuple[Replica, ...]
    """All replicas that the driver knows."""
    handle: WriteAheadLogRecordHandle | None = None
    """The handle of the block in its receiver's log, if the log has the block."""
    log: ReadRecord | None = None
    """Reads the block by its handle."""

    @property
    def lost(self) -> bool:
        """Whether no place is known where the block can be read."""
        return not self.replicas and self.handle is None


def read_block(block: BlockLocations, credentials: RpcCredentials) -> Iterator[Any]:
    """Fetch a block, and return an iterator over its records. Blocks until the block is fetched.

    The stores are asked first, the store of this executor before the others, and then the receiver's log.

    Raises:
        BlocksLostError: neither a store nor the log has the block. The message has the answer of each.
        StorageError: no store gave the block, and the store of the log is away: a later try may read it.
        RpcError: none gave the block, and a block store that lives could not read it: a later try may.
        FormatVersionError: another version of kstream has written the block to the log.
    """
    asked: list[str] = []
    unsure: RpcError | None = None
    for replica in _nearest_first(block.replicas):
        try:
            return records_of(_client(replica, credentials).get(block.block_id), block.block_id)
        except KeyError:
            asked.append(f"executor {replica.executor_id} does not have it")
        except RpcError as e:
            asked.append(f"executor {replica.executor_id}: {e}")
            if not _is_gone(e):
                unsure = e
    if block.handle is not None and block.log is not None:
        try:
            chunks = decode_block(block.log(block.handle), f"the write-ahead log's {block.handle}")
            return records_of(chunks, block.block_id)
        except (StorageError, CorruptRecordError) as e:
            if e.outage:
                add_note(e, f"received block {block.block_id} is in the write-ahead log, whose store is away")
                raise
            asked.append(f"the write-ahead log: {e}")
    if unsure is not None:
        add_note(unsure, f"received block {block.block_id} cannot be read now: {'; '.join(asked)}")
        raise unsure
    raise BlocksLostError(
        f"received block {block.block_id} ({block.num_records} records) is lost: {'; '.join(asked) or 'no live executor has it'}",
        time=None,
        stream=None,
        blocks=[[block.block_id, block.num_records]],
    )


def _is_gone(error: RpcError) -> bool:
    """Return whether a block store seems to be dead, or another application has its port. One that answers with a failure lives."""
    return isinstance(error, RpcRefusedError | RpcUnreachableError)


def records_of(chunks: Iterable[bytes], block_id: str) -> Iterator[Any]:
    """Yield the records of a block. `current_record` knows which one was yielded last, by the id of the block.

    Args:
        chunks: each is one or more pickled lists of records.
        block_id: the id of the block.
    """
    return itertools.chain.from_iterable(_lists_of(chunks, block_id))


def _lists_of(chunks: Iterable[bytes], block_id: str) -> Iterator[Iterator[Any]]:
    """Yield the records of each pickled list of a block."""
    before = 0
    with reading():
        for chunk in chunks:
            file = io.BytesIO(chunk)
            while file.tell() < len(chunk):
                records = pickle.load(file)
                yield hand_out(records, partial(_record_at, block_id, before))
                between_chunks()
                before += len(records)


def _record_at(block_id: str, before: int, position: int) -> CurrentRecord:
    """Return the record at a position of a list, which has `before` records before it in its block."""
    return CurrentRecord(place=f"received block {block_id}, position {before + position}")


def _nearest_first(replicas: Sequence[Replica]) -> list[Replica]:
    """Return the replicas, the replica on this worker's executor first."""
    try:
        own = executor_of_this_worker().executor_id
    except KStreamError:  # this process is no worker of Spark: all replicas are equally near
        own = None
    return sorted(replicas, key=lambda replica: replica.executor_id != own)


def _client(replica: Replica, credentials: RpcCredentials) -> RpcClient:
    """Return the client of a store, made once a process because a connection costs more than a block."""
    return once((replica.host, replica.port, credentials), lambda: RpcClient(replica.host, replica.port, credentials))
