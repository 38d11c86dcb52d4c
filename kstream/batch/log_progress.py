"""The progress and the outcome of a batch of a log: offsets and lag for listeners, counts and losses for the ledger."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kstream.batch.input_progress import TOTAL_LAG
from kstream.batch.plan import InputOutcome
from kstream.batch_time import Time
from kstream.offsets.offset_range import LostRange, OffsetRange, Partition
from kstream.offsets.skipped_record import SkippedRecord
from kstream.offsets.topic_offsets import by_topic
from kstream.worker.record_errors import KindCounts

NO_LIMITS: Mapping[str, Any] = MappingProxyType({})


def metadata_of(
    ranges: Sequence[OffsetRange],
    latest: Mapping[Partition, int] | None,
    pinned: Mapping[Partition, int],
    description: str,
    limits: Mapping[str, Any] = NO_LIMITS,
) -> dict[str, Any]:
    """Return the metadata of a batch.

    Args:
        ranges: the planned ranges.
        latest: the ends of the logs when the batch was planned; None if they are unknown.
        pinned: partition → offset of a record from the future, under the by-timestamp policy.
        description: the system and the part of it that the stream reads, such as `Kafka[Subscribe[orders]]`.
        limits: what limits the batch; see `AdmissionControl.limits_of`.

    Returns:
        A dict with `offsets` (the ranges), `Description` (Spark's text about the ranges that are not empty) and `progress` (JSON values).
    """
    described = (f"topic: {r.topic}\tpartition: {r.partition}\toffsets: {r.fromOffset} to {r.untilOffset}" for r in ranges if r.count())
    return {
        "offsets": list(ranges),
        "Description": "\n".join(described),
        "progress": {**_progress(ranges, latest, pinned, description), **limits},
    }


def _progress(
    ranges: Sequence[OffsetRange], latest: Mapping[Partition, int] | None, pinned: Mapping[Partition, int], description: str
) -> dict[str, Any]:
    """Return the progress with the names of Structured Streaming. If the log ends are unknown, `latestOffset` and `metrics` are None."""
    progress: dict[str, Any] = {
        "description": description,
        "startOffset": by_topic({(r.topic, r.partition): r.fromOffset for r in ranges}),
        "endOffset": by_topic({(r.topic, r.partition): r.untilOffset for r in ranges}),
        "latestOffset": None,
        "metrics": None,
    }
    if latest is not None:
        progress["latestOffset"] = by_topic(latest)
        lags = [max(latest[r.topic, r.partition] - r.untilOffset, 0) for r in ranges if (r.topic, r.partition) in latest]
        if lags:
            progress["metrics"] = {
                "minOffsetsBehindLatest": min(lags),
                "maxOffsetsBehindLatest": max(lags),
                "avgOffsetsBehindLatest": sum(lags) / len(lags),
                TOTAL_LAG: sum(lags),
            }
    if pinned:
        progress["pinned"] = by_topic(pinned)
    return progress


def outcome_of(
    time: Time,
    counts: Sequence[int | None],
    lost: Sequence[LostRange],
    report: bool,
    logger: logging.Logger,
    skipped: Iterable[SkippedRecord] = (),
    errors: KindCounts | None = None,
    num_bytes: int | None = None,
) -> InputOutcome:
    """Return the outcome of a batch for the completion record and the ledger. Logs a warning for each loss. Any thread.

    Args:
        time: the batch time.
        counts: the number of records of each range of the plan; None if it is not known.
        lost: the losses of the plan and of the read report.
        report: whether listeners get the losses.
        logger: the log of the stream.
        skipped: the records that the batch has left out.
        errors: the record errors of the batch by their kind; None without any.
        num_bytes: the bytes of its records, estimated; None if they are not known.
    """
    for entry in lost:
        logger.warning("batch %s, lost records of %s-%d from %d: %s", time, entry.topic, entry.partition, entry.lost_from, entry.detail)
    kinds = [(*kind, records) for kind, (records, _) in sorted((errors or {}).items())]
    return InputOutcome(counts, [entry.to_json() for entry in lost], report, sorted(skipped), kinds, num_bytes)
