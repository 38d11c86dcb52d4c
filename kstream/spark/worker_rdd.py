"""WorkerRDD: an RDD whose partitions Spark's Python workers make by `make(index)`, without input data.

PySpark only has RDDs of existing data. A WorkerRDD is a PipelinedRDD over a JVM RDD of n empty partitions, so that a later `map` or
`filter` runs in the same Python worker, in one pass. The empty RDD is made once per SparkContext and n: `parallelize` writes a file and
calls the JVM several times, which is too slow for every batch. Works with pyspark 3.5 – 4.3 (`PipelinedRDD`'s constructor).
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext

from kstream.worker.process import begin_task

if TYPE_CHECKING:
    from pyspark.core.rdd import PipelinedRDD
else:
    try:
        from pyspark.core.rdd import PipelinedRDD
    except ModuleNotFoundError:  # pyspark 3.5
        from pyspark.rdd import PipelinedRDD

_BASES = "_kstream_empty_rdds"
_MOST_BASES = 32
"""Most empty RDDs kept per SparkContext; the oldest is dropped first. Numbers of partitions and executors change rarely."""
_lock = threading.Lock()


class WorkerRDD(PipelinedRDD[Any, Any]):
    """An RDD whose partition i has the records of `make(i)`.

    Made on the driver, by any thread; nothing runs until an action. Each computation of a partition calls `make` again, in a worker.

    Args:
        sc: the SparkContext.
        partitions: the number of partitions.
        make: returns the records of the partition of an index. cloudpickle sends it in the tasks.
        locations: per partition the places that it prefers, in Spark's notation (`executor_<host>_<id>`, or a host); a hint to Spark.
    """

    def __init__(
        self, sc: SparkContext, partitions: int, make: Callable[[int], Iterable[Any]], locations: Sequence[Sequence[str]] | None = None
    ) -> None:
        def compute(index: int, nothing: Iterable[Any]) -> Iterable[Any]:
            begin_task()
            for _ in nothing:  # read to the end: Spark discards a worker with unread input, and every task starts a new one
                pass
            return make(index)

        super().__init__(empty_rdd(sc, partitions, locations), compute)


def empty_rdd(sc: SparkContext, partitions: int, locations: Sequence[Sequence[str]] | None) -> Any:
    """Return an RDD of empty partitions. The SparkContext keeps it, so that both end together. Any thread."""
    places = tuple(tuple(where) for where in locations or ())
    key: Any = (partitions, places if any(places) else None)
    with _lock:
        bases: dict[Any, Any] = sc.__dict__.setdefault(_BASES, {})
        if key not in bases:
            while len(bases) >= _MOST_BASES:
                del bases[next(iter(bases))]
            bases[key] = sc.emptyRDD() if not partitions else sc.parallelize([], partitions) if key[1] is None else _located(sc, places)
        return bases[key]


def _located(sc: SparkContext, places: tuple[tuple[str, ...], ...]) -> Any:
    """Return an RDD of empty partitions with preferred locations, by `SparkContext.makeRDD`, which pyspark does not offer."""
    from pyspark import RDD
    from pyspark.serializers import BatchedSerializer, CPickleSerializer

    jvm: Any = sc._jvm  # pyright: ignore[reportPrivateUsage]
    nothing = bytearray(pickle.dumps([]))  # one batch of no elements
    rows = [jvm.scala.Tuple2(nothing, jvm.PythonUtils.toSeq(list(where))) for where in places]
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    made = sc._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(rows), tag)  # pyright: ignore
    return RDD(made.toJavaRDD(), sc, BatchedSerializer(CPickleSerializer()))
