"""StateOperators: transformations that carry a state from batch to batch.

They need a checkpoint directory: of the StreamingContext, or of the SparkContext if no restart is to recover the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstream.dstream.base import DStreamBase
from kstream.dstream.recipe import on_workers, recorded

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.dstream.dstream import DStream


class StateOperators(DStreamBase):
    """The part of DStream for (key, value) records whose keys have a state."""

    @recorded
    @on_workers("updateFunc")
    def updateStateByKey(
        self,
        updateFunc: Callable[..., Any],
        numPartitions: int | None = None,
        initialRDD: RDD[Any] | Iterable[Any] | None = None,
    ) -> DStream:
        """(key, state) for every key: updateFunc(values of this batch, state before or None) is its new state; None drops the key.

        It runs for every key in every batch, with an empty list where the batch has nothing for it. A function that must be given four
        arguments gets (batch `Time`, key, values, state). `initialRDD`: (key, state) pairs to begin with, seen in the first batch.
        """
        from kstream.dstream.state_dstream import StateDStream, with_time_and_key

        initial: Any = initialRDD
        if initial is not None and not hasattr(initial, "ctx"):
            initial = self.ssc.sparkContext.parallelize(list(initial))
        return StateDStream(self._stream, with_time_and_key(updateFunc), self._partitions(numPartitions), initial)
