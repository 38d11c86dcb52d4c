"""StateFiles: writes states from RDDs to files, and makes RDDs with the same partitions from the files.

The states of all streams of a batch are written together. If the workers can open the store, they write and read the files themselves. If
they cannot (memory://, HDFS), all bytes pass through the driver: one partition at a time when writing, all files at once when reading.
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import Accumulator, SparkContext

from kstream.batch import KeyHash, StateCheckpoint, StateFigures
from kstream.batch_time import Time
from kstream.checkpoint import names
from kstream.checkpoint.state_format import decode_state, encode_state
from kstream.errors import StorageError
from kstream.rdd.stable_hash import partition_of
from kstream.storage import FileStore, LocalFileStore
from kstream.storage.open import StorePlace

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.core.rdd import portable_hash
else:
    from pyspark.rdd import portable_hash

_WORD = "kstream"
_BASES = "_kstream_state_bases"
_FUNCTIONS = {KeyHash.PYSPARK: portable_hash, KeyHash.STABLE: partition_of}
"""The function objects by which the streams partition their keys. PySpark compares partitioners by the identity of these objects."""
_lock = threading.Lock()


class StateFiles:
    """Writes and reads the state files of one driver, on the driver.

    Args:
        sc: the SparkContext.
        store: the checkpoint's store.
        place: how workers open the store; None if only the driver can.
        epoch: the driver's epoch, which is part of the names of the files.
    """

    def __init__(self, sc: SparkContext, store: FileStore, place: StorePlace | None, epoch: int) -> None:
        self._sc = sc
        self._store = store
        self._place = place
        self._epoch = epoch
        self._lock = threading.Lock()
        self._figures = StateFigures()
        """What was measured since the last call of `take_figures`, without what workers have read."""
        self._read: Accumulator[int] | None = None
        """The bytes that workers have read, in tasks that have succeeded; None before they read."""
        self._told = 0
        """Those of them that `take_figures` has returned."""

    def take_figures(self) -> StateFigures:
        """Return what was measured since the last call. Any thread."""
        with self._lock:
            found, self._figures = self._figures, StateFigures()
            read = 0 if self._read is None else self._read.value  # jobs that run add to it meanwhile
            since, self._told = read - self._told, read
            return found.plus(StateFigures(read_bytes=since)) if since else found

    def write(self, time: Time, states: Mapping[str, RDD[Any]]) -> dict[str, StateCheckpoint]:
        """Write the states of a batch, one file a partition. Blocks until all files are written.

        If the workers can open the store, one Spark job writes all files. A task may run twice and leave a file that nobody reads: only
        the files that the job returns are the state.

        Args:
            time: the batch.
            states: the RDD of the state of each stream, by its `state_id`.

        Returns:
            The files of each stream's state, by `state_id`.

        Raises:
            StorageError: the workers have written to their own local disks, where the driver does not find the files. Errors of the job
                and of the store are raised, too. After an error, files that nobody reads may remain.
        """
        place = self._place
        parts: list[RDD[Any]] = []
        for stream, rdd in states.items():
            prefix = names.state_prefix(time, self._epoch, stream)
            parts.append(rdd.mapPartitionsWithIndex(partial(_encoded if place is None else _written(place), stream, prefix)))
        job = parts[0] if len(parts) == 1 else self._sc.union(parts)
        files_of: dict[str, dict[int, tuple[str, int]]] = {stream: {} for stream in states}
        if place is None:
            for stream, index, name, hashing, data in job.toLocalIterator():
                self._store.create(name, data)
                files_of[stream][index] = (name, hashing)
                self._note(StateFigures(written_bytes=len(data)))
        else:
            for stream, index, name, hashing, size in job.collect():
                files_of[stream][index] = (name, hashing)
                self._note(StateFigures(written_bytes=size))
        found = {stream: _checkpoint(time, files) for stream, files in files_of.items()}
        self._check_shared(file for state in found.values() for file in state.files)
        return found

    def _note(self, measured: StateFigures) -> None:
        """Add what was measured of a file to the figures that `take_figures` returns next."""
        with self._lock:
            self._figures = self._figures.plus(measured)

    def _check_shared(self, files: Iterable[str]) -> None:
        """Raise StorageError if the driver does not find a file that a worker has written to a local path.

        Such a file is on the worker's own disk, and would be lost with that machine.
        """
        if not isinstance(self._store, LocalFileStore) or str(self._sc.master).startswith("local"):
            return
        for file in files:
            if not self._store.exists(file):
                raise StorageError(
                    f"{self._store.path(file)} was written by a worker and is not there for the driver: the checkpoint directory must be "
                    "shared by all machines (or be on s3://, gs://, az:// or hdfs://)",
                    path=self._store.path(file),
                )

    def read(self, checkpoint: StateCheckpoint, placed: KeyHash) -> RDD[Any]:
        """Make an RDD of a stored state, one partition a file.

        If the workers can open the store, each file is read when its partition is computed. Spark then knows the partitioner, so an
        operator by key need not shuffle. If only the driver can, this call reads all files (and blocks), and Spark knows no partitioner.

        Args:
            checkpoint: the files.
            placed: the hash by which the keys were partitioned when the files were written.

        Raises:
            MissingFileError: the driver reads, and a file is missing. If workers read, this error fails the task. CorruptRecordError
                always fails the task. Both name the file.
        """
        files = tuple(checkpoint.files)
        if self._place is not None:
            read = partial(_read, self._place, files, self._bytes_read())
            return _base(self._sc, len(files), placed).mapPartitionsWithIndex(read, preservesPartitioning=True)
        return self._sc.union([self._read_here(file) for file in files]).flatMap(_decoded)

    def _read_here(self, file: str) -> RDD[tuple[str, bytes]]:
        """Return an RDD with the path and the bytes of a file. Spark has the bytes then, and the driver keeps none."""
        data = self._store.read(file)
        self._note(StateFigures(read_bytes=len(data)))
        return self._sc.parallelize([(self._store.path(file), data)], 1)

    def _bytes_read(self) -> Accumulator[int]:
        """Return the counter of the bytes that workers read. The first call makes it."""
        with self._lock:
            if self._read is None:
                self._read = self._sc.accumulator(0)
            return self._read

    def hashing(self) -> int:
        """Return the workers' `portable_hash` of a fixed word. Blocks: runs a Spark job of one task.

        If it equals the hash in a state's StateCheckpoint, the workers hash keys as the workers that wrote the state.
        """
        return self._sc.parallelize([_WORD], 1).map(_hash).first()


def _checkpoint(time: Time, files: Mapping[int, tuple[str, int]]) -> StateCheckpoint:
    """Return the StateCheckpoint of files that were written: index of the partition → (name, worker's hash of `_WORD`)."""
    in_order = [files[index] for index in range(len(files))]
    return StateCheckpoint(time, tuple(name for name, _ in in_order), in_order[0][1] if in_order else None)


def _base(sc: SparkContext, partitions: int, placed: KeyHash) -> RDD[Any]:
    """Return an RDD of empty partitions that Spark, also in the JVM, takes as partitioned by the hash. RDDs made of it need no shuffle.

    The RDD is kept for the SparkContext, number of partitions and hash. Making it costs one shuffle without data. Any thread.
    """
    with _lock:
        bases: dict[Any, RDD[Any]] = sc.__dict__.setdefault(_BASES, {})
        if (partitions, placed) not in bases:
            function = _FUNCTIONS.get(placed)
            empty: RDD[Any] = sc.parallelize([], 1 if function else partitions)
            bases[partitions, placed] = empty.map(_pair).partitionBy(partitions, function) if function else empty
        return bases[partitions, placed]


# -- in the workers


def _pair(record: Any) -> Any:
    return record, record


def _hash(word: str) -> int:
    return portable_hash(word)


def _name_of(prefix: str, index: int) -> str:
    return names.state(prefix, index, uuid.uuid4().hex[:16])


# In `_encoded` and `_written` the fourth element is the worker's hash of `_WORD`; see `StateFiles.hashing`.
def _encoded(stream: str, prefix: str, index: int, elements: Iterable[Any]) -> Iterator[tuple[str, int, str, int, bytes]]:
    """Yield stream, partition, name of a file, hash, and the bytes of the partition's state, which the driver then writes."""
    yield stream, index, _name_of(prefix, index), _hash(_WORD), encode_state(elements, _dumps)


def _written(place: StorePlace) -> Callable[[str, str, int, Iterable[Any]], Iterator[tuple[str, int, str, int, int]]]:
    """Return a function for `mapPartitionsWithIndex` that writes a partition to a file and yields the file's name and its bytes."""

    def write(stream: str, prefix: str, index: int, elements: Iterable[Any]) -> Iterator[tuple[str, int, str, int, int]]:
        name, data = _name_of(prefix, index), encode_state(elements, _dumps)
        place.write(name, data)
        yield stream, index, name, _hash(_WORD), len(data)

    return write


def _read(place: StorePlace, files: tuple[str, ...], count: Accumulator[int], index: int, nothing: Iterable[Any]) -> Iterator[Any]:
    """Return the elements of a partition's state from its file, and add its bytes to `count`. `nothing` is the partition of `_base`."""
    for _ in nothing:  # to its end: Spark discards a worker with unread input
        pass
    store = place.open()
    data = store.read(files[index])
    count.add(len(data))
    return decode_state(data, store.path(files[index]), pickle.loads)


def _decoded(stored: tuple[str, bytes]) -> Iterator[Any]:
    return decode_state(stored[1], stored[0], pickle.loads)


def _dumps(elements: list[Any]) -> bytes:
    """Pickle elements. Where pickle fails (classes of `__main__`, functions), use cloudpickle, as pyspark does."""
    try:
        return pickle.dumps(elements, 5)
    except Exception:
        from pyspark import cloudpickle

        return cloudpickle.dumps(elements, 5)
