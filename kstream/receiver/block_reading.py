"""Reading a received block back in a worker: from this executor's store if it has it, from another that has, or from the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kstream.errors import BlocksLostError, CorruptRecordError, KStreamError, RpcError, StorageError
from kstream.receiver.block_form import split
from kstream.receiver.executor_process import executor_of_this_worker
from kstream.receiver.packed_records import records_of
from kstream.rpc import RpcClient, RpcCredentials
from kstream.wal import WriteAheadLogRecordHandle
from kstream.worker.process import once


@dataclass(frozen=True, slots=True)
class Replica:
    """Where a block lies: in the store of `executor_id`."""

    executor_id: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """A block, all replicas that the driver knows of, and where it lies in its receiver's log, if that was written.

    `log` reads a record of the log by its handle, in any worker; it is pickled.
    """

    name: str
    num_records: int | None
    replicas: tuple[Replica, ...]
    handle: WriteAheadLogRecordHandle | None = None
    log: Callable[[WriteAheadLogRecordHandle], bytes] | None = None


def read_block(place: BlockPlace, credentials: RpcCredentials) -> Iterator[Any]:
    """Its records. BlocksLostError, which says who was asked, if no store that answers has it, nor the log."""
    asked: list[str] = []
    for replica in _nearest_first(place.replicas):
        try:
            return records_of(_client(replica, credentials).get(place.name))
        except KeyError:
            asked.append(f"executor {replica.executor_id} does not have it")
        except RpcError as e:
            asked.append(f"executor {replica.executor_id}: {e}")
    if place.handle is not None and place.log is not None:
        try:
            return records_of(split(place.log(place.handle), f"the write-ahead log's {place.handle}"))
        except (StorageError, CorruptRecordError) as e:
            asked.append(f"the write-ahead log: {e}")
    raise BlocksLostError(
        f"received block {place.name} ({place.num_records} records) is lost: {'; '.join(asked) or 'no executor that lives has it'}",
        time=None, stream=None, blocks=[[place.name, place.num_records]],
    )  # fmt: skip


def _nearest_first(replicas: Sequence[Replica]) -> list[Replica]:
    try:
        own = executor_of_this_worker().executor_id
    except KStreamError:  # a worker of another shape; all are alike then
        own = None
    return sorted(replicas, key=lambda replica: replica.executor_id != own)


def _client(replica: Replica, credentials: RpcCredentials) -> RpcClient:
    """Kept for the worker's life: a connection costs more than a block."""
    return once((replica.host, replica.port, credentials), lambda: RpcClient(replica.host, replica.port, credentials))
