"""TestInputStream: an input whose batches are given by the test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kstream.batch import JsonPlan
from kstream.batch_time import Time
from kstream.dstream import InputDStream
from kstream.dstream.ports import StreamHost
from kstream.dstream.recipe import Recipe

if TYPE_CHECKING:
    from pyspark import RDD

KIND = "testing-input"


class TestInputStream(InputDStream[JsonPlan]):
    """An input that gives the records of `batches[i]` to the batch with index i = (time − zero time) / slide − 1.

    The first batch after the zero time has index 0. The index depends only on the batch time. So after a restart every batch, also a missed
    one, gets the records that it would have got without the restart. The stream is restored with or without a call of `setup`.

    Args:
        ssc: the StreamingContext.
        batches: the records of each batch. None instead of records makes no RDD, as a broken input would. Later batches are empty.
        numPartitions: the number of partitions of each RDD.
    """

    __test__ = False  # or pytest takes the class for a test, because its name begins with Test

    def __init__(self, ssc: StreamHost, batches: Sequence[Sequence[Any] | None], numPartitions: int = 2) -> None:
        super().__init__(ssc)
        self._batches = [None if records is None else list(records) for records in batches]
        self._partitions_of_each = numPartitions
        self.register_recipe()

    def plan(self, time: Time) -> JsonPlan:
        """Return a plan with the index of the batch and its number of records."""
        assert self.zero_time is not None
        index = time.since(self.zero_time).milliseconds // self.slide_duration.milliseconds - 1
        records = self._records(index)
        return JsonPlan({"index": index}, len(records or ()), is_empty=not records)

    def rdd(self, time: Time, plan: JsonPlan) -> RDD[Any] | None:
        records = self._records(plan.get("index", -1))  # the starting point has no index
        return None if records is None else self.ssc.sparkContext.parallelize(records, self._partitions_of_each)

    def _records(self, index: int) -> list[Any] | None:
        return self._batches[index] if 0 <= index < len(self._batches) else []

    def recipe(self) -> Recipe:
        batches: Any = self._batches
        return Recipe(KIND, {"partitions": self._partitions_of_each}, {"batches": batches})


def restore_input(ssc: StreamHost, recipe: Recipe) -> TestInputStream:
    """Restore a stored TestInputStream from its recipe. Called at a restart, through `connectors.load("testing")`."""
    batches: Any = recipe.functions["batches"]
    return TestInputStream(ssc, batches, recipe.args["partitions"])
