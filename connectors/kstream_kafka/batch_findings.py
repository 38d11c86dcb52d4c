"""BatchFindings: the driver's end of what tasks report, a Spark accumulator per stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstream_kafka.findings import Place, Plain, merge

if TYPE_CHECKING:
    from pyspark import SparkContext

Counts = dict[Place, tuple[int, int]]


class _Merging:
    """How Spark adds up findings. Workers add to an empty one; the driver's is changed by Spark's accumulator thread alone."""

    def zero(self, value: dict[int, Plain]) -> dict[int, Plain]:
        return {}

    def addInPlace(self, value1: dict[int, Plain], value2: dict[int, Plain]) -> dict[int, Plain]:
        return merge(value1, value2)


class BatchFindings:
    """Of one stream in one SparkContext. Findings come with the end of each task, before the job's end is known to its caller."""

    def __init__(self, sc: SparkContext) -> None:
        self.receiver: Any = sc.accumulator({}, _Merging())  # pyright: ignore[reportArgumentType] # Spark asks for no base class
        """What tasks add to. Pickled into them by its number."""

    def take(self, time_ms: int) -> Plain:
        """The findings of a batch: {"counts": …, "lost": …}. Of older batches, whose ranges a window has read again, what was lost."""
        known: dict[int, Plain] = self.receiver.value
        found = known.pop(time_ms, {})
        lost = dict(found.get("lost", {}))
        for older in [t for t in list(known) if t < time_ms]:
            lost.update(known[older].get("lost", {}))
            known[older]["lost"] = {}
        return {"counts": found.get("counts", {}), "lost": lost}

    def forget(self, up_to_ms: int) -> None:
        """Drops what came for batches up to this one after they had ended."""
        known: dict[int, Plain] = self.receiver.value
        for old in [t for t in list(known) if t <= up_to_ms]:
            known.pop(old, None)
