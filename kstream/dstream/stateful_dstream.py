"""StatefulDStream: a stream whose RDD of a batch is made from its own RDD of the batch before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.storagelevel import StorageLevel

from kstream.batch_time import Duration, Time
from kstream.dstream.dstream import DStream

if TYPE_CHECKING:
    from pyspark import RDD


class StatefulDStream(DStream):
    """Base of the streams that carry state. `compute` of a subclass asks `previous` for the state it goes on from.

    Its RDDs are persisted, for the next batch reads them.
    """

    def __init__(self, parent: DStream, slide_duration: Duration) -> None:
        super().__init__(parent.ssc, (parent,), slide_duration)
        self.storage_level = StorageLevel.MEMORY_ONLY

    def previous(self, time: Time) -> RDD[Any] | None:
        """The state as the batch before `time` left it; None before the first batch."""
        before = time - self.slide_duration
        assert self.zero_time is not None
        return self.getOrCompute(before) if before > self.zero_time else None
