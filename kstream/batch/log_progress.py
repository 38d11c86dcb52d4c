"""The progress of a batch of a log: offsets and lag, for listeners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kstream.batch.input_progress import TOTAL_LAG
from kstream.offsets.offset_range import OffsetRange, Partition
from kstream.offsets.topic_offsets import by_topic

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
