"""RangePlan: the part of an input in a batch, if it is ranges of offsets. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kstream.batch.plan import PlannedInput
from kstream.offsets.offset_range import LostRange, OffsetRange, Partition


class RangePlan(PlannedInput):
    """The plan of a direct stream for one batch. Immutable: any thread. The next plan begins where the ranges of this one end.

    A subclass is a frozen dataclass with these attributes, and with `skipped`.
    """

    ranges: Sequence[OffsetRange]
    """One range for each partition of the stream, empty ranges included, sorted by topic and number."""
    lost: Sequence[LostRange]
    """The losses that were found while planning."""

    @property
    def num_records(self) -> int:
        """The number of offsets of all ranges. It is also the number of records, unless the offsets have gaps, as after compaction."""
        return sum(r.count() for r in self.ranges)

    @property
    def is_empty(self) -> bool:
        """Whether all ranges are empty and nothing was lost."""
        return not (self.num_records or self.lost)

    @property
    def until_offsets(self) -> dict[Partition, int]:
        """The `untilOffset` of each partition: its next offset after this plan."""
        return {(r.topic, r.partition): r.untilOffset for r in self.ranges}
