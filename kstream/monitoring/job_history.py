"""JobHistory: keeps what the driver shows of its job: the last batches, the last error, what was counted since the start, the receivers."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kstream.batch import BatchInfo, OutputFigures, ReceiverInfo, StateFigures, StreamInputInfo
from kstream.checkpoint.driver_status import LastError
from kstream.clock import Clock
from kstream.errors import in_a_line, where_of, with_record
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
from kstream.monitoring.batch_history import BatchHistory, KeptBatches
from kstream.monitoring.histogram import BATCH_BOUNDS, Buckets, Histogram
from kstream.secret import harmless

KEPT = 100
"""Number of batches whose facts are kept, the default of `spark.sql.streaming.numRecentProgressUpdates`."""
SUCCEEDED, FAILED = "succeeded", "failed"
"""The results of a batch and of an output operation."""


@dataclass(frozen=True, slots=True)
class ReceiverHistory:
    """A receiver as it told last. `starts`: how often it has started on an executor; `errors`: how many it has reported."""

    info: ReceiverInfo
    starts: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class HistorySnapshot:
    """What was kept of a job up to one moment. Delays are buckets and sum in seconds.

    Attributes:
        recent: the batches that ended last, in the order in which they ended.
        last_error: the last error of the driver; None without one.
        ended: how many batches have ended, by result.
        scheduling, processing, total: the delays of these batches.
        operations: how many runs of output operations have ended, by number, name and result.
        outputs: what was measured of them, by number and name.
        inputs: what batches that have succeeded had of each input, by stream id, with the facts of its newest batch.
        state: the figures of the states of all batches that have ended.
        limited: how many batches had fewer records than the logs, by stream id and reason.
        receivers: the receivers that have started, by stream id.
        batches: the batches that a page shows; none without a page.
    """

    recent: Sequence[BatchInfo]
    last_error: LastError | None
    ended: Mapping[str, int]
    scheduling: tuple[Buckets, float]
    processing: tuple[Buckets, float]
    total: tuple[Buckets, float]
    operations: Mapping[tuple[int, str, str], int]
    outputs: Mapping[tuple[int, str], OutputFigures]
    inputs: Mapping[int, StreamInputInfo]
    state: StateFigures
    limited: Mapping[tuple[int, str], int]
    receivers: Mapping[int, ReceiverHistory]
    batches: KeptBatches


class JobHistory(StreamingListener):
    """Keeps what the listener bus tells. The bus's thread writes, and any thread reads and never blocks for long.

    For each batch it keeps references and adds numbers: its work grows with the number of inputs and outputs, not of partitions or of
    earlier batches.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._recent: deque[BatchInfo] = deque(maxlen=KEPT)
        self._last_error: LastError | None = None
        self._ended = {SUCCEEDED: 0, FAILED: 0}
        self._scheduling, self._processing, self._total = (Histogram(BATCH_BOUNDS) for _ in range(3))
        self._operations: Counter[tuple[int, str, str]] = Counter()
        self._outputs: dict[tuple[int, str], OutputFigures] = {}
        self._inputs: dict[int, StreamInputInfo] = {}
        self._state = StateFigures()
        self._limited: Counter[tuple[int, str]] = Counter()
        self._receivers: dict[int, ReceiverHistory] = {}
        self._batches: BatchHistory | None = None

    def keep_batches(self, batches: BatchHistory | None) -> None:
        """Keep also the batches that a page shows; None: no longer."""
        with self._lock:
            self._batches = batches

    def snapshot(self) -> HistorySnapshot:
        """Return what was kept up to this moment."""
        with self._lock:
            return HistorySnapshot(
                recent=tuple(self._recent),
                last_error=self._last_error,
                ended=dict(self._ended),
                scheduling=(self._scheduling.buckets(), self._scheduling.sum),
                processing=(self._processing.buckets(), self._processing.sum),
                total=(self._total.buckets(), self._total.sum),
                operations=dict(self._operations),
                outputs=dict(self._outputs),
                inputs=dict(self._inputs),
                state=self._state,
                limited=dict(self._limited),
                receivers=dict(self._receivers),
                batches=KeptBatches() if self._batches is None else self._batches.kept(),
            )

    def note_error(self, message: str, error: BaseException) -> None:
        """Keep an error of the streams, with the message that names the failed step. Any thread.

        The error of an output operation comes as an event, too. Of the two the event is kept: it names the batch.
        """
        line, where = in_a_line(error), where_of(error)
        noted = LastError(self._clock.time_ms(), harmless(f"{message}{f' ({where})' if where else ''}: {line}"))
        text_of_event = harmless(with_record(error))
        with self._lock:
            known = self._last_error
            if known is None or known.batch is None or known.text != text_of_event:
                self._last_error = noted

    # -- batches

    def onBatchSubmitted(self, batchSubmitted: StreamingListenerBatchSubmitted) -> None:
        """Keep a batch, keep what each input reads, and count what has limited the batch."""
        info = batchSubmitted.info
        with self._lock:
            if self._batches is not None:
                self._batches.submitted(info)
            for number, source in info.inputs.items():
                self._inputs[number] = replace(self._inputs.get(number, StreamInputInfo(number, 0)), facts=source.facts)
                if source.progress.limited_by is not None:
                    self._limited[number, source.progress.limited_by] += 1

    def onBatchStarted(self, batchSubmitted: StreamingListenerBatchStarted) -> None:
        """Keep a batch with its scheduling delay. (The parameter's name is pyspark's.)"""
        with self._lock:
            if self._batches is not None:
                self._batches.started(batchSubmitted.info)

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Keep and count a batch that has ended, with its delays; of a batch that has succeeded count also its records."""
        info = batchCompleted.info
        succeeded = not info.has_failed
        with self._lock:
            if self._batches is not None:
                self._batches.ended(info)
            self._recent.append(info)
            self._ended[SUCCEEDED if succeeded else FAILED] += 1
            self._count_delays(info)
            self._state = self._state.then(info.state)
            if succeeded:
                for number, source in info.inputs.items():
                    self._inputs[number] = self._inputs.get(number, StreamInputInfo(number, 0)).then(source)

    def _count_delays(self, info: BatchInfo) -> None:
        """Count the delays that are known. Call this under the lock."""
        delays = (
            (self._scheduling, info.scheduling_delay_ms),
            (self._processing, info.processing_delay_ms),
            (self._total, info.total_delay_ms),
        )
        for histogram, milliseconds in delays:
            if milliseconds is not None:
                histogram.observe(milliseconds / 1000)

    def onOutputOperationStarted(self, outputOperationStarted: StreamingListenerOutputOperationStarted) -> None:
        """Keep the start of an output operation."""
        with self._lock:
            if self._batches is not None:
                self._batches.operated(outputOperationStarted.info)

    def onOutputOperationCompleted(self, outputOperationCompleted: StreamingListenerOutputOperationCompleted) -> None:
        """Count a run of an output operation, and keep its error."""
        info = outputOperationCompleted.info
        error = None
        if info.error is not None:
            error = LastError(self._clock.time_ms(), harmless(info.error), info.batch_time, f"{info.output_op_id}, {info.op_name}")
        with self._lock:
            if self._batches is not None:
                self._batches.operated(info)
            self._operations[info.output_op_id, info.op_name, SUCCEEDED if info.failure_reason is None else FAILED] += 1
            output = info.output_op_id, info.op_name
            self._outputs[output] = self._outputs.get(output, OutputFigures()).then(info.figures)
            self._last_error = error or self._last_error

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
