"""BatchPlan: what each input stream gives to one batch, as plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kstream.batch_time import Time

Json: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list or dict with string keys."""


@dataclass(frozen=True, slots=True)
class InputPlan:
    """One stream's part of a batch, both stored: `data` is the stream's own, `num_records` is told to listeners."""

    data: Mapping[str, Json]
    num_records: int = 0


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
    """A whole batch: per stream id its stored data, and who planned it (`epoch`, `nonce`).

    `void` marks a batch time that was given up before any job: its plan could not be written, and nothing may run for it.
    `floor` is the oldest batch that had not succeeded when this one was planned (itself, if all had): nothing older runs again.
    `after` is the newest batch its driver found planned when it became the writer: a plan of an older epoch for a later time was
    made by a fenced driver and never submitted. `names`: those of the streams that have one; a
    stream that is there and has neither a name nor data in this plan is in it as None.
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
