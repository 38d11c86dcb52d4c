"""DriverSource: the page of a driver that runs. It is made from what is in memory.

The ledger is read from the checkpoint, and so are batches whose facts are not in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kstream.batch import BatchInfo, LogLag, OutputOperationInfo
from kstream.batch_time import Time
from kstream.checkpoint.driver_status import DriverStatus
from kstream.checkpoint.sign_of_life import judge
from kstream.conf import ConfigEntry, Settings, text_of
from kstream.monitoring.batch_history import ActiveBatch
from kstream.monitoring.batch_row import BatchRow, row_of, status_of
from kstream.monitoring.job_history import ReceiverHistory
from kstream.monitoring.job_snapshot import JobSnapshot
from kstream.scheduler.executor_allocation_policy import AllocationDecision, Scaling
from kstream.scheduler.settings import SCALING_DOWN_RATIO, SCALING_UP_RATIO
from kstream.secret import looks_secret, without_secrets
from kstream.ui.batch_forms import averages, batch_form, detail_form, last_error_form, operation_form, planned_form, timeline_form
from kstream.ui.decisions import Decision, Decisions
from kstream.ui.driver_ledger import DriverLedger
from kstream.ui.forms import (
    SECRET,
    ApplicationForm,
    BatchDetailForm,
    BatchForm,
    BatchStatus,
    DecisionForm,
    LagForm,
    LedgerForm,
    OperationForm,
    PartitionLagForm,
    ReceiverForm,
    SettingForm,
    StatisticsForm,
    TimelineForm,
    TopicLagForm,
    spark_time,
)
from kstream.ui.stored_batches import StoredBatches

_MOST_JOBS = 1000
"""Of how many output operations that have ended the Spark jobs are kept."""


JobIds = Callable[[Time, int], Sequence[int]]
"""(batch time, number of the output operation) → its jobs of Spark. Called only when somebody looks at the batch. May block on Spark."""


@dataclass(frozen=True, slots=True)
class SparkLinks:
    """What leads from the page into Spark's. `application`: Spark's id; `url`: the address of its UI, None without one."""

    application: str
    url: str | None = None
    job_ids: JobIds = lambda time, operation: ()


class DriverSource:
    """A PageSource. All methods may be called from any thread.

    Only `ledger`, a batch whose facts are not kept, and the Spark jobs of a batch ask others than this process.

    Args:
        settings: those of the context.
        entries: all settings there are.
        snapshot: returns the job at this moment. Any thread.
        decisions: what was decided and met.
        ledger: the ledger.
        stored: the batches whose facts are not kept.
        spark: leads to Spark's own page.
        version: of kstream.
    """

    def __init__(
        self,
        settings: Settings,
        entries: Sequence[ConfigEntry[object]],
        snapshot: Callable[[], JobSnapshot],
        decisions: Decisions,
        ledger: DriverLedger,
        stored: StoredBatches,
        spark: SparkLinks,
        version: str,
    ) -> None:
        self._settings = settings
        self._entries = entries
        self._snapshot = snapshot
        self._decisions = decisions
        self._ledger = ledger
        self._stored = stored
        self._spark = spark
        self._version = version
        self._jobs: dict[tuple[int, int], Sequence[int]] = {}
        self._lock = threading.Lock()

    def application(self) -> ApplicationForm:
        """Return the application, with Spark's id."""
        return {"id": self._spark.application, "name": self._snapshot().status.application}

    def timeline(self) -> TimelineForm:
        """Return the last hour in buckets, oldest first. Asks nobody."""
        job = self._snapshot()
        return timeline_form(job.history.batches.timeline, job.status.interval.milliseconds)

    # -- figures

    def statistics(self) -> StatisticsForm:
        """Return the figures at the head of the page. Asks nobody."""
        job = self._snapshot()
        status, history, pending, lags = job.status, job.history, job.engine.pending, job.engine.lags
        state, sentence = _state(status)
        rows, interval = list(history.batches.rows.values()), status.interval
        active = sum(known.info.is_active for known in history.receivers.values())
        return {
            "startTime": spark_time(status.started_ms),
            "startTimeMs": status.started_ms,
            "batchDuration": interval.milliseconds,
            "numReceivers": len(history.receivers),
            "numActiveReceivers": active,
            "numInactiveReceivers": len(history.receivers) - active,
            "numTotalCompletedBatches": sum(history.ended.values()),
            "numRetainedCompletedBatches": len(rows),
            "numActiveBatches": len(pending.running),
            "numProcessedRecords": sum(each.num_records for each in history.inputs.values()),
            "numReceivedRecords": history.batches.received,
            **averages(rows, interval),
            "source": "driver",
            "nowMs": status.written_ms,
            "state": state,
            "stateText": sentence,
            "epoch": status.epoch,
            "host": status.host,
            "pid": status.pid,
            "numUnfinishedBatches": status.unfinished,
            "numFailedBatches": status.failed,
            "numWaitingBatches": status.waiting,
            "numHeldBatches": len(pending.held),
            "oldestUnfinishedMs": None if status.oldest_unfinished is None else status.oldest_unfinished.milliseconds,
            "secondsBehind": status.seconds_behind(status.written_ms),
            "outageSinceMs": None if status.outage is None else status.outage.since_ms,
            "lagRecords": sum(lag.records for lag in lags.values()) if lags and status.outage is None else None,
            "lastError": last_error_form(status),
            "sparkUiUrl": self._spark.url,
            "metricsUrl": status.metrics_url,
            "numLedgerEntries": self._ledger.count(),
            "version": self._version,
        }

    def receivers(self) -> Sequence[ReceiverForm]:
        """Return the receivers with their rates, by stream id. Asks nobody."""
        job = self._snapshot()
        retained, interval_ms = job.history.batches.retained, job.status.interval.milliseconds
        return [
            _receiver_form(known, _event_rates(number, retained, interval_ms), job.engine.rates.get(number))
            for number, known in sorted(job.history.receivers.items())
        ]

    def lag(self) -> Sequence[LagForm]:
        """Return the lag of each input that reads logs, up to the ends of the logs at its newest plan. Asks nobody."""
        job = self._snapshot()
        rates, now_ms = job.engine.rates, job.status.written_ms
        return [_lag_form(number, lag, rates.get(number), now_ms) for number, lag in sorted(job.engine.lags.items())]

    def decisions(self) -> Sequence[DecisionForm]:
        """Return what Decisions has kept, and what executor allocation has decided, newest first. Asks nobody."""
        up, down = self._settings[SCALING_UP_RATIO], self._settings[SCALING_DOWN_RATIO]
        allocations = self._snapshot().engine.allocations
        made = [decision for at_ms, one in allocations if (decision := _allocation(at_ms, one, up, down)) is not None]
        return [decision.form() for decision in sorted([*self._decisions.all(), *made], key=lambda each: each.at_ms)[::-1]]

    def ledger(self) -> Sequence[LedgerForm]:
        """Return the newest entries of the ledger. Blocks on the store, if they were not read lately; raises its errors."""
        return self._ledger.forms()

    def settings(self) -> Sequence[SettingForm]:
        """Return the settings that differ from their defaults, by key, without secrets."""
        changed = ((entry, self._settings[entry]) for entry in self._entries)
        return [
            {
                "key": entry.key,
                "value": SECRET if looks_secret(entry.key, text_of(value)) else text_of(value),
                "default": text_of(entry.default),
                "meaning": entry.meaning,
            }
            for entry, value in sorted(changed, key=lambda each: each[0].key)
            if value != entry.default
        ]

    # -- batches

    def batches(self, statuses: frozenset[BatchStatus] | None = None, limit: int | None = None) -> Sequence[BatchForm]:
        """Return the batches that have not ended, and those of which a row is kept, newest first. Asks nobody.

        Args:
            statuses: only batches with one of them; None for all.
            limit: at most so many; None for all.
        """
        moment = _Moment(self._snapshot())
        found: list[BatchForm] = []
        for time_ms in moment.times():
            if limit is not None and len(found) >= limit:
                break
            status = moment.status(time_ms)
            if statuses is None or status in statuses:
                found.append(moment.form(time_ms, status))
        return found

    def batch(self, batch_time_ms: int) -> BatchDetailForm | None:
        """Return a batch with its inputs and operations; None if neither this driver nor its checkpoint knows it.

        Asks Spark for its jobs. Of a batch whose facts are not kept it reads the plan and the completion: it blocks on the store, and
        raises its errors.
        """
        job = self._snapshot()
        moment = _Moment(job)
        form = moment.form(batch_time_ms, moment.status(batch_time_ms)) if moment.is_known(batch_time_ms) else None
        info = moment.info(batch_time_ms)
        if form is None or info is None:
            return self._stored.detail_form(Time(batch_time_ms), job.status.interval, form)
        return detail_form(form, info, self._operations(moment.operations(batch_time_ms)), job.error_policies)

    def operations(self, batch_time_ms: int) -> Sequence[OperationForm] | None:
        """Return the output operations of a batch; None if neither this driver nor its checkpoint knows them. Blocks as `batch`."""
        job = self._snapshot()
        moment = _Moment(job)
        if moment.has_facts(batch_time_ms):
            return self._operations(moment.operations(batch_time_ms))
        stored = self._stored.detail_form(Time(batch_time_ms), job.status.interval, None)
        return None if stored is None else stored["operations"]

    def _operations(self, operations: Mapping[int, OutputOperationInfo]) -> list[OperationForm]:
        """Return the forms of output operations, with their Spark jobs."""
        return [operation_form(each, self._jobs_of(each), self._spark.url) for _, each in sorted(operations.items())]

    def _jobs_of(self, operation: OutputOperationInfo) -> Sequence[int]:
        """Return the Spark jobs of an output operation. Those of one that has succeeded are asked for once, and kept."""
        if operation.start_ms is None:
            return ()
        key = operation.batch_time.milliseconds, operation.output_op_id
        with self._lock:
            known = self._jobs.get(key)
        if known is not None:
            return known
        jobs = sorted(self._spark.job_ids(operation.batch_time, operation.output_op_id))
        if jobs and operation.end_ms is not None and operation.failure_reason is None:  # without jobs Spark may not have answered
            with self._lock:
                self._jobs[key] = jobs
                while len(self._jobs) > _MOST_JOBS:
                    del self._jobs[next(iter(self._jobs))]
        return jobs


class _Moment:
    """The batches at one moment. A batch is named by its batch time in milliseconds."""

    def __init__(self, job: JobSnapshot) -> None:
        self._kept, pending = job.history.batches, job.engine.pending
        self._interval_ms = job.status.interval.milliseconds
        self._running, self._retrying, self._held, self._failed = (
            frozenset(time.milliseconds for time in times) for times in (pending.running, pending.retrying, pending.held, pending.failed)
        )

    def times(self) -> Iterator[int]:
        """Yield all batches, newest first."""
        kept = self._kept
        yield from sorted({*self._running, *self._retrying, *self._held, *self._failed, *kept.active, *kept.rows}, reverse=True)

    def status(self, time_ms: int) -> BatchStatus:
        """Return the status of a batch."""
        if time_ms in self._failed:
            return "FAILED"
        if time_ms in self._retrying:
            return "RETRYING"
        if time_ms in self._held:
            return "HELD"
        active, row = self._kept.active.get(time_ms), self._kept.rows.get(time_ms)
        if time_ms in self._running:
            return "PROCESSING" if active is not None and _has_started(active) else "QUEUED"
        if row is None:
            return "PROCESSING"  # it has just ended, and its event is under way
        return "FAILED" if row.has_failed else "COMPLETED"

    def form(self, time_ms: int, status: BatchStatus) -> BatchForm:
        """Return the form of a batch. It has the figures of its last try."""
        active = self._kept.active.get(time_ms)
        row: BatchRow | None = self._kept.rows.get(time_ms) or self._kept.failed_rows.get(time_ms)
        if active is not None:
            row = replace(row_of(active.info, active.operations), tries=active.tries)
        return planned_form(time_ms, status, self._interval_ms) if row is None else batch_form(row, status, self._interval_ms)

    def info(self, time_ms: int) -> BatchInfo | None:
        """Return the facts of a batch; None if they are not known."""
        active = self._kept.active.get(time_ms)
        return self._kept.retained.get(time_ms) if active is None else active.info

    def operations(self, time_ms: int) -> Mapping[int, OutputOperationInfo]:
        """Return the output operations of a batch, as far as they are known."""
        active, info = self._kept.active.get(time_ms), self.info(time_ms)
        return active.operations if active is not None else {} if info is None else info.outputs

    def has_facts(self, time_ms: int) -> bool:
        """Return whether a batch can be shown with its facts. Of one that waits for an earlier batch there are none yet."""
        return self.info(time_ms) is not None or time_ms in self._running | self._held | self._retrying

    def is_known(self, time_ms: int) -> bool:
        """Return whether there is a row of a batch, or it has not ended."""
        return self.has_facts(time_ms) or time_ms in self._failed or time_ms in self._kept.rows


def _has_started(active: ActiveBatch) -> bool:
    """Return whether a batch that is to run has started, in its present try."""
    statuses = [status_of(operation) for operation in active.operations.values()]
    return "PROCESSING" in statuses or (active.info.processing_start_ms is not None and "FAILED" not in statuses)


def _state(status: DriverStatus) -> tuple[str, str]:
    """Return the state of a driver in a word, and in a sentence."""
    if status.ended == "fenced":
        return "fenced", "fenced: another driver has taken over this checkpoint, and this one runs no batch any more"
    if status.ended is not None:
        return f"ended {status.ended}", f"ended {status.ended}"
    state, sentence = judge(status)
    return ("running" if state == "well" else state), sentence


def _lag_form(number: int, lag: LogLag, rate: int | None, now_ms: int) -> LagForm:
    """Return the form of the lag of an input."""
    topics = dict[str, list[PartitionLagForm]]()
    records, seconds = 0, 0.0
    for one in lag.by_partition(now_ms):
        records, seconds = records + one.records, max(seconds, one.seconds)
        offset, end = lag.completed[one.topic][one.partition], lag.latest[one.topic][one.partition]
        topics.setdefault(one.topic, []).append(
            {"partition": one.partition, "offset": offset, "latest": end, "records": one.records, "seconds": one.seconds}
        )
    forms: list[TopicLagForm] = [
        {"topic": topic, "records": sum(each["records"] for each in found), "partitions": sorted(found, key=_partition_order)}
        for topic, found in sorted(topics.items())
    ]
    return {
        "stream": number,
        "description": lag.plan.description,
        "records": records,
        "unplanned": lag.unplanned,
        "seconds": seconds,
        "rateLimit": rate,
        "topics": forms,
    }


def _partition_order(form: PartitionLagForm) -> tuple[int, str]:
    """Return the sort key of a partition: those of a log have numbers."""
    name = form["partition"]
    return (int(name) if name.isdecimal() else 0, name)


def _event_rates(number: int, batches: Mapping[int, BatchInfo], interval_ms: int) -> list[tuple[int, float]]:
    """Return the records a second of a stream in each batch, oldest batch first. A batch is named by its batch time."""
    sources = ((time_ms, batches[time_ms].inputs.get(number)) for time_ms in sorted(batches))
    return [(time_ms, source.num_records * 1000 / interval_ms) for time_ms, source in sources if source is not None]


def _receiver_form(known: ReceiverHistory, rates: list[tuple[int, float]], limit: int | None) -> ReceiverForm:
    """Return the form of a receiver, with its records a second in each batch, and the rate that back-pressure allows."""
    info = known.info
    return {
        "streamId": info.stream_id,
        "streamName": info.receiver_name,
        "isActive": info.is_active,
        "executorId": info.executor_id,
        "executorHost": info.host,
        "lastErrorTime": None if info.last_error_ms < 0 else spark_time(info.last_error_ms),
        "lastErrorMessage": without_secrets(info.last_error_message) or None,
        "lastError": without_secrets(info.last_error) or None,
        "avgEventRate": sum(rate for _, rate in rates) / len(rates) if rates else None,
        "eventRates": rates,
        "numErrors": known.errors,
        "numStarts": known.starts,
        "rateLimit": limit,
    }


def _allocation(at_ms: int, decision: AllocationDecision, up: float, down: float) -> Decision | None:
    """Return a decision of executor allocation as one of the page; None if the ratio asks for no other number.

    Args:
        at_ms: when it was made, in milliseconds since the Unix epoch.
        decision: the decision.
        up: from this ratio on the job gets more executors.
        down: up to this ratio it gets fewer.
    """
    ratio = f"the batches take {decision.ratio:.2f} of their interval"
    number, total = decision.executors, decision.total
    if decision.scaling is Scaling.DOWN:
        text = f"{total} executors are enough, there are {number}: {ratio}, at most scalingDownRatio={down:g}"
    elif decision.scaling is Scaling.UP and decision.ratio < up:
        text = f"{total} executors are asked for, there are {number}: the minimum is {total}; {ratio}"
    elif decision.scaling is Scaling.UP and total > number:
        text = f"{total} executors are asked for, there are {number}: {ratio}, at least scalingUpRatio={up:g}"
    elif decision.scaling is Scaling.UP:
        text = f"{number} executors stay: the maximum is {total}; {ratio}, at least scalingUpRatio={up:g}"
    elif decision.reason:
        text = f"{number} executors stay: {decision.reason}; {ratio}, at most scalingDownRatio={down:g}"
    else:
        return None
    return Decision(at_ms, "allocation", text)
