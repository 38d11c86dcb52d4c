"""The answers of the page about a checkpoint, from a snapshot of it. Pure.

A checkpoint knows neither receivers nor settings. `stored_facts` says what it knows of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from kstream.checkpoint.driver_status import DriverStatus, StreamLag
from kstream.checkpoint.history import LedgerEntry
from kstream.checkpoint.sign_of_life import behind_without_driver, judge
from kstream.monitoring.timeline import Timeline
from kstream.ui.batch_forms import averages, batch_form, detail_form, last_error_form, operation_form, timeline_form
from kstream.ui.checkpoint_reader import Snapshot
from kstream.ui.forms import (
    BatchDetailForm,
    BatchForm,
    DecisionForm,
    LagForm,
    OperationForm,
    StatisticsForm,
    TimelineForm,
    spark_time,
)
from kstream.ui.ledger_forms import RangesOf, loss_text
from kstream.ui.stored_facts import STATUSES, KnownBatch, facts_of, first_line, stored_row, with_input_facts

DECISIONS = 200
"""The most decisions that are shown."""


# -- the head of the page


def statistics(snapshot: Snapshot, now_ms: int, version: str) -> StatisticsForm:
    """Return the figures at the head of the page.

    Args:
        snapshot: the checkpoint.
        now_ms: the moment, in milliseconds since the Unix epoch.
        version: of kstream.
    """
    status = _status(snapshot)
    ended = [row for batch, row in zip(snapshot.batches, snapshot.rows, strict=True) if batch.outcome == "done"]
    begun_ms = snapshot.started_ms or 0
    return {
        "startTime": spark_time(begun_ms),
        "startTimeMs": begun_ms,
        "batchDuration": snapshot.interval.milliseconds,
        "numReceivers": None,
        "numActiveReceivers": None,
        "numInactiveReceivers": None,
        "numTotalCompletedBatches": None,
        "numRetainedCompletedBatches": len(ended),
        "numActiveBatches": None,
        "numProcessedRecords": None,
        "numReceivedRecords": None,
        **averages(ended, snapshot.interval),
        "source": "checkpoint",
        "nowMs": now_ms,
        **_standing(snapshot, now_ms),
        "epoch": snapshot.driver.epoch,
        "host": None if status is None else status.host,
        "pid": None if status is None else status.pid,
        "lastError": None if snapshot.driver.sign is None else last_error_form(snapshot.driver.sign.status),
        "sparkUiUrl": None,
        "metricsUrl": None if snapshot.driver.living is None else snapshot.driver.living.metrics_url,
        "numLedgerEntries": snapshot.older_entries + sum(_is_new(entry) for entry in snapshot.entries),
        "version": version,
    }


class _Standing(TypedDict):
    """The fields about how the driver is, and what has not ended or waits."""

    state: str
    stateText: str
    numUnfinishedBatches: int
    numFailedBatches: int
    numWaitingBatches: int | None
    numHeldBatches: None
    oldestUnfinishedMs: int | None
    secondsBehind: float
    outageSinceMs: int | None
    lagRecords: int | None


def _standing(snapshot: Snapshot, now_ms: int) -> _Standing:
    """Return the fields about how the driver is, and what has not ended or waits: of a driver that lives, as it says; else by the log."""
    living, contents, status = snapshot.driver.living, snapshot.contents, _status(snapshot)
    lag = sum(each.records for each in status.lag) if status is not None and status.lag else None
    skews = "".join(f". Clock skew: {sentence}" for sentence in snapshot.driver.skews)
    if living is not None:
        state, sentence = judge(living)
        oldest = living.oldest_unfinished
        return {
            "state": "running" if state == "well" else state,
            "stateText": sentence + skews,
            "numUnfinishedBatches": living.unfinished,
            "numFailedBatches": living.failed,
            "numWaitingBatches": living.waiting,
            "numHeldBatches": None,
            "oldestUnfinishedMs": None if oldest is None else oldest.milliseconds,
            "secondsBehind": living.seconds_behind(living.written_ms),
            "outageSinceMs": None if living.outage is None else living.outage.since_ms,
            "lagRecords": lag if living.outage is None else None,
        }
    state, sentence = snapshot.driver.end()
    pending = sorted([*contents.pending, *contents.unread])
    seconds, _ = behind_without_driver(contents.meta, contents.last_planned, pending, now_ms)
    return {
        "state": state,
        "stateText": sentence + skews,
        "numUnfinishedBatches": len(pending),
        "numFailedBatches": sum(batch.outcome == "failed" for batch in snapshot.batches),
        "numWaitingBatches": None,
        "numHeldBatches": None,
        "oldestUnfinishedMs": pending[0].milliseconds if pending else None,
        "secondsBehind": seconds,
        "outageSinceMs": None,
        "lagRecords": lag,
    }


def _is_new(entry: LedgerEntry) -> bool:
    """Return whether nobody has acknowledged an entry or asked for it: the head of the page counts these."""
    return not (entry.is_acknowledged or entry.is_asked_for)


def _status(snapshot: Snapshot) -> DriverStatus | None:
    """Return the status record of the newest driver; None if it has left none."""
    sign = snapshot.driver.sign
    return None if sign is None or sign.status.epoch != snapshot.driver.epoch else sign.status


# -- batches


def timeline(snapshot: Snapshot) -> TimelineForm:
    """Return the last hour before the newest batch that has ended, as far as its batches are known, in buckets by batch time."""
    interval_ms = max(1, snapshot.interval.milliseconds)
    made = Timeline(interval_ms)
    for batch, row in zip(reversed(snapshot.batches), reversed(snapshot.rows), strict=True):
        if batch.outcome != "pending":
            made.add(row)
    return timeline_form(made.buckets(), interval_ms)


def batches(snapshot: Snapshot) -> list[BatchForm]:
    """Return the batches, newest first."""
    interval_ms = snapshot.interval.milliseconds
    known = zip(snapshot.batches, snapshot.rows, strict=True)
    return [batch_form(row, STATUSES[batch.outcome], interval_ms) for batch, row in known]


def batch_detail(snapshot: Snapshot, batch: KnownBatch, ranges_of: RangesOf) -> BatchDetailForm:
    """Return a batch with its inputs, the records it leaves out, and its output operations as far as they are known."""
    known = facts_of(batch, snapshot.last_error)
    form = batch_form(stored_row(batch, known), STATUSES[batch.outcome], snapshot.interval.milliseconds)
    facts = with_input_facts(known, batch, ranges_of, _descriptions(snapshot, batch))
    return detail_form(form, facts, operations(snapshot, batch))


def operations(snapshot: Snapshot, batch: KnownBatch) -> list[OperationForm]:
    """Return the output operations that have figures; of a batch that has failed, that of the last error if it is known."""
    return [operation_form(operation) for operation in facts_of(batch, snapshot.last_error).outputs.values()]


def _descriptions(snapshot: Snapshot, batch: KnownBatch) -> dict[int, str]:
    """Return what the inputs read, in the words of their driver, if the driver of the status record has made the plan."""
    sign = snapshot.driver.sign
    if sign is None or sign.status.epoch != batch.plan.epoch:
        return {}
    return {lag.stream: lag.description for lag in sign.status.lag}


def lag(snapshot: Snapshot) -> list[LagForm]:
    """Return the lag of each input, as the status record has it. It has no partitions. Without a driver that lives there is no rate."""
    status = _status(snapshot)
    if status is None:
        return []
    rates: Mapping[int, int] = {} if snapshot.driver.living is None else status.rates
    return [
        {
            "stream": found.stream,
            "description": found.description,
            "records": found.records,
            "unplanned": found.unplanned,
            "seconds": None,
            "rateLimit": rates.get(found.stream),
            "topics": [],
        }
        for found in sorted(status.lag, key=lambda found: found.stream)
    ]


# -- what was met


def decisions(snapshot: Snapshot) -> list[DecisionForm]:
    """Return what the drivers have met: failures of the newest batches, data losses, batches that were given up; newest first."""
    found = [*_failures(snapshot.batches), *_losses_met(snapshot.entries), *_of_status(snapshot)]
    return sorted(found, key=lambda decision: -decision["timeMs"])[:DECISIONS]


def _failures(batches: Iterable[KnownBatch]) -> list[DecisionForm]:
    """Return the last failure of each batch that has one, as decisions."""
    return [
        {
            "timeMs": batch.last_failure.at_ms,
            "kind": "error",
            "text": f"the batch failed: {first_line(batch.last_failure.reason)}",
            "batchTimeMs": batch.plan.time.milliseconds,
        }
        for batch in batches
        if batch.last_failure is not None
    ]


def _losses_met(entries: Iterable[LedgerEntry]) -> list[DecisionForm]:
    """Return the data losses, and the batches that were given up, as decisions. `entries`: of the ledger."""
    found: list[DecisionForm] = []
    for entry in entries:
        at, batch = entry.at_ms, entry.time.milliseconds
        if entry.kind == "given-up":
            text = f"the batch was given up: it has failed {entry.failures} times"
            found.append({"timeMs": at, "kind": "error", "text": text, "batchTimeMs": batch})
        elif entry.kind == "lost":
            for stream, losses in sorted(entry.streams.items()):
                more = f", and {len(losses) - 1} more" if len(losses) > 1 else ""
                text = f"stream {stream} has lost {loss_text(losses[0])}{more}"
                found.append({"timeMs": at, "kind": "data loss", "text": text, "batchTimeMs": batch})
    return found


def _limited(lag: StreamLag) -> str:
    """Return the sentence about an input whose newest batch did not take all records. An older kstream has told only what it left."""
    left = lag.records if lag.unplanned is None else lag.unplanned
    return f"stream {lag.stream}: the newest batch is limited by {lag.limited_by}, {left:,} records are in no batch yet"


def _of_status(snapshot: Snapshot) -> list[DecisionForm]:
    """Return what the status record tells, as decisions: an error of no batch, and why the newest batch did not take all records."""
    status = _status(snapshot)
    if status is None:
        return []
    found: list[DecisionForm] = [
        {
            "timeMs": status.written_ms,
            "kind": "limit",
            "text": _limited(each),
            "batchTimeMs": None,
        }
        for each in status.lag
        if each.limited_by is not None
    ]
    if status.last_error is not None and status.last_error.batch is None:
        error = status.last_error
        found.append({"timeMs": error.at_ms, "kind": "error", "text": error.text, "batchTimeMs": None})
    return found
