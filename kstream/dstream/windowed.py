"""WindowedDStream: the union of the parent's last RDDs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.storagelevel import StorageLevel

from kstream.batch_time import Duration, Time
from kstream.dstream.dstream import DStream

if TYPE_CHECKING:
    from pyspark import RDD


def check_window(parent: DStream, window: Duration, slide: Duration) -> None:
    """ValueError unless both are positive multiples of the parent's slide duration."""
    for name, value in (("window", window), ("slide", slide)):
        if value.milliseconds <= 0 or not value.isMultipleOf(parent.slide_duration):
            raise ValueError(
                f"the {name} duration of a windowed stream ({value}) must be a positive multiple of the slide duration of its "
                f"parent ({parent.slide_duration})"
            )


class WindowedDStream(DStream):
    """At T the parent's RDDs of (T − window, T]; a first, partial window is emitted too. Slides by its own step.

    The parent is persisted (its RDDs are used `window / slide` times), this stream is not: persisting it persists the parent.
    """

    def __init__(self, parent: DStream, window: Duration, slide: Duration) -> None:
        check_window(parent, window, slide)
        super().__init__(parent.ssc, (parent,), slide)
        self.window_duration = window
        parent.store(StorageLevel.MEMORY_ONLY)

    def store(self, level: StorageLevel) -> None:
        self.dependencies[0].store(level)

    def has_batch(self, time: Time) -> bool:
        """Always: a window stands also where its newest batch is missing."""
        return True

    def reaches_back_to(self, time: Time) -> Time:
        return time - self.window_duration + self.dependencies[0].slide_duration

    def parent_remember_duration(self) -> Duration:
        return self.remember_duration + self.window_duration

    def compute(self, time: Time) -> RDD[Any] | None:
        parent = self.dependencies[0]
        rdds = parent.slice_rdds(time - self.window_duration + parent.slide_duration, time)
        sc = self.ssc.sparkContext
        return self.placed(time, lambda: sc.union(rdds) if rdds else sc.emptyRDD())
