"""TestInputStream: a stream whose batches are written down in the test."""

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
    """Gives `batches[i]` to the batch of index i = (time − zeroTime) / slide − 1: to the first batch of the stream's life the first one.

    The index comes from the batch time alone, so a restarted driver gives every batch, also those it missed, what they would have had.
    Past the end batches are empty. An entry of None makes no RDD, as a broken input would. Each RDD has `numPartitions` partitions. It
    survives a restart with and without the call of `setup`.
    """

    __test__ = False  # pytest takes what is called Test… for a test

    def __init__(self, ssc: StreamHost, batches: Sequence[Sequence[Any] | None], numPartitions: int = 2) -> None:
        super().__init__(ssc)
        self._batches = [None if records is None else list(records) for records in batches]
        self._partitions_of_each = numPartitions
        self.register_recipe()

    def plan(self, time: Time) -> JsonPlan:
        assert self.zero_time is not None
        index = time.since(self.zero_time).milliseconds // self.slide_duration.milliseconds - 1
        return JsonPlan({"index": index}, len(self._records(index) or ()))

    def rdd(self, time: Time, plan: JsonPlan) -> RDD[Any] | None:
        records = self._records(plan.get("index", -1))  # the plan of a first start, of a batch of nothing, has no index
        return None if records is None else self.ssc.sparkContext.parallelize(records, self._partitions_of_each)

    def _records(self, index: int) -> list[Any] | None:
        return self._batches[index] if 0 <= index < len(self._batches) else []

    def recipe(self) -> Recipe:
        batches: Any = self._batches
        return Recipe(KIND, {"partitions": self._partitions_of_each}, {"batches": batches})


def restore_input(ssc: StreamHost, recipe: Recipe) -> TestInputStream:
    """Makes a stored TestInputStream again; called on restart, through `connectors.load("testing")`."""
    batches: Any = recipe.functions["batches"]
    return TestInputStream(ssc, batches, recipe.args["partitions"])
