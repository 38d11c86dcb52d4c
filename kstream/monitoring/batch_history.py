"""BatchHistory: keeps what the page needs of batches, within bounds (in Spark a part of `StreamingJobProgressListener`).

A batch that has ended leaves a row; of the last ones, and of the last ones that have failed, the facts stay. `ssc.recentProgress` keeps the
facts of the last 100 anyway, and these are the same objects. The facts of a batch that has not ended are those that its jobs keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kstream.batch import BatchInfo, OutputOperationInfo
from kstream.monitoring.batch_row import BatchRow, row_of
from kstream.monitoring.timeline import Timeline, TimelineBucket

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
class KeptBatches:
    """The batches that are kept at one moment, by batch time in milliseconds. Those that have ended are in the order of their ends.

    Attributes:
        active: the batches that have not ended.
        rows: the last batches that have ended.
        failed_rows: older batches that have failed.
        retained: the facts of the last of them, and before them those of older ones that have failed.
        received: the records of all batches that have started.
        timeline: the last hour in buckets, by the moment at which they begin.
    """

    active: Mapping[int, ActiveBatch] = field(default_factory=dict[int, ActiveBatch])
    rows: Mapping[int, BatchRow] = field(default_factory=dict[int, BatchRow])
    failed_rows: Mapping[int, BatchRow] = field(default_factory=dict[int, BatchRow])
    retained: Mapping[int, BatchInfo] = field(default_factory=dict[int, BatchInfo])
    received: int = 0
    timeline: Mapping[int, TimelineBucket] = field(default_factory=dict[int, TimelineBucket])


class BatchHistory:
    """Keeps batches, from their submission on. Not thread-safe: its owner has a lock.

    Its work for a batch grows with the number of inputs and outputs, not of partitions or of earlier batches.

    Args:
        interval_ms: the batch interval.
        retained: of how many batches the facts are kept.
    """

    def __init__(self, interval_ms: int, retained: int) -> None:
        self._most_retained = retained
        self._most_rows = max(MOST_ROWS, retained)
        self._most_failed = min(MOST_FAILED, retained)
        self._active: dict[int, ActiveBatch] = {}
        self._rows: dict[int, BatchRow] = {}
        self._failed_rows: dict[int, BatchRow] = {}
        """Rows of failed batches that are no longer in `_rows`."""
        self._retained: dict[int, BatchInfo] = {}
        self._failed: dict[int, BatchInfo] = {}
        """Failed batches that are no longer in `_retained`."""
        self._timeline = Timeline(interval_ms)
        self._received = 0

    def kept(self) -> KeptBatches:
        """Return what is kept at this moment."""
        return KeptBatches(
            active=dict(self._active),
            rows=dict(self._rows),
            failed_rows=dict(self._failed_rows),
            retained={**self._failed, **self._retained},
            received=self._received,
            timeline=self._timeline.buckets(),
        )

    def submitted(self, info: BatchInfo) -> None:
        """Keep the facts of a batch until it ends."""
        self._active[info.batch_time.milliseconds] = ActiveBatch(info, info.outputs)

    def started(self, info: BatchInfo) -> None:
        """Keep the facts of a batch with its scheduling delay, and count its records."""
        self._received += info.numRecords()
        self.submitted(info)

    def ended(self, info: BatchInfo) -> None:
        """Keep a row and the facts of a batch that has ended, in place of what was kept if it had failed before."""
        time_ms, row = info.batch_time.milliseconds, row_of(info)
        self._active.pop(time_ms, None)
        before = self._failed_rows.pop(time_ms, None)
        self._timeline.add(row, self._rows.get(time_ms, before))
        for old in _put(self._rows, time_ms, row, self._most_rows):
            if old.has_failed:
                _put(self._failed_rows, old.time_ms, old, MOST_FAILED_ROWS)
        self._failed.pop(time_ms, None)
        for older in _put(self._retained, time_ms, info, self._most_retained):
            if older.has_failed:
                _put(self._failed, older.batch_time.milliseconds, older, self._most_failed)

    def operated(self, operation: OutputOperationInfo) -> None:
        """Keep an output operation as it is now, until its batch ends. A batch that had failed and is tried again is active again."""
        time_ms = operation.batch_time.milliseconds
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


def _put(kept: dict[int, T], time_ms: int, value: T, most: int) -> list[T]:
    """Put a value at the end of what is kept. Remove the oldest values if there are too many, and return them."""
    kept.pop(time_ms, None)
    kept[time_ms] = value
    return [kept.pop(next(iter(kept))) for _ in range(len(kept) - most)]
