"""KnownBatch: a batch as a checkpoint knows it; its facts, as listeners of its driver had them, and its row. Both pages are made of these.

A checkpoint knows the delays of batches that have succeeded, and of the last ones in the status record. It knows the output operations that
have figures, and that of the last error, and no others. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kstream.batch import (
    BatchDelays,
    BatchInfo,
    BatchPlan,
    InputFigures,
    OutcomeFigures,
    OutputOperationInfo,
    SkippedRecord,
    StreamInputInfo,
)
from kstream.batch.plan import BLOCKS, FILES, kind_of, without_kind
from kstream.checkpoint.driver_status import LastError
from kstream.checkpoint.outcomes import Failure
from kstream.monitoring.batch_row import BatchRow, OperationCounts, row_of
from kstream.offsets.offset_range import PlannedRange
from kstream.secret import line_without_secrets
from kstream.ui.forms import BatchStatus
from kstream.ui.ledger_forms import RangesOf

Outcome = Literal["done", "failed", "given up", "pending"]
"""What became of a batch. failed: it has failed under a driver, and has not succeeded since."""
STATUSES: Mapping[str, BatchStatus] = {"done": "COMPLETED", "failed": "FAILED", "given up": "FAILED", "pending": "PENDING"}
_HAS_FAILED = ("failed", "given up")


@dataclass(frozen=True, slots=True)
class KnownBatch:
    """A batch, as the checkpoint knows it.

    Attributes:
        plan: its plan.
        outcome: what became of it.
        counts: stream number → the record count of each part of its plan; None if the batch has not succeeded.
        errors: stream number → the number of records that the errors policy has left out; not known in the history.
        skipped: the records that it leaves out.
        failures: under how many drivers it has failed; in the history only of a batch that was given up.
        last_failure: the newest of these failures; None if it is not known.
        losses: stream number → its data losses, as entries of the ledger.
        delays: its delays; known of a batch that has succeeded, and of the last ones of the status record.
        figures: what was measured of its states and output operations; known of a batch that has succeeded.
    """

    plan: BatchPlan
    outcome: Outcome
    counts: Mapping[int, Sequence[int | None]] | None = None
    errors: Mapping[int, int] = field(default_factory=dict[int, int])
    skipped: Sequence[SkippedRecord] = ()
    failures: int = 0
    last_failure: Failure | None = None
    losses: Mapping[int, Sequence[Any]] = field(default_factory=dict[int, Sequence[Any]])
    delays: BatchDelays | None = None
    figures: OutcomeFigures = field(default_factory=OutcomeFigures)

    def records_of(self, number: int) -> int:
        """Return the records of one input: those that were read, where that is known, else those of the plan."""
        counts = (self.counts or {}).get(number)
        if counts is None or None in counts:
            return self.plan.num_records.get(number, 0)
        return sum(found for found in counts if found is not None)

    @property
    def tries(self) -> int:
        """How often it was tried, as far as that is known."""
        return self.failures + (self.outcome == "done")


@dataclass(frozen=True, slots=True)
class StoredRange:
    """The range of a partition in a batch, as an OffsetRange has it. `records` is None if they were not counted."""

    topic: str
    partition: int
    fromOffset: int
    untilOffset: int
    records: int | None

    def count(self) -> int | None:
        return self.records


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A received block of a batch."""

    block_id: str


def facts_of(batch: KnownBatch, error: LastError | None = None) -> BatchInfo:
    """Return the facts about a batch, without what its inputs say of themselves.

    Args:
        batch: the batch.
        error: the last error of the driver; None if it is not known.
    """
    time_ms, delays = batch.plan.time.milliseconds, batch.delays
    start_ms = None if delays is None else time_ms + delays.scheduling_ms
    end_ms = None if start_ms is None or delays is None else start_ms + delays.processing_ms
    inputs = {number: _input_of(batch, number) for number in batch.plan.inputs}
    outputs = _failed_operation(batch, error) or {output.output_op_id: output for output in batch.figures.outputs}
    return BatchInfo(batch.plan.time, inputs, time_ms, start_ms, end_ms, outputs, batch.tries, batch.figures.state)


def _input_of(batch: KnownBatch, number: int) -> StreamInputInfo:
    """Return the share of an input in a batch, with what plan, completion and ledger have of it, and without its metadata."""
    skipped = [record for record in sorted(batch.skipped) if record.stream == number]
    return StreamInputInfo(
        number,
        batch.records_of(number),
        figures=InputFigures(batch.errors.get(number, 0), len(skipped), len(batch.losses.get(number, ()))),
        skipped=skipped,
    )


def _failed_operation(batch: KnownBatch, error: LastError | None) -> dict[int, OutputOperationInfo]:
    """Return the output operation in which a batch has failed, if it is that of the driver's last error."""
    if error is None or error.operation is None or error.batch != batch.plan.time or batch.outcome not in _HAS_FAILED:
        return {}
    digits, _, name = error.operation.partition(", ")
    number = int(digits) if digits.isdecimal() else 0
    reason = None if batch.last_failure is None else batch.last_failure.reason
    name = name or error.operation
    return {number: OutputOperationInfo(batch.plan.time, number, name, error.operation, None, error.at_ms, reason, error.text)}


def stored_row(batch: KnownBatch, facts: BatchInfo) -> BatchRow:
    """Return the row of a batch. It may have failed without an output operation that is known.

    How many output operations a batch had that has succeeded is not known: its row has none.
    """
    row = replace(row_of(facts), reason=_failure_text(batch), has_failed=batch.outcome in _HAS_FAILED)
    return replace(row, operations=OperationCounts(0, 0, 0, 0)) if batch.outcome == "done" else row


def _failure_text(batch: KnownBatch) -> str | None:
    """Return why a batch has failed, in one line; None if it has not, or if it has succeeded since."""
    if batch.outcome not in _HAS_FAILED:
        return None
    if batch.last_failure is not None:
        return first_line(batch.last_failure.reason)
    return f"given up: the batch has failed {batch.failures} times" if batch.failures else "given up"


def first_line(text: str) -> str:
    """Return the first line of an error that is not empty, without what may be a secret."""
    return line_without_secrets(next((line for line in text.splitlines() if line.strip()), ""))


def with_input_facts(facts: BatchInfo, batch: KnownBatch, ranges_of: RangesOf, descriptions: Mapping[int, str]) -> BatchInfo:
    """Return the facts with what the inputs say of themselves. What the connector of an input does not explain is told as it is stored.

    Args:
        facts: the facts.
        batch: the batch.
        ranges_of: the tools of the connectors.
        descriptions: what inputs read, in the words of their driver.
    """
    return replace(
        facts, inputs={number: _described(source, batch, ranges_of, descriptions.get(number)) for number, source in facts.inputs.items()}
    )


def _described(source: StreamInputInfo, batch: KnownBatch, ranges_of: RangesOf, description: str | None) -> StreamInputInfo:
    """Return an input of a batch with what it says of itself."""
    number, data = source.stream_id, batch.plan.inputs[source.stream_id]
    ranges, files, blocks = ranges_of(data), _rows(data, FILES), _rows(data, BLOCKS)
    is_plain = ranges is None and files is None and blocks is None
    said = _description(batch, number, ranges or ()) if description is None else description
    facts = {
        "progress": {"description": said},
        "storedPlan": dict(without_kind(data)) if is_plain else {},
        "offsets": _offsets(ranges or (), (batch.counts or {}).get(number)),
        "blocks": [StoredBlock(str(row[0])) for row in blocks or ()],
        "files": [row[0] for row in files or ()],
    }
    num_bytes = None if files is None else sum(int(row[2]) for row in files)
    return replace(source, facts=facts, figures=replace(source.figures, bytes=num_bytes))


def _rows(data: Mapping[str, Any], kind: str) -> list[list[Any]] | None:
    """Return the rows that an input of a kind, FILES or BLOCKS, stores under its kind; None for another input."""
    found = data.get(kind) if kind_of(data) == kind else None
    return found if isinstance(found, list) and all(isinstance(row, list) and row for row in found) else None  # pyright: ignore


def _offsets(ranges: Sequence[PlannedRange], counts: Sequence[int | None] | None) -> list[StoredRange]:
    """Return the ranges of a log, with their record counts if there is one for each range."""
    known: Sequence[int | None] = counts if counts is not None and len(counts) == len(ranges) else [None] * len(ranges)
    return [StoredRange(*r, count) for r, count in zip(ranges, known, strict=True)]


def _description(batch: KnownBatch, number: int, ranges: Sequence[PlannedRange]) -> str:
    """Return what an input reads: the name of its stream, and its topics."""
    name = batch.plan.names.get(number) or f"stream {number}"
    topics = ", ".join(sorted({r.topic for r in ranges}))
    return f"{name} ({topics})" if topics else name
