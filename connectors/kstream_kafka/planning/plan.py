"""KafkaPlan: a direct stream's part of a batch, and its stored form.

    {"ranges": [[topic, partition, from, until], …],    every partition in every plan, empty ranges included, by topic and number
     "leader_epochs": [epoch or null, …],               of range i, as the leader said with its end
     "from_epochs": [epoch or null, …],                 under which the beginning of range i was reached: that of the plan before
     "topic_ids": {topic: id} or null}                  null where the brokers tell none

and only where there is something to say: `"ahead": [[topic, partition], …]` while a given start offset lies past the log's end,
`"until": [[topic, partition, offset], …]` in a bounded run once its stopping offsets are known, `"lost": [{…}, …]` for losses found while
planning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kstream.batch import Json, PlannedInput
from kstream_kafka.client.ports import Partition
from kstream_kafka.planning.data_loss import LostRange
from kstream_kafka.planning.offset_range import OffsetRange
from kstream_kafka.planning.packing import RangeSplit


@dataclass(frozen=True)
class KafkaPlan(PlannedInput):
    """See the module. Range i ends at its `untilOffset`, which the next plan of the stream begins at."""

    ranges: Sequence[OffsetRange]
    leader_epochs: Sequence[int | None]
    from_epochs: Sequence[int | None]
    topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    ahead: frozenset[Partition] = frozenset()
    stopping_offsets: Mapping[Partition, int] | None = None
    """Where a bounded run ends; None while that is not known, and in a run without bounds."""
    lost: Sequence[LostRange] = ()

    @property
    def num_records(self) -> int:
        return sum(r.count() for r in self.ranges)

    @property
    def splits(self) -> list[RangeSplit]:
        """The ranges with their epochs, as they are read."""
        return [RangeSplit(*row) for row in zip(self.ranges, self.leader_epochs, self.from_epochs, strict=True)]

    @property
    def until_offsets(self) -> dict[Partition, int]:
        """The `untilOffset` of each partition: where it stands after this plan."""
        return {(r.topic, r.partition): r.untilOffset for r in self.ranges}

    @property
    def until_epochs(self) -> dict[Partition, int | None]:
        """The leader epochs under which the `untilOffset`s were reached.

        An empty range has reached nothing: what its leader says now may be said of a log that was cut below it and has grown again.
        """
        rows = zip(self.ranges, self.from_epochs, self.leader_epochs, strict=True)
        return {(r.topic, r.partition): begun if begun is not None and not r.count() else now for r, begun, now in rows}

    def encode(self) -> dict[str, Json]:
        """Return the stored form."""
        data: dict[str, Json] = {
            "ranges": [r.to_json() for r in self.ranges],
            "leader_epochs": list(self.leader_epochs),
            "from_epochs": list(self.from_epochs),
            "topic_ids": dict(self.topic_ids) or None,
        }
        if self.ahead:
            data["ahead"] = [list(p) for p in sorted(self.ahead)]
        if self.stopping_offsets is not None:
            data["until"] = [[*p, offset] for p, offset in sorted(self.stopping_offsets.items())]
        if self.lost:
            data["lost"] = [lost.to_json() for lost in self.lost]
        return data

    @staticmethod
    def is_of(data: Mapping[str, Json]) -> bool:
        """Whether the stored data is of a Kafka stream, and not of another kind of input."""
        return "ranges" in data

    @staticmethod
    def decode(data: Mapping[str, Json]) -> KafkaPlan:
        """The inverse of `encode`; also of plans that have no `from_epochs` yet."""
        until = data.get("until")
        ranges = [OffsetRange.from_json(r) for r in data["ranges"]]
        unknown = [None] * len(ranges)
        return KafkaPlan(
            ranges,
            data.get("leader_epochs") or unknown,
            data.get("from_epochs") or unknown,
            data.get("topic_ids") or {},
            frozenset((str(topic), int(number)) for topic, number in data.get("ahead", ())),
            None if until is None else {(str(t), int(n)): int(offset) for t, n, offset in until},
            [LostRange.from_json(entry) for entry in data.get("lost", ())],
        )


def skipped_between(before: KafkaPlan, after: KafkaPlan) -> list[str]:
    """The offsets between two consecutive plans of a stream that neither has, and no entry in `after` explains. Pure.

    Silent about a partition that is in one of the plans only (it is new, was deleted, left the subscription or came back to it), about
    a topic with another id (made anew), about a partition that `after` has a loss of, and about offsets that are read again.
    """
    until_offsets = before.until_offsets
    lost = {(entry.topic, entry.partition) for entry in after.lost}
    anew = {topic for topic, number in after.topic_ids.items() if before.topic_ids.get(topic, number) != number}
    begins = ((r.topic, r.partition, r.fromOffset) for r in after.ranges if r.topic not in anew and (r.topic, r.partition) not in lost)
    return [f"{t}-{n} [{until_offsets[t, n]}, {at})" for t, n, at in begins if until_offsets.get((t, n), at) < at]
