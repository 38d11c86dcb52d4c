"""Plans: what each input stream gives to one batch (`PlannedInput`), and the stored form of all of them (`BatchPlan`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kstream.batch_time import Time

Json: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list or dict with string keys."""


class PlannedInput(ABC):
    """One stream's part of a batch, in a class of the stream's own. Immutable: many threads read it.

    The driver that has made a plan keeps this object for as long as the batch's metadata. The log keeps its encoded form, which
    `InputDStream.decode` reads after a restart and in a replay.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def num_records(self) -> int:
        """The number of records that listeners hear of; 0 where it is not known before the records are read."""

    @abstractmethod
    def encode(self) -> Mapping[str, Json]:
        """Return the stored form: JSON values, from which `decode` makes an equal plan."""


class JsonPlan(PlannedInput, Mapping[str, Json]):
    """The plan of an input that needs no class of its own: a mapping of JSON values, stored as it is."""

    __slots__ = ("_data", "_num_records")

    def __init__(self, data: Mapping[str, Json], num_records: int = 0) -> None:
        self._data = data
        self._num_records = num_records

    @property
    def num_records(self) -> int:
        return self._num_records

    def encode(self) -> Mapping[str, Json]:
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


@dataclass(frozen=True, slots=True)
class InputOutcome:
    """What one stream's part of a batch turned out to be, when its jobs have succeeded.

    `counts[i]` is the number of records in part i of the plan as the stream counts them, None where it is not known. `lost` are entries
    for the ledger, JSON objects in the stream's own words; `report`: listeners are to hear of them.
    """

    counts: Sequence[int | None] = ()
    lost: Sequence[Mapping[str, Json]] = ()
    report: bool = False


_BEFORE_ALL = Time(0)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A whole batch as the log stores it: per stream id its encoded plan, and who planned it (`epoch`, `nonce`).

    `void` marks a batch time that was given up before any job: its plan could not be written, and nothing may run for it.
    `floor` is the oldest batch that had not succeeded when this one was planned (itself, if all had): nothing older runs again.
    `after` is the newest batch its driver found planned when it became the writer: a plan of an older epoch for a later time was
    made by a fenced driver and never submitted. `names`: those of the streams that have one; a
    stream that is there and has neither a name nor a plan in this batch is in it as None.
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
