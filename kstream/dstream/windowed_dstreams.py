"""Windows over a stream's last batches.

WindowedDStream is the union of the batches. ReducedWindowedDStream makes the totals of a window from those of the window before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.storagelevel import StorageLevel

from kstream.batch import KeyHash
from kstream.batch_time import Duration, Time
from kstream.dstream.node import DStreamNode
from kstream.dstream.rdd_functions import co_grouped
from kstream.dstream.stateful_dstream import StatefulDStream
from kstream.public_call import refused
from kstream.worker.process import begin_task

if TYPE_CHECKING:
    from pyspark import RDD

Combine = Callable[[Any, Any], Any]


def check_window(parent: DStreamNode, window: Duration, slide: Duration) -> None:
    """Raise ValueError unless both durations are positive multiples of the parent's slide duration."""
    for name, value in (("window", window), ("slide", slide)):
        if value.milliseconds <= 0 or not value.isMultipleOf(parent.slide_duration):
            step = parent.slide_duration
            times = max(1, value.milliseconds // step.milliseconds)
            fitting = sorted({times, times + (value > step)})
            raise refused(
                ValueError(
                    f"the {name} duration of a windowed stream ({value}) must be a positive multiple of the slide duration of its "
                    f"parent ({step}): give {' or '.join(f'{(step * n).seconds:g}' for n in fitting)} seconds"
                )
            )


class WindowedDStream(DStreamNode):
    """The stream of `window`. The RDD at T is the union of the parent's RDDs of (T − window, T]. The first windows are partial.

    The parent's RDDs are persisted, because each is used in several windows. This stream is not persisted: a storage level that is set
    on it is set on the parent.
    """

    def __init__(self, parent: DStreamNode, window: Duration, slide: Duration) -> None:
        check_window(parent, window, slide)
        super().__init__(parent.ssc, (parent,), slide)
        self.window_duration = window
        parent.set_storage_level(StorageLevel.MEMORY_ONLY)

    def set_storage_level(self, level: StorageLevel) -> None:
        self.dependencies[0].set_storage_level(level)

    def has_batch(self, time: Time) -> bool:
        """Return True: a window has an RDD also if its newest batch was not planned."""
        return True

    def reaches_back_to(self, time: Time) -> Time:
        """Return the oldest batch of the window."""
        return time - self.window_duration + self.dependencies[0].slide_duration

    def parent_remember_duration(self) -> Duration:
        return self.remember_duration + self.window_duration

    def compute(self, time: Time) -> RDD[Any] | None:
        """Return the union of the parent's RDDs in the window; an empty RDD if there are none."""
        parent = self.dependencies[0]
        rdds = parent.slice_rdds(time - self.window_duration + parent.slide_duration, time)
        sc = self.ssc.sparkContext
        return self.placed(time, lambda: sc.union(rdds) if rdds else sc.emptyRDD())


class ReducedWindowedDStream(StatefulDStream):
    """The stream of `reduceByKeyAndWindow` with an inverse. The RDD at T has (key, combined values of (T − window, T]).

    The parent's batches are reduced by key already. The cost of a batch depends on the slide duration and the number of keys, not on the
    window. A key without values in the window stays, with the total that `inverse` has left, unless `keep((key, total))` is false.
    """

    key_hash = KeyHash.PYSPARK
    survives_absence = False
    takes_out = True
    operator = "reduceByKeyAndWindow"

    def __init__(
        self,
        parent: DStreamNode,
        combine: Combine,
        inverse: Combine,
        window: Duration,
        slide: Duration,
        partitions: int | None,
        keep: Callable[[Any], Any] | None,
    ) -> None:
        check_window(parent, window, slide)
        super().__init__(parent, slide)
        self.window_duration = self.totals_window = window
        self._combine, self._inverse, self._keep = combine, inverse, keep
        self._partitions = partitions
        self._parallelism = self.ssc.sparkContext.defaultParallelism
        parent.set_storage_level(StorageLevel.MEMORY_ONLY)

    def reaches_back_to(self, time: Time) -> Time:
        """Return the oldest batch of the window before this one: its values that have left the window are taken out."""
        return time - self.slide_duration - self.window_duration + self.dependencies[0].slide_duration

    def parent_remember_duration(self) -> Duration:
        return self.remember_duration + self.window_duration

    def compute(self, time: Time) -> RDD[Any] | None:
        """Return the RDD of the new totals: the last ones, without the batches that have left the window since, and with those that came.

        The last totals may be older than T − slide, because times that were not planned have none.
        """
        state, before = self.previous(time), self.previous_time(time)
        begin, left = time - self.window_duration, list[Any]()
        if before is not None:
            left = self._batches(before - self.window_duration, min(before, begin))
            begin = max(before, begin)
        empty: RDD[Any] = self.ssc.sparkContext.emptyRDD()
        parts = [state or empty, *left, *self._batches(begin, time)]
        step = _step(self._combine, self._inverse, self._keep, 1 + len(left))
        partitions = self.default_partitions(self._partitions, time, self._parallelism)
        return self.placed(time, lambda: co_grouped(parts, partitions).mapPartitions(step, preservesPartitioning=True))

    def _batches(self, after: Time, until: Time) -> list[RDD[Any]]:
        """Return the parent's RDDs of (after, until]."""
        parent = self.dependencies[0]
        return parent.slice_rdds(after + parent.slide_duration, until)


def _step(
    combine: Combine, inverse: Combine, keep: Callable[[Any], Any] | None, first_new: int
) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """Return a function for `mapPartitions` that makes (key, new total) of each co-grouped key. It runs in the workers.

    Its input is (key, lists) as of `co_grouped`: first the old total, then one list for each batch that has left the window, then one for
    each batch that has come into it.

    Args:
        combine: combines two values.
        inverse: takes a value out of a total.
        keep: returns whether a (key, total) is kept; None keeps all.
        first_new: the index of the list of the first batch that has come.
    """

    def run(entries: Iterable[tuple[Any, tuple[list[Any], ...]]]) -> Iterable[Any]:
        begin_task()
        for key, (old, *batches) in entries:
            left, came = (list(chain(*part)) for part in (batches[: first_new - 1], batches[first_new - 1 :]))
            totals = [inverse(old[0], reduce(combine, left))] if old and left else old
            if not totals and not came:
                continue  # the key has left the window, and `keep` dropped its total before
            record = key, reduce(combine, [*totals, *came])
            if keep is None or keep(record):
                yield record

    return run
