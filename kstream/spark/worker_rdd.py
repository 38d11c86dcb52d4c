"""WorkerRDD: an RDD whose partitions are made in Spark's Python workers by `make(index)`, from nothing that is sent to them.

PySpark only has RDDs of data that is already somewhere. This is a PipelinedRDD over a JVM RDD of n empty partitions, so that a
later `map` or `filter` runs in the same Python worker, in one pass. The empty RDD is made once per SparkContext and n: `parallelize`
writes a file and calls the JVM several times, too dear for every batch. Works with pyspark 3.5 – 4.3 (`PipelinedRDD`'s constructor).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext

if TYPE_CHECKING:
    from pyspark.core.rdd import PipelinedRDD
else:
    try:
        from pyspark.core.rdd import PipelinedRDD
    except ModuleNotFoundError:  # pyspark 3.5
        from pyspark.rdd import PipelinedRDD

_BASES = "_kstream_empty_rdds"
_lock = threading.Lock()


class WorkerRDD(PipelinedRDD[Any, Any]):
    """An RDD of `partitions` partitions, partition i being `make(i)`. `make` is pickled into the tasks by cloudpickle.

    Made on the driver, by any thread; nothing runs until an action. Each computation of a partition calls `make` anew.
    """

    def __init__(self, sc: SparkContext, partitions: int, make: Callable[[int], Iterable[Any]]) -> None:
        def compute(index: int, nothing: Iterable[Any]) -> Iterable[Any]:
            for _ in nothing:  # to its end: Spark throws a worker away whose input was left unread, and every task starts a new one
                pass
            return make(index)

        super().__init__(_empty_rdd(sc, partitions), compute)


def _empty_rdd(sc: SparkContext, partitions: int) -> Any:
    """The JVM-backed RDD of so many empty partitions; kept on the SparkContext, so that it goes with it."""
    with _lock:
        bases: dict[int, Any] = sc.__dict__.setdefault(_BASES, {})
        if partitions not in bases:
            bases[partitions] = sc.parallelize([], partitions) if partitions else sc.emptyRDD()
        return bases[partitions]
