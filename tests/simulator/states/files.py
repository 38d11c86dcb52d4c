"""The writer and reader of state files: tasks write one file a partition into the simulated store, and tasks read it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from kstream.batch import KeyHash, StateCheckpoint, StateFigures
from kstream.batch_time import Time
from kstream.checkpoint import names
from kstream.checkpoint.state_format import decode_state, encode_state
from kstream.rdd.stable_hash import partition_of
from kstream.storage import FileStore
from tests.simulator.states.application import Application, Task
from tests.simulator.states.rdds import Partitioner, Records, SimulatedRDD

HASHING = 7
"""The workers' hash of a fixed word: always the same."""


class SimulatedStateFiles:
    """`StateFiles` of one driver, for workers that can open the store.

    `before_write()` is called in each task that writes: it may take time, or raise. `failed()` is called when a state was not written.
    `nonce()` ends the name of a file.
    """

    def __init__(
        self,
        spark: Application,
        store: FileStore,
        epoch: int,
        before_write: Callable[[], None],
        failed: Callable[[], None],
        nonce: Callable[[], str],
    ) -> None:
        self._spark, self._store, self._epoch = spark, store, epoch
        self._before_write, self._failed, self._nonce = before_write, failed, nonce

    def write(self, time: Time, states: Mapping[str, SimulatedRDD]) -> dict[str, StateCheckpoint]:
        """One job writes all states, as in the product."""
        parts = [
            rdd.mapPartitionsWithIndex(partial(self._write, stream, names.state_prefix(time, self._epoch, stream)))
            for stream, rdd in states.items()
        ]
        files: dict[str, list[str]] = {stream: [] for stream in states}
        try:
            written = self._spark.union(parts).collect()
        except Exception:
            self._failed()
            raise
        for stream, name in written:
            files[stream].append(name)
        return {stream: StateCheckpoint(time, tuple(names), HASHING) for stream, names in files.items()}

    def _write(self, stream: str, prefix: str, index: int, records: Iterable[Any]) -> list[tuple[str, str]]:
        self._before_write()
        name = names.state(prefix, index, self._nonce())
        self._store.create(name, encode_state(records, pickle.dumps))
        return [(stream, name)]

    def read(self, checkpoint: StateCheckpoint, placed: KeyHash) -> SimulatedRDD:
        """An RDD that reads the file of a partition when it is computed; MissingFileError in the task if it is gone."""
        files, store = checkpoint.files, self._store
        placement: dict[KeyHash, Partitioner] = {KeyHash.PYSPARK: (len(files), None), KeyHash.STABLE: (len(files), partition_of)}

        def compute(_task: Task, p: int) -> Records:
            return list(decode_state(store.read(files[p]), store.path(files[p]), pickle.loads))

        return SimulatedRDD(self._spark, len(files), compute, (), placement.get(placed))

    def take_figures(self) -> StateFigures:
        return StateFigures()

    def hashing(self) -> int:
        return HASHING
