"""LogPlan: the part of a batch that the direct stream of a Log reads, and its stored form. Pure.

    {"kind": "log",
     "log": name of the Log,
     "ranges": [[topic, partition, from, until], …]}    all partitions, empty ranges included, sorted

`"lost": [{…}, …]` is stored only if the batch was planned after a loss.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kstream.batch import Json, SkippedRecord
from kstream.batch.plan import LOG, RangePlan
from kstream.offsets.offset_range import LostRange, OffsetRange, Partition

KIND = "log-"
"""The kind of a recipe, before the name of the Log."""


@dataclass(frozen=True)
class LogPlan(RangePlan):
    """The ranges of a batch. Immutable. The next plan begins where these ranges end.

    Attributes:
        log: the name of the Log.
        ranges: one range for each partition, empty ranges included, sorted by topic and number.
        lost: losses that were found while planning.
        skipped: the records that are left out of the ranges. They are not part of the stored form.
    """

    log: str
    ranges: Sequence[OffsetRange]
    lost: Sequence[LostRange] = ()
    skipped: Collection[SkippedRecord] = ()

    def encode(self) -> dict[str, Json]:
        """Return the stored form, as described at the top of this module."""
        data: dict[str, Json] = {"kind": LOG, "log": self.log, "ranges": [r.to_json() for r in self.ranges]}
        if self.lost:
            data["lost"] = [lost.to_json() for lost in self.lost]
        return data

    @staticmethod
    def decode(data: Mapping[str, Json]) -> LogPlan:
        """Return the plan of a stored form, which may lack `kind`. KeyError if the data is of another kind of input."""
        ranges = [OffsetRange.from_json(r) for r in data["ranges"]]
        return LogPlan(data["log"], ranges, [LostRange.from_json(entry) for entry in data.get("lost", ())])

    @staticmethod
    def empty_at(log: str, offsets: Mapping[Partition, int], lost: Sequence[LostRange] = ()) -> LogPlan:
        """Return a plan that reads nothing and ends at these offsets."""
        return LogPlan(log, [OffsetRange(*p, at, at) for p, at in sorted(offsets.items())], lost)
