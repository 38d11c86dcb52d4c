"""QueueInputDStream: RDDs handed over by the driver, for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kstream.batch import InputPlan, Json
from kstream.batch_time import Time
from kstream.dstream.input_dstream import InputDStream
from kstream.dstream.ports import StreamHost
from kstream.errors import NotRecoverableError

if TYPE_CHECKING:
    from pyspark import RDD


class QueueInputDStream(InputDStream):
    """Takes one queued RDD a batch (`one_at_a_time`) or all that are queued; `default` when the queue is empty.

    The queue is the caller's list, read when a batch is planned. It cannot be restored: its RDDs die with the driver.
    """

    reports_input_info = False
    no_recipe_reason = "queueStream doesn't support checkpointing"

    def __init__(self, ssc: StreamHost, queue: list[RDD[Any]], one_at_a_time: bool, default: RDD[Any] | None) -> None:
        super().__init__(ssc)
        self._queue = queue
        self._one_at_a_time = one_at_a_time
        self._default = default
        self._batches: dict[Time, RDD[Any]] = {}

    def plan(self, time: Time) -> InputPlan:
        return InputPlan({"rdds": min(1, len(self._queue)) if self._one_at_a_time else len(self._queue)})

    def planned(self, time: Time, data: Mapping[str, Json]) -> None:
        taken = [self._queue.pop(0) for _ in range(data["rdds"])]
        sc = self.ssc.sparkContext
        if len(taken) > 1:
            self._batches[time] = sc.union(taken)
        elif taken:
            self._batches[time] = taken[0]
        else:
            self._batches[time] = sc.emptyRDD() if self._default is None else self._default

    def restored(self, time: Time, data: Mapping[str, Json]) -> None:
        raise NotRecoverableError(
            "queueStream doesn't support checkpointing. Please don't use queueStream when checkpointing is enabled.",
            time=time.milliseconds,
        )

    def rdd(self, time: Time, data: Mapping[str, Json]) -> RDD[Any] | None:
        return self._batches.get(time)

    def clear_metadata(self, time: Time) -> None:
        super().clear_metadata(time)
        for old in [t for t in self._batches if t <= time - self.remember_duration]:
            del self._batches[old]
