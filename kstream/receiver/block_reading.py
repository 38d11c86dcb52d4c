"""Reading a received block in a worker: from the store of this executor or of another one, or from the receiver's log."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kstream.errors import BlocksLostError, CorruptRecordError, KStreamError, RpcError, StorageError
from kstream.receiver.block_store import decode_block
from kstream.receiver.executor_process import executor_of_this_worker
from kstream.rpc import RpcClient, RpcCredentials
from kstream.storage import FileStore
from kstream.wal import WriteAheadLog, WriteAheadLogRecordHandle, create_log_for_receiver
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
    """The settings under spark.streaming., which choose and configure the log; it may be a class of the user's."""
    place: OpensStore

    def open(self, stream_id: int) -> WriteAheadLog:
        """Make a new log for one run of a receiver. ConfigurationError, StorageError."""
        return create_log_for_receiver(dict(self.conf), self.place.open(), stream_id)

    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        """Read a record of any receiver's log. Any thread of any worker; the log is opened once a process."""
        return once(self, lambda: self.open(_ANY_STREAM)).read(handle)


@dataclass(frozen=True, slots=True)
class Replica:
    """The store of an executor that has a block."""

    executor_id: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BlockLocations:
    """Where a block can be read. Pickled into tasks. Without replicas and without a handle the block is lost."""

    block_id: str
    num_records: int | None
    replicas: tuple[Replica, ...]
    """All replicas that the driver knows."""
    handle: WriteAheadLogRecordHandle | None = None
    """Where it is in its receiver's log, if that was written."""
    log: ReadRecord | None = None

    @property
    def lost(self) -> bool:
        return not self.replicas and self.handle is None


def read_block(block: BlockLocations, credentials: RpcCredentials) -> Iterator[Any]:
    """The records of a block.

    Raises:
        BlocksLostError: no store that answers has the block, nor has the log. The message says who was asked.
    """
    asked: list[str] = []
    for replica in _nearest_first(block.replicas):
        try:
            return records_of(_client(replica, credentials).get(block.block_id))
        except KeyError:
            asked.append(f"executor {replica.executor_id} does not have it")
        except RpcError as e:
            asked.append(f"executor {replica.executor_id}: {e}")
    if block.handle is not None and block.log is not None:
        try:
            return records_of(decode_block(block.log(block.handle), f"the write-ahead log's {block.handle}"))
        except (StorageError, CorruptRecordError) as e:
            asked.append(f"the write-ahead log: {e}")
    raise BlocksLostError(
        f"received block {block.block_id} ({block.num_records} records) is lost: {'; '.join(asked) or 'no executor that lives has it'}",
        time=None,
        stream=None,
        blocks=[[block.block_id, block.num_records]],
    )


def records_of(chunks: Iterable[bytes]) -> Iterator[Any]:
    """The records of a block."""
    for chunk in chunks:
        file = io.BytesIO(chunk)
        while file.tell() < len(chunk):
            yield from pickle.load(file)


def _nearest_first(replicas: Sequence[Replica]) -> list[Replica]:
    try:
        own = executor_of_this_worker().executor_id
    except KStreamError:  # no worker of Spark's: all replicas are equally near
        own = None
    return sorted(replicas, key=lambda replica: replica.executor_id != own)


def _client(replica: Replica, credentials: RpcCredentials) -> RpcClient:
    """Make the client once a process: a connection costs more than a block."""
    return once((replica.host, replica.port, credentials), lambda: RpcClient(replica.host, replica.port, credentials))
