"""What became of a batch, as the log stores it: its completion, and the records of its failures. A driver writes them by `PlanLog`."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kstream.batch import (
    BatchDelays,
    BatchOutcome,
    Json,
    OutcomeFigures,
    OutputFigures,
    OutputOperationInfo,
    SkippedRecord,
    StateFigures,
    SucceededOutput,
)
from kstream.batch_time import Time
from kstream.checkpoint import format, names
from kstream.checkpoint.declared_types import moment
from kstream.checkpoint.state_log import states_fields
from kstream.errors import MissingFileError, StorageError
from kstream.storage import FileStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Completion:
    """The record that all jobs of a batch have succeeded.

    Attributes:
        at_ms: when it was written, in milliseconds since the Unix epoch.
        epoch: the epoch of the driver that wrote it. Its streams have the numbers of that driver.
        counts: stream number → record count of each part of its plan.
        errors: stream number → the records that the errors policy has left out: [operator, exception, number of records].
        skipped: the records that the batch has left out.
        delays: of the batch; None if it had no jobs, or if an older kstream has written the record.
        num_bytes: stream number → the bytes of its records, estimated; only of streams for which they are known.
        outputs: name of an output → what it has stored with the completion.
        figures: what was measured of states and output operations; nothing in a record of an older kstream.
    """

    at_ms: int
    epoch: int
    counts: Mapping[int, Sequence[int | None]]
    errors: Mapping[int, Sequence[tuple[str, str, int]]]
    skipped: Sequence[SkippedRecord]
    delays: BatchDelays | None = None
    num_bytes: Mapping[int, int] = field(default_factory=dict[int, int])
    outputs: Mapping[str, Json] = field(default_factory=dict[str, Json])
    figures: OutcomeFigures = field(default_factory=OutcomeFigures)


@dataclass(frozen=True, slots=True)
class Failure:
    """The record that a batch has failed under a driver.

    Attributes:
        at_ms: when it was written, in milliseconds since the Unix epoch.
        epoch: the epoch of that driver.
        reason: the error, or its beginning.
        succeeded: the output operations that had succeeded in that try; empty in a record of an older kstream.
    """

    at_ms: int
    epoch: int
    reason: str
    succeeded: tuple[SucceededOutput, ...] = ()


def read_completion(store: FileStore, time: Time, plan_epoch: int) -> Completion | None:
    """Read the completion of a batch; None without one. Blocks: one read.

    Raises:
        CorruptRecordError: the record is damaged.
        StorageError: the store failed.
    """
    return _read(store, "done", names.done(time, plan_epoch), time, _completion_of)


def _completion_of(fields: format.Fields) -> Completion:
    errors = {int(stream): [(kind[0], kind[1], kind[2]) for kind in kinds] for stream, kinds in fields.get("errors", {}).items()}
    counts = {int(stream): found for stream, found in fields.get("counts", {}).items()}
    skipped = tuple(SkippedRecord.from_json(row) for row in fields.get("skipped", ()))
    num_bytes = {int(stream): found for stream, found in fields.get("bytes", {}).items()}
    outputs = dict(fields.get("outputs", {}))
    figures = figures_of(fields, Time(fields["time"]))
    return Completion(moment(fields["at"]), fields["epoch"], counts, errors, skipped, delays_of(fields), num_bytes, outputs, figures)


def losses_of(outcome: BatchOutcome) -> dict[str, list[Mapping[str, Json]]]:
    """Return the data losses of a batch as a JSON value: stream number → entries of the ledger."""
    return {str(stream): list(found.lost) for stream, found in outcome.inputs.items() if found.lost}


def skipped_fields(outcome: BatchOutcome) -> dict[str, object]:
    """Return the field of a completion and of the ledger with the records that a batch has left out; empty without any."""
    skipped = [record.to_json() for found in outcome.inputs.values() for record in found.skipped]
    return {"skipped": skipped} if skipped else {}


def found_fields(outcome: BatchOutcome) -> dict[str, object]:
    """Return the fields of a completion that only some batches have."""
    inputs = outcome.inputs.items()
    fields: dict[str, object] = {
        "counts": {str(stream): list(found.counts) for stream, found in inputs if found.counts},
        "errors": {str(stream): [list(kind) for kind in found.errors] for stream, found in inputs if found.errors},
        "bytes": {str(stream): found.num_bytes for stream, found in inputs if found.num_bytes is not None},
        "states": states_fields(outcome.states) if outcome.states else {},
        "delays": delays_fields(outcome.delays) if outcome.delays is not None else [],
        "outputs": dict(outcome.outputs),
        "figures": figures_fields(outcome.figures),
    }
    return {name: value for name, value in fields.items() if value}


def delays_fields(delays: BatchDelays) -> list[int]:
    """Return the delays of a batch as a JSON value: scheduling delay and processing time in milliseconds, and the tries above one."""
    return [delays.scheduling_ms, delays.processing_ms, *([delays.tries] if delays.tries > 1 else [])]


def delays_of(fields: format.Fields) -> BatchDelays | None:
    """Make the delays from the fields of a completion or of a row of the history; None if they have none."""
    stored = fields.get("delays")
    return None if stored is None else BatchDelays(*stored[:3])


def figures_fields(figures: OutcomeFigures) -> dict[str, object]:
    """Return what was measured of states and output operations as a JSON value, figures by their keys; empty if nothing is known.

    An output operation is [number, name, start in ms since the Unix epoch, duration in ms, figures].
    """
    rows = [[one.output_op_id, one.op_name, one.startTime(), one.duration(), one.figures.by_key()] for one in figures.outputs]
    fields: dict[str, object] = {"state": figures.state.by_key(), "outputs": rows}
    return {name: value for name, value in fields.items() if value}


def figures_of(fields: Mapping[str, Json], time: Time) -> OutcomeFigures:
    """Make the figures of a batch from the fields of a completion or of a row of the history; none if they have none."""
    stored = fields.get("figures", {})
    outputs = [
        OutputOperationInfo(time, number, name, name, moment(start), moment(start + duration), None, None, OutputFigures.from_keys(values))
        for number, name, start, duration, values, *_ in stored.get("outputs", ())
    ]
    return OutcomeFigures(StateFigures.from_keys(stored.get("state", {})), tuple(outputs))


def failure_names(store: FileStore) -> dict[tuple[Time, int], list[str]]:
    """Return the names of all records of failures by plan (batch time and epoch), oldest first. Blocks: one listing."""
    found: dict[tuple[Time, int], list[str]] = {}
    for name in store.list(names.FAILED):
        key = names.parse_key(name)
        if key is not None:
            found.setdefault((key[0], key[1][0]), []).append(f"{names.FAILED}/{name}")
    return found


def read_failure(store: FileStore, name: str) -> Failure | None:
    """Read the record of a failure; None if clean-up has removed it, or if only another user may read it. Blocks: one read.

    Args:
        store: the checkpoint.
        name: from `failure_names`.

    Raises:
        CorruptRecordError: the record is damaged.
        StorageError: the store failed.
    """
    time, _ = names.key_of(name)
    try:
        return _read(store, "failed", name, time, _failure_of)
    except StorageError as e:
        if e.facts.get("errno") != errno.EACCES:
            raise
        return None


def _failure_of(fields: format.Fields) -> Failure:
    succeeded = tuple(SucceededOutput(number, name, tuple(outputs)) for number, name, outputs, *_ in fields.get("succeeded", ()))
    return Failure(moment(fields["at"]), fields["epoch"], fields["reason"], succeeded)


def _read(store: FileStore, kind: str, name: str, time: Time, make: Callable[[format.Fields], T]) -> T | None:
    """Return what a record of a batch stands for; None if there is none."""
    try:
        data = store.read(name)
    except MissingFileError:
        return None
    return format.decode(kind, data, store.path(name), make, {"time": time.milliseconds})
