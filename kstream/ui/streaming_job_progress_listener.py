"""StreamingJobProgressListener: keeps what the page needs of batches, inputs and receivers (Spark's class of that name), within bounds.

A batch that has ended leaves a row; of the last ones, and of the last ones that have failed, the facts stay. `ssc.recentProgress` keeps the
facts of the last 100 anyway, and these are the same objects. The facts of a batch that has not ended are those that its jobs keep.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kstream.batch import BatchInfo, OutputOperationInfo, ReceiverInfo
from kstream.listener import (
    StreamingListener,
    StreamingListenerBatchCompleted,
    StreamingListenerBatchStarted,
    StreamingListenerBatchSubmitted,
    StreamingListenerOutputOperationCompleted,
    StreamingListenerOutputOperationStarted,
    StreamingListenerReceiverError,
    StreamingListenerReceiverStarted,
    StreamingListenerReceiverStopped,
)
from kstream.monitoring.job_history import ReceiverHistory
from kstream.ui.batch_forms import BatchRow, row_of
from kstream.ui.forms import TimelineForm
from kstream.ui.timeline import Timeline

MOST_ROWS = 1000
"""The batches of which a row is kept, Spark's default of `spark.streaming.ui.retainedBatches`. More, if that setting is higher."""
MOST_FAILED = 10
"""The older failed batches of which the facts stay. With a thousand partitions those of one batch take half a megabyte."""
MOST_FAILED_ROWS = 1000
"""The older failed batches of which the row stays. The timeline takes its figures back when such a batch succeeds."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ActiveBatch:
    """A batch that was submitted and has not ended.

    Attributes:
        info: the facts of its submission, or of its end if it had ended as failed.
        operations: its output operations by their numbers, as they are now.
        starts: how often each output operation has started since `info`.
        earlier_tries: its tries before that.
    """

    info: BatchInfo
    operations: Mapping[int, OutputOperationInfo]
    starts: Mapping[int, int] = field(default_factory=dict[int, int])
    earlier_tries: int = 0

    @property
    def tries(self) -> int:
        """How often its jobs have been submitted. An operation that fails is in the next try, and one that succeeds is in no later one."""
        return max(1, self.earlier_tries + max(self.starts.values(), default=0))


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept at one moment, by batch time in milliseconds or by stream id. Batches that have ended are in the order of their ends.

    Attributes:
        active: the batches that have not ended.
        rows: the last batches that have ended.
        failed_rows: older batches that have failed.
        retained: the facts of the last of them, and before them those of older ones that have failed.
        completed: how often a batch has ended.
        processed: the records of the batches that have succeeded.
        received: the records of all batches that have started.
        descriptions: what each input reads.
        receivers: the receivers.
    """

    active: Mapping[int, ActiveBatch]
    rows: Mapping[int, BatchRow]
    failed_rows: Mapping[int, BatchRow]
    retained: Mapping[int, BatchInfo]
    completed: int
    processed: int
    received: int
    descriptions: Mapping[int, str]
    receivers: Mapping[int, ReceiverHistory]


class StreamingJobProgressListener(StreamingListener):
    """Keeps what the listener bus tells. The bus's thread writes, and any thread reads.

    Its work for a batch grows with the number of inputs and outputs, not of partitions or of earlier batches.

    Args:
        interval_ms: the batch interval.
        retained: of how many batches the facts are kept.
    """

    def __init__(self, interval_ms: int, retained: int) -> None:
        super().__init__()
        self._most_retained = retained
        self._most_rows = max(MOST_ROWS, retained)
        self._most_failed = min(MOST_FAILED, retained)
        self._lock = threading.Lock()
        self._active: dict[int, ActiveBatch] = {}
        self._rows: dict[int, BatchRow] = {}
        self._failed_rows: dict[int, BatchRow] = {}
        """Rows of failed batches that are no longer in `_rows`."""
        self._retained: dict[int, BatchInfo] = {}
        self._failed: dict[int, BatchInfo] = {}
        """Failed batches that are no longer in `_retained`."""
        self._timeline = Timeline(interval_ms)
        self._completed = self._processed = self._received = 0
        self._descriptions: dict[int, str] = {}
        self._receivers: dict[int, ReceiverHistory] = {}

    def kept(self) -> Kept:
        """Return what is kept at this moment. Any thread; never blocks for long."""
        with self._lock:
            return Kept(
                active=dict(self._active),
                rows=dict(self._rows),
                failed_rows=dict(self._failed_rows),
                retained={**self._failed, **self._retained},
                completed=self._completed,
                processed=self._processed,
                received=self._received,
                descriptions=dict(self._descriptions),
                receivers=dict(self._receivers),
            )

    def timeline(self) -> TimelineForm:
        """Return the last hour. Any thread; never blocks for long."""
        with self._lock:
            return self._timeline.form()

    # -- batches

    def onBatchSubmitted(self, batchSubmitted: StreamingListenerBatchSubmitted) -> None:
        """Keep the facts of a batch until it ends."""
        info = batchSubmitted.info
        with self._lock:
            self._active[info.batch_time.milliseconds] = ActiveBatch(info, info.outputs)
            for number, source in info.inputs.items():
                self._descriptions[number] = source.progress.description

    def onBatchStarted(self, batchSubmitted: StreamingListenerBatchStarted) -> None:
        """Keep the facts of a batch with its scheduling delay, and count its records. (The parameter's name is pyspark's.)"""
        info = batchSubmitted.info
        with self._lock:
            self._received += sum(source.num_records for source in info.inputs.values())
            self._active[info.batch_time.milliseconds] = ActiveBatch(info, info.outputs)

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Keep a row and the facts of a batch that has ended, in place of what was kept if it had failed before."""
        info = batchCompleted.info
        time_ms, row = info.batch_time.milliseconds, row_of(info)
        with self._lock:
            self._active.pop(time_ms, None)
            self._completed += 1
            self._processed += 0 if row.has_failed else row.records
            before = self._failed_rows.pop(time_ms, None)
            self._timeline.add(row, self._rows.get(time_ms, before))
            for old in _put(self._rows, time_ms, row, self._most_rows):
                if old.has_failed:
                    _put(self._failed_rows, old.time_ms, old, MOST_FAILED_ROWS)
            self._failed.pop(time_ms, None)
            for older in _put(self._retained, time_ms, info, self._most_retained):
                if older.has_failed:
                    _put(self._failed, older.batch_time.milliseconds, older, self._most_failed)

    def onOutputOperationStarted(self, outputOperationStarted: StreamingListenerOutputOperationStarted) -> None:
        """Keep the start of an output operation."""
        self._keep_operation(outputOperationStarted.info)

    def onOutputOperationCompleted(self, outputOperationCompleted: StreamingListenerOutputOperationCompleted) -> None:
        """Keep the end of an output operation."""
        self._keep_operation(outputOperationCompleted.info)

    def _keep_operation(self, operation: OutputOperationInfo) -> None:
        """Keep an output operation as it is now, until its batch ends. A batch that had failed and is tried again is active again."""
        time_ms = operation.batch_time.milliseconds
        with self._lock:
            active = self._active.get(time_ms)
            if active is None:
                before = self._retained.get(time_ms) or self._failed.get(time_ms)
                if before is None:
                    return
                active = ActiveBatch(before, before.outputs, earlier_tries=before.tries)
            number, begins = operation.output_op_id, operation.end_ms is None
            self._active[time_ms] = replace(
                active,
                operations={**active.operations, number: operation},
                starts={**active.starts, number: active.starts.get(number, 0) + begins},
            )

    # -- receivers

    def onReceiverStarted(self, receiverStarted: StreamingListenerReceiverStarted) -> None:
        """Count the start of a receiver."""
        self._keep_receiver(receiverStarted.info, starts=1)

    def onReceiverError(self, receiverError: StreamingListenerReceiverError) -> None:
        """Count an error that a receiver has reported."""
        self._keep_receiver(receiverError.info, errors=1)

    def onReceiverStopped(self, receiverStopped: StreamingListenerReceiverStopped) -> None:
        """Keep the end of a receiver's run."""
        self._keep_receiver(replace(receiverStopped.info, is_active=False))

    def _keep_receiver(self, info: ReceiverInfo, starts: int = 0, errors: int = 0) -> None:
        """Keep what a receiver told last, with its counts."""
        with self._lock:
            known = self._receivers.get(info.stream_id) or ReceiverHistory(info)
            self._receivers[info.stream_id] = ReceiverHistory(info, known.starts + starts, known.errors + errors)


def _put(kept: dict[int, T], time_ms: int, value: T, most: int) -> list[T]:
    """Put a value at the end of what is kept. Remove the oldest values if there are too many, and return them."""
    kept.pop(time_ms, None)
    kept[time_ms] = value
    return [kept.pop(next(iter(kept))) for _ in range(len(kept) - most)]
