"""SparkBlockReader: received blocks as RDDs, and their removal from the stores of executors."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kstream.errors import BlocksLostError
from kstream.receiver.block_reading import BlockPlace, Replica, read_block
from kstream.receiver.block_store_process import END, remove_blocks
from kstream.rpc import RpcClient, RpcCredentials
from kstream.spark.executor_cores import block_locations
from kstream.spark.executors import free_executors, known_executors
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
        """Make an RDD with a partition for each block. A task prefers an executor that has its block and a core without a receiver.

        A task that runs elsewhere reads its block over the network, or from the write-ahead log. No call to the JVM is made for the
        locations: the tracker looks at the executors every few seconds, and the list that was found last is used.
        """
        locations = self._locations(places)
        read = partial(_read, tuple(places), self._credentials, self._lost if tolerant else None)
        return WorkerRDD(self._sc, len(places), read, locations if any(locations) else None)

    def _locations(self, places: Sequence[BlockPlace]) -> list[list[str]]:
        there = known_executors(self._sc)
        holders = [[replica.executor_id for replica in place.replicas] for place in places]
        found = block_locations(holders, there, free_executors(self._sc, there))
        return [[str(location) for location in locations] for locations in found]

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
