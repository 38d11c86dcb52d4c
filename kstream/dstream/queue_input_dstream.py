"""QueueInputDStream: a stream of RDDs or lists that the user's program puts into a queue, for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kstream.batch import JsonPlan
from kstream.batch_time import Time
from kstream.dstream.input_dstream import InputDStream
from kstream.dstream.ports import StreamHost
from kstream.dstream.recipe import Recipe
from kstream.errors import NotRecoverableError

if TYPE_CHECKING:
    from pyspark import RDD

QUEUE_KIND = "queue"


class QueueInputDStream(InputDStream[JsonPlan]):
    """The stream of `queueStream`. It cannot be restored, because its RDDs are lost with the driver.

    The queue is the caller's list. It is read when a batch is planned, and never changed. So elements that the caller appends are seen, and
    two streams may share the list. As in Spark, listeners get no record counts.

    Args:
        ssc: the StreamingContext.
        queue: RDDs, or collections of records.
        one_at_a_time: a batch takes one element; otherwise all elements that no batch has taken.
        default: the RDD of a batch for which no element waits; None for an empty RDD.
        as_rdd: returns an RDD of an element. It is called now for the elements that are in the queue now.
    """

    reports_input_info = False

    def __init__(
        self, ssc: StreamHost, queue: Sequence[Any], one_at_a_time: bool, default: RDD[Any] | None, as_rdd: Callable[[Any], RDD[Any]]
    ) -> None:
        super().__init__(ssc)
        self._queue = queue
        self._one_at_a_time = one_at_a_time
        self._default = default
        self._as_rdd = as_rdd
        self._made = {index: as_rdd(element) for index, element in enumerate(queue)}
        self._next = 0
        self._batches: dict[Time, list[Any]] = {}

    @property
    def outlives_driver(self) -> bool:
        return False

    def plan(self, time: Time) -> JsonPlan:
        """Return a plan with the number of elements that the batch takes from the queue."""
        waiting = max(0, len(self._queue) - self._next)
        taken = min(1, waiting) if self._one_at_a_time else waiting
        return JsonPlan({"rdds": taken}, is_empty=taken == 0 and self._default is None)

    def planned(self, time: Time, plan: JsonPlan) -> None:
        """Take the planned number of elements for the batch."""
        taken = range(self._next, self._next + plan["rdds"])
        self._next = taken.stop
        self._batches[time] = [self._made.pop(index, self._queue[index]) for index in taken]

    def restored(self, time: Time, plan: JsonPlan) -> None:
        """Raise NotRecoverableError: the elements of the queue were lost with the earlier driver."""
        raise self.not_recoverable(time=time.milliseconds)

    @staticmethod
    def not_recoverable(**facts: Any) -> NotRecoverableError:
        """Return Spark's error for a restart of this stream."""
        return NotRecoverableError(
            "queueStream doesn't support checkpointing. Please don't use queueStream when checkpointing is enabled.", **facts
        )

    def recipe(self) -> Recipe:
        """Return an empty recipe. As in Spark the stream can be stored with a graph, but a restart fails."""
        return Recipe(QUEUE_KIND, {})

    def rdd(self, time: Time, plan: JsonPlan) -> RDD[Any] | None:
        """Return the union of the elements that the batch took; None for a batch of another driver, whose elements are lost."""
        taken = self._batches.get(time)
        if taken is None:
            return None
        rdds = [self._as_rdd(element) for element in taken]
        sc = self.ssc.sparkContext
        if len(rdds) > 1:
            return sc.union(rdds)
        if rdds:
            return rdds[0]
        return sc.parallelize([], 1) if self._default is None else self._default  # as in Spark: one partition without records

    def clear_metadata(self, time: Time) -> None:
        """Forget old plans, and the elements that their batches took."""
        super().clear_metadata(time)
        for old in self.outdated(self._batches, time):
            del self._batches[old]
