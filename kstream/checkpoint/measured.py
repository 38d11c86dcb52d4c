"""MeasuredBatches: how fast the last batches of a stream were that earlier drivers have completed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import chain

from kstream.batch import BatchDelays, BatchInfo, BatchPlan, InputFigures, StreamInputInfo
from kstream.batch_time import Time
from kstream.checkpoint.history import PastBatch, read_segment, segments
from kstream.checkpoint.outcomes import Completion, read_completion
from kstream.checkpoint.reader import LogContents
from kstream.errors import CorruptRecordError, FormatVersionError, MissingFileError, StorageError
from kstream.storage import FileStore

logger = logging.getLogger(__name__)
READS = 3
"""How many completions are read for each batch that is wanted, at most. A batch that was tried again shows no speed."""


class MeasuredBatches:
    """Finds the last batches in a log that show how fast the job is. Used by one thread. Reads nothing twice, for whichever streams.

    Args:
        store: the checkpoint.
        contents: of its log, rebound.
        most: the number of batches of each stream.
    """

    def __init__(self, store: FileStore, contents: LogContents, most: int) -> None:
        self._store = store
        self._contents = contents
        self._most = most
        self._completions: dict[Time, Completion | None] = {}
        self._segment: list[PastBatch] | None = None

    def of(self, stream_id: int) -> list[BatchInfo]:
        """Return the newest batches of a stream that had records of it and show a speed, without outputs and facts.

        Their moments are counted from the batch time. Batches of a former interval are left out: they had another size. The figures only
        help to choose a limit. So an error of the store or in a record is a warning, and the batches that were read before it count.

        Blocks: a read for each batch of the log; if the log has too few, a listing and a read of the newest segment of the history.

        Returns:
            The batches, oldest first.
        """
        found: list[BatchInfo] = []
        try:
            for info in chain(self._of_log(stream_id), self._of_history(stream_id)):
                if info.measures_speed:
                    found.append(info)
                if len(found) == self._most:
                    break
        except (CorruptRecordError, FormatVersionError, StorageError) as e:
            logger.warning("the speed of the last batches of stream %d is not fully known: %s", stream_id, e)
        return found[::-1]

    def _of_log(self, stream_id: int) -> Iterator[BatchInfo]:
        """Yield the batches of the log whose delays are known, newest first."""
        plans = [self._contents.plans[time] for time in sorted(self._contents.done, reverse=True) if self._is_of_this_interval(time)]
        for plan in [plan for plan in plans if plan.num_records.get(stream_id)][: READS * self._most]:
            completion = self._completion(plan)
            if completion is not None and completion.delays is not None:
                found = InputFigures(bytes=self._of_stream(stream_id, completion.num_bytes, completion.epoch))
                yield _info(plan.time, StreamInputInfo(stream_id, plan.num_records[stream_id], figures=found), completion.delays)

    def _of_history(self, stream_id: int) -> Iterator[BatchInfo]:
        """Yield the batches of the newest segment, newest first. The history has no bytes."""
        for batch in reversed(self._newest_segment()):
            time, records = batch.plan.time, self._of_stream(stream_id, batch.plan.num_records, batch.plan.epoch)
            if records and batch.delays is not None and time not in self._contents.plans and self._is_of_this_interval(time):
                yield _info(time, StreamInputInfo(stream_id, records), batch.delays)

    def _is_of_this_interval(self, time: Time) -> bool:
        """Return whether a batch is newer than the last change of the batch interval."""
        meta = self._contents.meta
        return meta is None or meta.after is None or time > meta.after

    def _of_stream(self, stream_id: int, values: Mapping[int, int], epoch: int) -> int | None:
        """Return the value of a stream, of values by the numbers of an epoch. None if there is none, or if no plan tells these numbers."""
        now = self._contents.numbers.get(epoch, {})
        return next((value for number, value in values.items() if now.get(number) == stream_id), None)

    def _completion(self, plan: BatchPlan) -> Completion | None:
        """Return the completion of a batch; None if clean-up has removed it. Blocks: one read, once."""
        if plan.time not in self._completions:
            self._completions[plan.time] = read_completion(self._store, plan.time, plan.epoch)
        return self._completions[plan.time]

    def _newest_segment(self) -> list[PastBatch]:
        """Return the newest segment of the history; empty without one. Blocks: a listing and a read, once; nothing without a plan."""
        if self._segment is None:
            names = segments(self._store) if self._contents.has_begun else []
            try:
                self._segment = read_segment(self._store, names[-1]) if names else []
            except MissingFileError:  # a fenced driver still cleans up
                self._segment = []
        return self._segment


def _info(time: Time, source: StreamInputInfo, delays: BatchDelays) -> BatchInfo:
    """Return the facts of a batch with this input."""
    start_ms = time.milliseconds + delays.scheduling_ms
    return BatchInfo(time, {source.stream_id: source}, time.milliseconds, start_ms, start_ms + delays.processing_ms, {}, delays.tries)
