"""Findings: what the reads of one batch met, besides its records: how many there were in each range, and what was lost.

One idea: a worker notes, the driver decides. A task gathers its findings while it reads and hands them to the driver when it has
succeeded; there the findings of all tasks, attempts and jobs of a batch come together in one map, by the place they are about, so
that hearing the same twice changes nothing.

BatchFindings: the driver's end of what tasks report, a Spark accumulator per stream.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from kstream_kafka.planning.data_loss import LostRange
from kstream_kafka.planning.offset_range import OffsetRange

if TYPE_CHECKING:
    from pyspark import SparkContext


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


Counts = dict[Place, tuple[int, int]]


class Merging:
    """How Spark adds up findings: workers begin with an empty dict, the driver merges what they send.

    `lock` guards the driver's dict. Three threads change it: Spark's accumulator thread adds, the one that ends a batch takes, and the
    generator's forgets. Nothing that can block is called under the lock.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __reduce__(self) -> Any:
        return Merging, ()  # tasks get a copy, with a lock of its own

    def zero(self, value: dict[int, Plain]) -> dict[int, Plain]:
        return {}

    def addInPlace(self, value1: dict[int, Plain], value2: dict[int, Plain]) -> dict[int, Plain]:
        with self.lock:
            return merge(value1, value2)


class BatchFindings:
    """Of one stream in one SparkContext. Findings come with the end of each task, before the job's end is known to its caller."""

    def __init__(self, sc: SparkContext) -> None:
        self.merging = Merging()
        self.receiver: Any = sc.accumulator({}, self.merging)  # pyright: ignore[reportArgumentType] # Spark asks for no base class
        """What tasks add to. Pickled into them by its number."""

    def take(self, time_ms: int) -> Plain:
        """Remove and return the findings of a batch: {"counts": …, "lost": …}. Any thread.

        `lost` also has what was lost of older batches since they ended: a window reads their ranges again.
        """
        with self.merging.lock:
            known: dict[int, Plain] = self.receiver.value
            found = known.pop(time_ms, {})
            lost = dict(found.get("lost", {}))
            for older in [t for t in known if t < time_ms]:
                lost.update(known[older].get("lost", {}))
                known[older]["lost"] = {}
        return {"counts": found.get("counts", {}), "lost": lost}

    def forget(self, up_to_ms: int) -> None:
        """Drop what came for batches up to this one after they had ended. Any thread."""
        with self.merging.lock:
            known: dict[int, Plain] = self.receiver.value
            for old in [t for t in known if t <= up_to_ms]:
                del known[old]
