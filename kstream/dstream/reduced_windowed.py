"""ReducedWindowedDStream: a window's totals made of the window before: less what fell out of it, plus what came in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.storagelevel import StorageLevel

from kstream.batch import KeyHash
from kstream.batch_time import Duration, Time
from kstream.dstream.rdd_functions import co_grouped
from kstream.dstream.stateful_dstream import StatefulDStream
from kstream.dstream.windowed import check_window
from kstream.worker.process import freeze_gc

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.dstream.dstream import DStream

Combine = Callable[[Any, Any], Any]


class ReducedWindowedDStream(StatefulDStream):
    """At T: (key, the values of (T − window, T] combined), from a parent whose batches are reduced by key already.

    What a batch costs depends on the slide duration and the number of keys, not on the window. A key that fell out of the window stays,
    with whatever `inverse` has left of it, unless `keep` – called with each (key, value) – says that it is to go.
    """

    key_hash = KeyHash.PYSPARK
    survives_absence = False
    operator = "reduceByKeyAndWindow"

    def __init__(
        self, parent: DStream, combine: Combine, inverse: Combine, window: Duration, slide: Duration, partitions: int,
        keep: Callable[[Any], Any] | None,
    ) -> None:  # fmt: skip
        check_window(parent, window, slide)
        super().__init__(parent, slide)
        self.window_duration = window
        self._combine, self._inverse, self._keep = combine, inverse, keep
        self._partitions_of_state = partitions
        parent.store(StorageLevel.MEMORY_ONLY)

    def reaches_back_to(self, time: Time) -> Time:
        """A batch subtracts what has left the window since the batch before it."""
        return time - self.slide_duration - self.window_duration + self.dependencies[0].slide_duration

    def parent_remember_duration(self) -> Duration:
        return self.remember_duration + self.window_duration

    def compute(self, time: Time) -> RDD[Any] | None:
        """The last state need not be of T − slide: at batch times that were never planned none is made."""
        state, before = self.previous(time), self.previous_time(time)
        begin, left = time - self.window_duration, list[Any]()
        if before is not None:
            left = self._batches(before - self.window_duration, min(before, begin))
            begin = max(before, begin)
        empty: RDD[Any] = self.ssc.sparkContext.emptyRDD()
        parts = [state or empty, *left, *self._batches(begin, time)]
        step = _step(self._combine, self._inverse, self._keep, 1 + len(left))
        return self.placed(time, lambda: co_grouped(parts, self._partitions_of_state).mapPartitions(step, preservesPartitioning=True))

    def _batches(self, after: Time, until: Time) -> list[RDD[Any]]:
        """The parent's RDDs of (after, until]."""
        parent = self.dependencies[0]
        return parent.slice_rdds(after + parent.slide_duration, until)


def _step(
    combine: Combine, inverse: Combine, keep: Callable[[Any], Any] | None, first_new: int
) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """From (key, (the old total, one list a batch that left, one list a batch that came)) to (key, new total)."""

    def run(entries: Iterable[tuple[Any, tuple[list[Any], ...]]]) -> Iterable[Any]:
        freeze_gc()
        for key, (old, *batches) in entries:
            left, came = (list(chain(*part)) for part in (batches[: first_new - 1], batches[first_new - 1 :]))
            totals = [inverse(old[0], reduce(combine, left))] if old and left else old
            if not totals and not came:
                continue  # it has left the window, and the total before knew nothing of it: `keep` had let it go
            record = key, reduce(combine, [*totals, *came])
            if keep is None or keep(record):
                yield record

    return run
