"""Findings: what the reads of one batch met, besides its records: how many there were in each range, and what was lost.

One idea: a worker notes, the driver decides. A task gathers its findings while it reads and hands them to the driver when it has
succeeded; there the findings of all tasks, attempts and jobs of a batch come together in one map, by the place they are about, so
that hearing the same twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kstream_kafka.planning.data_loss import LostRange
from kstream_kafka.planning.offset_range import OffsetRange

Place: TypeAlias = tuple[str, int, int]
"""(topic, partition, first offset)."""
Plain: TypeAlias = dict[str, Any]
"""Findings as they travel: {"counts": {place: (until, records)}, "lost": {place: (until, cause, detail)}}."""


@dataclass(slots=True)
class Findings:
    """One task's. `tolerant`: a loss is noted and the read goes on; else it is raised."""

    tolerant: bool = False
    counts: dict[Place, tuple[int, int]] = field(default_factory=dict[Place, tuple[int, int]])
    lost: dict[Place, tuple[int | None, str, str]] = field(default_factory=dict[Place, tuple[int | None, str, str]])

    def read(self, piece: OffsetRange, records: int) -> None:
        """The piece was read to its end."""
        self.counts[piece.topic, piece.partition, piece.fromOffset] = (piece.untilOffset, records)

    def lose(self, lost: LostRange) -> None:
        self.lost[lost.topic, lost.partition, lost.lost_from] = (lost.lost_until, lost.cause, lost.detail)

    def plain(self) -> Plain:
        """To be sent to the driver; empty when there is nothing to tell."""
        return {name: found for name, found in (("counts", self.counts), ("lost", self.lost)) if found}


def merge(into: dict[int, Plain], more: Mapping[int, Plain]) -> dict[int, Plain]:
    """Adds the findings of tasks, by batch time in ms. Of two counts of a piece the larger stands: the other read was cut short."""
    for time, findings in more.items():
        known = into.setdefault(time, {"counts": {}, "lost": {}})
        for place, (until, records) in findings.get("counts", {}).items():
            known["counts"][place] = max(known["counts"].get(place, (until, 0)), (until, records))
        known["lost"].update(findings.get("lost", {}))
    return into


def counts_of(ranges: Sequence[OffsetRange], counts: Mapping[Place, tuple[int, int]]) -> list[int | None]:
    """How many records each range held: 0 for an empty one, None where no job has read it to its end.

    A range that was split is the sum of its parts.
    """
    return [_count(r, counts) for r in ranges]


def _count(r: OffsetRange, counts: Mapping[Place, tuple[int, int]]) -> int | None:
    at, total = r.fromOffset, 0
    while at < r.untilOffset:
        found = counts.get((r.topic, r.partition, at))
        if found is None:
            return None
        at, total = found[0], total + found[1]
    return total


def losses(found: Mapping[Place, tuple[int | None, str, str]]) -> list[LostRange]:
    """The losses of a batch, by place."""
    return [LostRange(*place, *rest) for place, rest in sorted(found.items())]
