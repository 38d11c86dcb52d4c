"""measured_batches: how fast the last batches of a stream were that earlier drivers have completed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from kstream.batch import BatchDelays, BatchInfo, StreamInputInfo
from kstream.batch_time import Time
from kstream.checkpoint.history import read_segment, segments
from kstream.checkpoint.outcomes import read_completion
from kstream.checkpoint.reader import LogContents
from kstream.errors import CorruptRecordError, FormatVersionError, MissingFileError, StorageError
from kstream.storage import FileStore

logger = logging.getLogger(__name__)
READS = 3
"""How many completions are read for each batch that is wanted, at most. A batch that was tried again shows no speed."""


def measured_batches(store: FileStore, contents: LogContents, stream_id: int, most: int) -> list[BatchInfo]:
    """Return the newest batches of a stream that had records of it and show a speed, without outputs and facts.

    Their moments are counted from the batch time. Batches of a former interval are left out: they had another size. These figures only
    help to choose a limit. So an error of the store or in a record is a warning, and the batches that were found before it are returned.

    Blocks: a read for each batch of the log; if the log has too few, a listing and a read of the newest segment of the history.

    Args:
        store: the checkpoint.
        contents: of its log, rebound.
        stream_id: the number of the stream.
        most: the number of batches.

    Returns:
        The batches, oldest first.
    """
    found: list[BatchInfo] = []
    try:
        for info in _newest_first(store, contents, stream_id, READS * most):
            if info.measures_speed:
                found.append(info)
            if len(found) == most:
                break
    except (CorruptRecordError, FormatVersionError, StorageError) as e:
        logger.warning("the speed of the last batches of stream %d is not fully known: %s", stream_id, e)
    return found[::-1]


def _newest_first(store: FileStore, contents: LogContents, stream_id: int, reads: int) -> Iterator[BatchInfo]:
    """Yield the batches of a stream with known delays: those of the log, by no more than so many reads, then those of the history."""
    after = None if contents.meta is None else contents.meta.after
    plans = [contents.plans[time] for time in sorted(contents.done, reverse=True) if after is None or time > after]
    for plan in [plan for plan in plans if plan.num_records.get(stream_id)][:reads]:
        completion = read_completion(store, plan.time, plan.epoch)
        if completion is None or completion.delays is None:
            continue
        now = contents.numbers.get(completion.epoch, {})
        num_bytes = {now[old]: found for old, found in completion.num_bytes.items() if old in now}.get(stream_id)
        yield _info(plan.time, StreamInputInfo(stream_id, plan.num_records[stream_id], num_bytes=num_bytes), completion.delays)
    yield from _of_history(store, contents, stream_id, after)


def _of_history(store: FileStore, contents: LogContents, stream_id: int, after: Time | None) -> Iterator[BatchInfo]:
    """Yield the batches of the newest segment, newest first. It has no bytes. An epoch without a plan in the log has unknown numbers."""
    names = segments(store)
    try:
        batches = read_segment(store, names[-1]) if names else []
    except MissingFileError:  # a fenced driver still cleans up
        return
    for batch in reversed(batches):
        plan, now = batch.plan, contents.numbers.get(batch.plan.epoch, {})
        records = sum(count for old, count in plan.num_records.items() if now.get(old) == stream_id)
        is_new = plan.time not in contents.plans and (after is None or plan.time > after)
        if records and is_new and batch.delays is not None:
            yield _info(plan.time, StreamInputInfo(stream_id, records), batch.delays)


def _info(time: Time, source: StreamInputInfo, delays: BatchDelays) -> BatchInfo:
    """Return the facts of a batch with this input."""
    start_ms = time.milliseconds + delays.scheduling_ms
    return BatchInfo(time, {source.stream_id: source}, time.milliseconds, start_ms, start_ms + delays.processing_ms, {}, delays.tries)
