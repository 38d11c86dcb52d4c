"""SparkBlockReader: received blocks as RDDs, and their removal from the stores of executors."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kstream.errors import BlocksLostError
from kstream.receiver.block_reading import BlockPlace, Replica, read_block
from kstream.receiver.block_store_process import END, remove_blocks
from kstream.receiver.executor_process import DRIVER
from kstream.rpc import RpcClient, RpcCredentials
from kstream.spark.worker_rdd import WorkerRDD

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

_TIMEOUT_S = 10.0


class SparkBlockReader:
    """Of one start of a context; see `scheduler.received_input.BlockReader`."""

    def __init__(self, sc: SparkContext, credentials: RpcCredentials) -> None:
        self._sc = sc
        self._credentials = credentials
        self._lock = threading.Lock()
        self._clients: dict[Replica, RpcClient] = {}
        self._lost: Any = sc.accumulator({}, _Merging())  # pyright: ignore[reportArgumentType] # Spark asks for no base class

    def rdd(self, places: Sequence[BlockPlace], tolerant: bool) -> RDD[Any]:
        """Each task prefers the executors that have its block; what this or another has not is read over the network, or from the log."""
        locations = [
            [f"executor_{replica.host}_{replica.executor_id}" for replica in place.replicas if replica.executor_id != DRIVER]
            for place in places
        ]
        read = partial(_read, tuple(places), self._credentials, self._lost if tolerant else None)
        return WorkerRDD(self._sc, len(places), read, locations if any(locations) else None)

    def lost(self) -> Mapping[str, str]:
        known: dict[str, str] = self._lost.value
        return dict(known)

    def forget(self, names: Iterable[str]) -> None:
        known: dict[str, str] = self._lost.value
        for name in names:
            known.pop(name, None)

    def remove(self, store: Replica, names: Sequence[str]) -> None:
        remove_blocks(self._client(store), names)

    def end(self, store: Replica) -> None:
        self._client(store).ask(END)

    def _client(self, store: Replica) -> RpcClient:
        with self._lock:
            return self._clients.setdefault(store, RpcClient(store.host, store.port, self._credentials, _TIMEOUT_S))

    def close(self) -> None:
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()


class _Merging:
    """How Spark adds up what tasks did not find. Workers add to an empty one; the driver's is changed by Spark's accumulator thread."""

    def zero(self, value: dict[str, str]) -> dict[str, str]:
        return {}

    def addInPlace(self, value1: dict[str, str], value2: dict[str, str]) -> dict[str, str]:
        value1.update(value2)
        return value1


# -- in the workers


def _read(places: Sequence[BlockPlace], credentials: RpcCredentials, lost: Any, index: int) -> Iterator[Any]:
    try:
        return read_block(places[index], credentials)
    except BlocksLostError as e:
        if lost is None:
            raise
        lost.add({places[index].name: str(e)})
        return iter(())
