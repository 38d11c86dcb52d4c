"""BatchFindings: the driver's end of what tasks report, a Spark accumulator per stream."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from kstream_kafka.reader.read_report import Place, Plain, merge

if TYPE_CHECKING:
    from pyspark import SparkContext

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
