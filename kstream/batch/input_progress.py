"""InputProgress: what an input reports of its share in a batch: what it reads, its offsets, its lag, and what limits it.

An input reports JSON values: the key `progress` of `InputDStream.metadata`. They become entries of `sources` in `ssc.lastProgress` as they
are. The log, the status, the metrics and the page read them here, so that all of them have the same figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Offsets: TypeAlias = Mapping[str, Mapping[str, int]]
"""Topic → partition → offset, as Structured Streaming's progress has it."""
TOTAL_LAG = "totalOffsetsBehindLatest"
"""The metric with the lag of all partitions. Without it the lag is a sum over the partitions, whenever it is asked for."""
_PARSED = ("description", "startOffset", "endOffset", "latestOffset", "readLimit")


@dataclass(frozen=True, slots=True)
class InputProgress:
    """The progress of one input in a batch. An input may report any part of it, or nothing.

    Attributes:
        values: the JSON values as the input has reported them.
    """

    values: Mapping[str, Any]

    @property
    def description(self) -> str:
        """The system and the part of it that the input reads, such as `Kafka[Subscribe[orders]]`; empty without one."""
        return str(self.values.get("description", ""))

    @property
    def start_offsets(self) -> Offsets:
        """Where the batch begins."""
        return self.values.get("startOffset", {})

    @property
    def end_offsets(self) -> Offsets:
        """Where the batch ends, and the next one begins."""
        return self.values.get("endOffset", {})

    @property
    def latest_offsets(self) -> Offsets | None:
        """Where the logs ended when the batch was planned; None if that is not known."""
        return self.values.get("latestOffset")

    @property
    def lag(self) -> int | None:
        """The records after the batch, up to the ends of the logs when it was planned; None if they are not known.

        Its cost does not depend on the number of partitions if the input reports TOTAL_LAG.
        """
        metrics: Mapping[str, Any] | None = self.values.get("metrics")
        if metrics is not None and TOTAL_LAG in metrics:
            return metrics[TOTAL_LAG]
        latest = self.latest_offsets
        return None if latest is None else lag_between(self.end_offsets, latest)

    @property
    def read_limit(self) -> Mapping[str, Any] | None:
        """Why the batch has fewer records than the logs had: `reason`, and what the input says of it; None if it has all of them."""
        return self.values.get("readLimit")

    @property
    def limited_by(self) -> str | None:
        """The reason of the read limit; None without one."""
        limit = self.read_limit
        return None if limit is None else str(limit["reason"])

    @property
    def backpressure_rate(self) -> int | None:
        """The rate of back-pressure under which the batch was planned, in records a second; None without one."""
        return self.values.get("backpressureRate")

    @property
    def other_facts(self) -> dict[str, Any]:
        """What the input reports besides: its metrics, and facts that only this kind of input has."""
        return {key: value for key, value in self.values.items() if key not in _PARSED}


def lag_between(planned: Offsets, latest: Offsets) -> int:
    """Return how many records lie between two positions, over all partitions of which both are known. Pure."""
    return sum(
        max(0, ends[partition] - offset)
        for topic, offsets in planned.items()
        if (ends := latest.get(topic)) is not None
        for partition, offset in offsets.items()
        if partition in ends
    )
