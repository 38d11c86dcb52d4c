"""BatchPlan and PlannedInput: what the inputs give to a batch. BatchOutcome and its parts: what a batch that has succeeded leaves.

The log stores all of these: the plan before the batch runs, the rest with its completion.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from kstream.batch.batch_info import OutputOperationInfo
from kstream.batch.figures import InputFigures, StateFigures
from kstream.batch_time import Duration, Time
from kstream.offsets.offset_range import LostRange, OffsetRange, Partition, SkippedRecord

Json: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list or dict with string keys."""


class PlannedInput(ABC):
    """The plan of one input for one batch. Each kind of input has its own subclass. Immutable, because many threads read it.

    The driver that made a plan keeps the object as long as the batch's metadata. The log keeps the encoded form. `InputDStream.decode`
    reads that form after a restart and in a replay.
    """

    __slots__ = ()

    skipped: Collection[SkippedRecord] = ()
    """The records that the batch leaves out. They are not part of the stored form. Only for inputs that can leave records out."""

    @property
    @abstractmethod
    def num_records(self) -> int:
        """The number of records for listeners; 0 if it is not known before the records are read."""

    @property
    def is_empty(self) -> bool:
        """Whether the batch certainly gets nothing from this input, neither records nor losses. False if that is not known.

        `spark.streaming.kstream.skipEmptyBatches` skips the functions of a batch whose inputs are all empty.
        """
        return False

    @abstractmethod
    def encode(self) -> Mapping[str, Json]:
        """Return the stored form: JSON values. `InputDStream.decode` makes an equal plan of them.

        `"kind"` is the kind of the input, such as `"kafka"` (`kstream.batch.plan`). If it is missing, the log stores the kind
        `"json"`, and `decode` does not get it.
        """


class JsonPlan(PlannedInput, Mapping[str, Json]):
    """The plan of an input without a plan class of its own: a mapping of JSON values, stored unchanged.

    Args:
        data: the mapping.
        num_records: the number of records for listeners.
        is_empty: whether the batch certainly gets nothing from this input. A decoded plan does not know it.
    """

    __slots__ = ("_data", "_is_empty", "_num_records")

    def __init__(self, data: Mapping[str, Json], num_records: int = 0, is_empty: bool = False) -> None:
        self._data = data
        self._num_records = num_records
        self._is_empty = is_empty

    @property
    def num_records(self) -> int:
        """The number given at construction; 0 by default."""
        return self._num_records

    @property
    def is_empty(self) -> bool:
        """The value given at construction; False by default."""
        return self._is_empty

    def encode(self) -> Mapping[str, Json]:
        """Return the mapping itself."""
        return self._data

    def __getitem__(self, key: str) -> Json:
        return self._data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return f"JsonPlan({self._data!r}, {self._num_records})"


FAIL, SKIP, REPORT = "fail", "skip", "report"
"""The policies for lost data of an input. fail: the batch fails. skip: the batch runs without the data, and the loss goes to the ledger.
report: as skip, and listeners get `onDataLost`."""
DATA_LOSS_POLICIES = (FAIL, SKIP, REPORT)
"""The values of a setting for lost data."""


@dataclass(frozen=True, slots=True)
class InputOutcome:
    """The report of one input about a batch whose jobs have all succeeded.

    Attributes:
        counts: the number of records in each part of the plan, as the input counts its parts; None if a number is not known.
        lost: the data losses, as entries of the ledger: JSON objects of the input's own form.
        report: whether listeners get the losses.
        skipped: the records that the batch has left out.
        errors: the records that the errors policy has left out, by the kind of their error: [operator, exception, number of records].
        num_bytes: the bytes of all records, estimated; None if they are not known.
        oldest_ms: the oldest timestamp of its records, in milliseconds since the Unix epoch; None if it is not known.
    """

    counts: Sequence[int | None] = ()
    lost: Sequence[Mapping[str, Json]] = ()
    report: bool = False
    skipped: Sequence[SkippedRecord] = ()
    errors: Sequence[tuple[str, str, int]] = ()
    num_bytes: int | None = None
    oldest_ms: int | None = None

    @property
    def num_record_errors(self) -> int:
        """The number of records that the errors policy has left out."""
        return sum(records for _, _, records in self.errors)

    def figures(self, end_ms: int | None) -> InputFigures:
        """Return all figures of the input in this batch, whose last job has ended at `end_ms`."""
        latency = None if self.oldest_ms is None or end_ms is None else max(0, end_ms - self.oldest_ms)
        return InputFigures(self.num_record_errors, len(self.skipped), len(self.lost), self.num_bytes, latency)


_BEFORE_ALL = Time(0)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The plan of a whole batch, as the log stores it.

    Attributes:
        time: the batch time.
        epoch: the epoch of the driver that made the plan.
        nonce: random text that tells this plan from any other.
        inputs: the encoded plan of each input, by stream id.
        num_records: the record count of each input, by stream id.
        floor: the low watermark: the oldest unfinished batch when this plan was made, or this batch itself. No older batch runs again.
        after: the newest planned batch that the driver found when it became the writer. A plan of an older epoch for a later time is a
            stray plan: a fenced driver made it and never submitted it.
        void: whether this is a tombstone. The plan of this batch time could not be written, and no job runs for it.
        names: the names of the streams that have one, by stream id. A stream with neither a name nor a plan in this batch is None here.
        outputs: the names of the outputs for which the checkpoint stores data (see `Output`).
        parallelism: Spark's default parallelism in the driver that made the plan, if an output needs each try of a batch to divide its
            records in the same way; else None.
    """

    time: Time
    epoch: int
    nonce: str
    inputs: Mapping[int, Mapping[str, Json]]
    num_records: Mapping[int, int]
    floor: Time
    after: Time = _BEFORE_ALL
    void: bool = False
    names: Mapping[int, str | None] = field(default_factory=dict[int, str | None])
    outputs: Sequence[str] = ()
    parallelism: int | None = None

    @property
    def streams(self) -> Mapping[int, str | None]:
        """The streams of the graph that made the plan: stream id → name, None without a name."""
        return {number: self.names.get(number) for number in sorted({*self.inputs, *self.names})}


class KeyHash(Enum):
    """The function that gives the partition of a key in a state."""

    NONE = "none"
    """No function: a record may be in any partition."""
    PYSPARK = "pyspark"
    """pyspark's `portable_hash`. For text its value depends on the Python version and on PYTHONHASHSEED."""
    STABLE = "stable"
    """`kstream.rdd.stable_hash`: its values are the same in every process."""


@dataclass(frozen=True, slots=True)
class BatchDelays:
    """How late a batch was, in milliseconds.

    Attributes:
        scheduling_ms: from its submission to the start of its first job.
        processing_ms: from that start to the end of its last job.
        tries: how often its jobs were submitted. After the first try the delays are no measure of the job's speed (see BatchInfo).
    """

    scheduling_ms: int
    processing_ms: int
    tries: int = 1

    @property
    def total_ms(self) -> int:
        """From its submission to the end of its last job."""
        return self.scheduling_ms + self.processing_ms


@dataclass(frozen=True, slots=True)
class OutcomeFigures:
    """What was measured of a batch, besides its inputs.

    Attributes:
        state: of all its states.
        outputs: its output operations that have figures.
    """

    state: StateFigures = field(default_factory=StateFigures)
    outputs: Sequence[OutputOperationInfo] = ()


@dataclass(frozen=True, slots=True)
class StateCheckpoint:
    """The stored state of one stream after one batch.

    Attributes:
        time: the batch.
        files: the file of each partition, in order; empty if there was no state yet.
        hashing: the workers' `portable_hash` of a fixed word. If another Python or PYTHONHASHSEED gives another value, keys belong into
            other partitions. None if the state is empty.
        window: the duration of the window whose totals the state has. None if it is empty or has no such totals, and in records of an
            older kstream.
    """

    time: Time
    files: Sequence[str]
    hashing: int | None = None
    window: Duration | None = None


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What is stored of a batch whose jobs have all succeeded.

    Attributes:
        at_ms: when its last job ended, in milliseconds since the Unix epoch.
        inputs: the report of each input about the batch, by stream id.
        states: the checkpoints of state that the completion names, by the id of the state stream.
        delays: of the batch; None if it had no jobs.
        outputs: what outputs store with the completion, by the name of the output.
        figures: what was measured of its states and output operations.
    """

    at_ms: int
    inputs: Mapping[int, InputOutcome] = field(default_factory=dict[int, InputOutcome])
    states: Mapping[str, StateCheckpoint] = field(default_factory=dict[str, StateCheckpoint])
    delays: BatchDelays | None = None
    outputs: Mapping[str, Json] = field(default_factory=dict[str, Json])
    figures: OutcomeFigures = field(default_factory=OutcomeFigures)


class RangePlan(PlannedInput):
    """The plan of a direct stream for one batch. Immutable: any thread. The next plan begins where the ranges of this one end.

    A subclass is a frozen dataclass with these attributes, and with `skipped`.
    """

    ranges: Sequence[OffsetRange]
    """One range for each partition of the stream, empty ranges included, sorted by topic and number."""
    lost: Sequence[LostRange]
    """The losses that were found while planning."""

    @property
    def num_records(self) -> int:
        """The number of offsets of all ranges. It is also the number of records, unless the offsets have gaps, as after compaction."""
        return sum(r.count() for r in self.ranges)

    @property
    def is_empty(self) -> bool:
        """Whether all ranges are empty and nothing was lost."""
        return not (self.num_records or self.lost)

    @property
    def until_offsets(self) -> dict[Partition, int]:
        """The `untilOffset` of each partition: its next offset after this plan."""
        return {(r.topic, r.partition): r.untilOffset for r in self.ranges}


# -- the kind of input that has stored a plan

LOG, FILES, BLOCKS, JSON = "log", "files", "blocks", "json"
"""The direct stream of a Log, a file stream, a receiver stream, and an input whose plan is JSON values that only the input itself knows.
Any other kind is an input of a connector."""
_FIELD = "kind"


def kind_of(data: Mapping[str, Json]) -> str:
    """Return the kind of input that has stored a plan, also that of a plan which does not say it: until 2026-11 none did.

    Args:
        data: the stored plan of one input.
    """
    said: object = data.get(_FIELD)
    if isinstance(said, str):
        return said
    if "log" in data:
        return LOG
    if "ranges" in data:
        return "kafka"
    return FILES if "files" in data else BLOCKS if "blocks" in data else JSON


def with_kind(encoded: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return what the log stores of an encoded plan: the plan itself, with the kind JSON if it does not say its kind."""
    return encoded if _FIELD in encoded else {_FIELD: JSON, **encoded}


def without_kind(stored: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return what `encode` gave: the inverse of `with_kind`. A plan of an older kstream, without a kind, is returned as it is."""
    return {key: value for key, value in stored.items() if key != _FIELD} if stored.get(_FIELD) == JSON else stored
