"""MetricsListener: keeps the figures of batches, output operations, inputs and receivers that metrics are made of."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, replace

from kstream.batch import BatchInfo, ReceiverInfo, StreamInputInfo
from kstream.batch_time import Time
from kstream.listener import (
    StreamingListener,
    StreamingListenerBatchCompleted,
    StreamingListenerBatchSubmitted,
    StreamingListenerOutputOperationCompleted,
    StreamingListenerReceiverError,
    StreamingListenerReceiverStarted,
    StreamingListenerReceiverStopped,
)
from kstream.metrics.families import BATCH_BOUNDS, Histogram

SUCCEEDED, FAILED = "succeeded", "failed"
"""The results of a batch and of an output operation."""
Buckets = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class ReceiverFigures:
    """What is known of a receiver. `starts`: how often it has started on an executor; `errors`: how many it has reported."""

    name: str
    active: bool = False
    starts: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class InputFigures:
    """What batches that have succeeded had of an input. `bytes`: None if the input never knew them. `losses`: entries of the ledger."""

    description: str = ""
    records: int = 0
    bytes: int | None = None
    errors: int = 0
    skipped: int = 0
    losses: int = 0

    def with_batch(self, source: StreamInputInfo) -> InputFigures:
        """Return the figures after a further batch."""
        return replace(
            self,
            records=self.records + source.num_records,
            bytes=self.bytes if source.num_bytes is None else (self.bytes or 0) + source.num_bytes,
            errors=self.errors + source.num_record_errors,
            skipped=self.skipped + source.num_skipped,
            losses=self.losses + source.num_losses,
        )


@dataclass(frozen=True, slots=True)
class ListenerFigures:
    """The figures of one moment. Delays are buckets and sum in seconds, by the name of the delay."""

    batches: dict[str, int]
    scheduling: tuple[Buckets, float]
    processing: tuple[Buckets, float]
    total: tuple[Buckets, float]
    last_ended: Time | None
    last_records: int
    operations: dict[tuple[int, str, str], int]
    inputs: dict[int, InputFigures]
    limited: dict[tuple[int, str], int]
    receivers: dict[int, ReceiverFigures]


class MetricsListener(StreamingListener):
    """Counts what the listener bus tells. The bus's thread writes, and any thread reads by `figures`.

    For each batch it keeps references and adds numbers: its work grows with the number of inputs and outputs, not of partitions.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._batches = {SUCCEEDED: 0, FAILED: 0}
        self._scheduling, self._processing, self._total = (Histogram(BATCH_BOUNDS) for _ in range(3))
        self._last: tuple[Time, int] | None = None
        self._operations: Counter[tuple[int, str, str]] = Counter()
        self._inputs: dict[int, InputFigures] = {}
        self._limited: Counter[tuple[int, str]] = Counter()
        self._receivers: dict[int, ReceiverFigures] = {}

    def figures(self) -> ListenerFigures:
        """Return the figures of this moment. Any thread; never blocks for long."""
        with self._lock:
            last, records = self._last or (None, 0)
            return ListenerFigures(
                batches=dict(self._batches),
                scheduling=(self._scheduling.buckets(), self._scheduling.sum),
                processing=(self._processing.buckets(), self._processing.sum),
                total=(self._total.buckets(), self._total.sum),
                last_ended=last,
                last_records=records,
                operations=dict(self._operations),
                inputs=dict(self._inputs),
                limited=dict(self._limited),
                receivers=dict(self._receivers),
            )

    # -- batches

    def onBatchSubmitted(self, batchSubmitted: StreamingListenerBatchSubmitted) -> None:
        """Keep what each input reads, and count what has limited the batch."""
        with self._lock:
            for number, source in batchSubmitted.info.inputs.items():
                progress = source.progress
                known = self._inputs.get(number, InputFigures())
                self._inputs[number] = replace(known, description=progress.description)
                if progress.limited_by is not None:
                    self._limited[number, progress.limited_by] += 1

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Count a batch that has ended, with its delays; of a batch that has succeeded also its records."""
        info = batchCompleted.info
        succeeded = not info.has_failed
        with self._lock:
            self._batches[SUCCEEDED if succeeded else FAILED] += 1
            self._last = info.batch_time, info.numRecords()
            self._count_delays(info)
            if succeeded:
                for number, source in info.inputs.items():
                    self._inputs[number] = self._inputs.get(number, InputFigures()).with_batch(source)

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

    def onOutputOperationCompleted(self, outputOperationCompleted: StreamingListenerOutputOperationCompleted) -> None:
        """Count a run of an output operation."""
        info = outputOperationCompleted.info
        with self._lock:
            self._operations[info.output_op_id, info.op_name, SUCCEEDED if info.failure_reason is None else FAILED] += 1

    # -- receivers

    def onReceiverStarted(self, receiverStarted: StreamingListenerReceiverStarted) -> None:
        """Count the start of a receiver."""
        with self._lock:
            known = self._receiver(receiverStarted.info)
            self._receivers[receiverStarted.info.stream_id] = replace(known, active=True, starts=known.starts + 1)

    def onReceiverError(self, receiverError: StreamingListenerReceiverError) -> None:
        """Count an error that a receiver has reported."""
        with self._lock:
            known = self._receiver(receiverError.info)
            self._receivers[receiverError.info.stream_id] = replace(known, errors=known.errors + 1)

    def onReceiverStopped(self, receiverStopped: StreamingListenerReceiverStopped) -> None:
        """Note the end of a receiver's run."""
        with self._lock:
            self._receivers[receiverStopped.info.stream_id] = replace(self._receiver(receiverStopped.info), active=False)

    def _receiver(self, info: ReceiverInfo) -> ReceiverFigures:
        """Return what is known of a receiver. Call this under the lock."""
        return self._receivers.get(info.stream_id) or ReceiverFigures(info.receiver_name)
