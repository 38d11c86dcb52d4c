"""Stand-ins for what streams need of Spark: RDDs that are lists, states in the store, and the host of a graph."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

from kstream.batch import Job, KeyHash, StateCheckpoint, StateFigures
from kstream.batch_time import Duration, Time
from kstream.checkpoint import names
from kstream.checkpoint.state_format import decode_state, encode_state
from kstream.conf import Settings
from kstream.direct.read_report_accumulator import ReadReportAccumulator
from kstream.dstream import DStreamGraph
from kstream.dstream.stateful_dstream import StatefulDStream
from kstream.rdd.map_with_state import MapWithState, initial_states
from kstream.rdd.stable_hash import partition_of
from kstream.scheduler.settings import UNREACHABLE_TIMEOUT
from kstream.storage import FileStore

INTERVAL = 1000
"""Milliseconds."""


class FakeRDD:
    """Records in a list, with the few calls that streams make."""

    def __init__(self, records: Sequence[Any], ranges: tuple[int, int] | None = None) -> None:
        self.records = list(records)
        self.range = ranges
        self.is_cached = False
        self.unpersisted = False
        self.cut = False
        self.checkpoint_file: str | None = None
        """Where a checkpoint of Spark's would have been written; `checkpoint` only marks."""
        self.marked = False

    def checkpoint(self) -> None:
        self.marked = True

    def getCheckpointFile(self) -> str | None:
        return self.checkpoint_file

    def persist(self, _level: Any) -> FakeRDD:
        self.is_cached = True
        return self

    def localCheckpoint(self) -> None:
        self.cut = True

    def unpersist(self) -> FakeRDD:
        self.unpersisted = True
        return self

    def map(self, f: Callable[[Any], Any], preservesPartitioning: bool = False) -> FakeRDD:
        return FakeRDD([f(record) for record in self.records])

    def flatMap(self, f: Callable[[Any], Any], preservesPartitioning: bool = False) -> FakeRDD:
        return FakeRDD([made for record in self.records for made in f(record)])

    def collect(self) -> list[Any]:
        return list(self.records)

    def partitionBy(self, _partitions: int) -> FakeRDD:
        return self

    def mapValues(self, f: Callable[[Any], Any]) -> FakeRDD:
        return FakeRDD([(key, f(value)) for key, value in self.records])

    def union(self, other: FakeRDD) -> FakeRDD:
        return FakeRDD([*self.records, *other.records])

    def groupByKey(self, _partitions: int) -> FakeRDD:
        groups: dict[Any, list[Any]] = {}
        for key, value in self.records:
            groups.setdefault(key, []).append(value)
        return FakeRDD(list(groups.items()))

    def reduceByKey(self, f: Callable[[Any, Any], Any], partitions: int) -> FakeRDD:
        return self.groupByKey(partitions).mapValues(lambda values: reduce(f, values))

    def mapPartitions(self, f: Callable[[Any], Any], preservesPartitioning: bool = False) -> FakeRDD:
        return FakeRDD(list(f(iter(self.records))))


class StoredRDD(FakeRDD):
    """Records that are read from the store when they are asked for."""

    def __init__(self, store: FileStore, files: Sequence[str]) -> None:
        self._store, self._files = store, files
        self.is_cached = self.unpersisted = self.cut = False

    @property
    def records(self) -> list[Any]:  # pyright: ignore
        return [r for f in self._files for r in decode_state(self._store.read(f), self._store.path(f), pickle.loads)]


class FakeStateFiles:
    """Fake RDDs of state into two files each, and back."""

    def __init__(self, store: FileStore, epoch: int) -> None:
        self._store, self._epoch = store, epoch
        self._figures = StateFigures()

    def write(self, time: Time, states: Mapping[str, FakeRDD]) -> dict[str, StateCheckpoint]:
        return {stream: StateCheckpoint(time, self._files(time, stream, rdd.records), 7) for stream, rdd in states.items()}

    def _files(self, time: Time, stream: str, records: list[Any]) -> tuple[str, ...]:
        prefix, half = names.state_prefix(time, self._epoch, stream), len(records) // 2
        files: list[str] = []
        for index, part in enumerate((records[:half], records[half:])):
            files.append(names.state(prefix, index, uuid.uuid4().hex[:16]))
            data = encode_state(part, pickle.dumps)
            self._store.create(files[-1], data)
            self._figures = self._figures.plus(StateFigures(written_bytes=len(data)))
        return tuple(files)

    def read(self, checkpoint: StateCheckpoint, placed: KeyHash) -> FakeRDD:
        return StoredRDD(self._store, checkpoint.files)

    def take_figures(self) -> StateFigures:
        found, self._figures = self._figures, StateFigures()
        return found

    def hashing(self) -> int:
        return 7


class FakeStates(FakeRDD):
    """States of mapWithState: one record of bytes a partition, and what the function returned."""

    mapped: FakeRDD


class FakeStateRDDs:
    """`StateRDDs` without Spark."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.computed = 0

    def remove_checkpoint(self, path: str) -> None:
        self.removed.append(path)

    def compute(self, state: Any) -> None:
        self.computed += 1
        list(state.records)

    def initial(self, pairs: list[tuple[Any, Any]], partitions: int, time_ms: int) -> FakeStates:
        return FakeStates([initial_states(part, time_ms) for part in _parted(pairs, partitions)])

    def updated(self, data: FakeRDD | None, states: FakeRDD, partitions: int, update: MapWithState) -> FakeStates:
        parts = _parted(() if data is None else data.records, partitions)
        done = [update.update(before, records) for before, records in zip(states.records, parts, strict=True)]
        after = FakeStates([states for states, _ in done])
        after.mapped = FakeRDD([result for _, mapped in done for result in mapped])
        return after


def _parted(pairs: Any, partitions: int) -> list[list[tuple[Any, Any]]]:
    return [[pair for pair in pairs if partition_of(pair[0]) % partitions == index] for index in range(partitions)]


class FakeStateDStream(StatefulDStream):
    """At T: every record of every batch up to T, in order."""

    def compute(self, time: Time) -> Any:
        before, new = self.previous(time), self.dependencies[0].getOrCompute(time)
        return FakeRDD([*(before.records if before else []), *(new.records if new else [])])


class FakeAccumulator:
    """Spark's accumulator, without Spark."""

    def __init__(self, value: Any, merging: Any) -> None:
        self.value, self._merging = value, merging

    def add(self, term: Any) -> None:
        self.value = self._merging.addInPlace(self.value, term)


class FakeSparkContext:
    """Makes fake RDDs."""

    defaultParallelism = 2
    checkpoint_dir: str | None = None

    def getCheckpointDir(self) -> str | None:
        return self.checkpoint_dir

    def union(self, rdds: Sequence[FakeRDD]) -> FakeRDD:
        return FakeRDD([record for rdd in rdds for record in rdd.records])

    def emptyRDD(self) -> FakeRDD:
        return FakeRDD([])

    def parallelize(self, records: Sequence[Any], numSlices: int | None = None) -> FakeRDD:
        return FakeRDD(records)

    def accumulator(self, value: Any, merging: Any) -> FakeAccumulator:
        return FakeAccumulator(value, merging)


def fake_reports() -> ReadReportAccumulator:
    """The read reports of a stream, as its driver has them."""
    sc: Any = FakeSparkContext()
    return ReadReportAccumulator(sc)


class FakeConf(dict[str, str]):
    """A SparkConf's reading side is a dict's."""


class FakeHost:
    """What streams hold of a context. Without a history, unless asked for: then old plans are gone at once, one by one.

    An outage is an error at once, as in Spark, unless asked for.
    """

    def __init__(self, conf: Mapping[str, str], interval_ms: int = INTERVAL) -> None:
        self.settings = Settings(FakeConf({"spark.streaming.kstream.history": "0", UNREACHABLE_TIMEOUT.key: "0", **conf}))
        self.graph = DStreamGraph(Duration(interval_ms))
        self.sparkContext: Any = FakeSparkContext()
        self.state_rdds = FakeStateRDDs()

    @property
    def context(self) -> FakeHost:
        return self

    @property
    def recorder(self) -> Any:
        return self.graph.recorder

    _recorder = recorder

    def check_can_add(self, what: str) -> None:
        """Anything may be added."""


class FakeEnvironment:
    """No Spark around the jobs."""

    def __init__(self) -> None:
        self.cancelled = 0

    @contextmanager
    def for_job(self, job: Job) -> Iterator[None]:
        yield

    @contextmanager
    def for_generation(self, time: Time) -> Iterator[None]:
        yield

    def cancel_all(self) -> None:
        self.cancelled += 1
