"""RecordOperators: transformations of a stream's records one by one, of its partitions, and of its RDDs as wholes."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstream.dstream import rdd_functions as fn
from kstream.dstream.base import DStreamBase
from kstream.dstream.recipe import on_workers, recorded

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.dstream.dstream import DStream


class RecordOperators(DStreamBase):
    """The part of DStream that looks at single records and whole RDDs."""

    @recorded
    @on_workers("f")
    def map(self, f: Callable[[Any], Any], preservesPartitioning: bool = False) -> DStream:
        """f(record) for each record."""
        return self._each("map", lambda rdd: rdd.map(f, preservesPartitioning), fused=True)

    @recorded
    @on_workers("f")
    def flatMap(self, f: Callable[[Any], Iterable[Any]], preservesPartitioning: bool = False) -> DStream:
        """All results of f(record) for each record."""
        return self._each("flatMap", lambda rdd: rdd.flatMap(f, preservesPartitioning), fused=True)

    @recorded
    @on_workers("f")
    def filter(self, f: Callable[[Any], Any]) -> DStream:
        """The records for which f(record) is true."""
        return self._each("filter", lambda rdd: rdd.filter(f), fused=True)

    @recorded
    @on_workers("f")
    def mapPartitions(self, f: Callable[[Iterable[Any]], Iterable[Any]], preservesPartitioning: bool = False) -> DStream:
        """f(iterator) for each partition."""
        return self._each("mapPartitions", lambda rdd: rdd.mapPartitions(f, preservesPartitioning), fused=True)

    @recorded
    @on_workers("f")
    def mapPartitionsWithIndex(self, f: Callable[[int, Iterable[Any]], Iterable[Any]], preservesPartitioning: bool = False) -> DStream:
        """f(index, iterator) for each partition."""
        return self._each("mapPartitionsWithIndex", lambda rdd: rdd.mapPartitionsWithIndex(f, preservesPartitioning), fused=True)

    @recorded
    def glom(self) -> DStream:
        """One list for each partition, with its records; an empty partition gives an empty list."""
        return self._each("glom", lambda rdd: rdd.glom(), fused=True)

    @recorded
    def repartition(self, numPartitions: int) -> DStream:
        """The same records in exactly so many partitions, more or fewer than before; a shuffle in every batch."""
        return self._each("repartition", lambda rdd: rdd.repartition(numPartitions))

    @recorded
    @on_workers("func")
    def reduce(self, func: Callable[[Any, Any], Any]) -> DStream:
        """One record a batch: all records combined by `func`; nothing for an empty batch."""
        return self._each("reduce", lambda rdd: fn.reduce_to_one(rdd, func))

    @recorded
    def count(self) -> DStream:
        """One record a batch: the number of records; 0 for an empty batch."""
        return self._each("count", fn.count)

    @recorded
    def countByValue(self) -> DStream:
        """(value, how often it occurs) for each distinct record of a batch, in as many partitions as Spark's default parallelism."""
        return self._each("countByValue", lambda rdd: rdd.map(fn.with_one).reduceByKey(operator.add, self._partitions(None)))

    @recorded
    def union(self, other: DStream) -> DStream:
        """This stream's records and the other's, batch by batch. Both must slide together."""
        from kstream.dstream.transformed import UnionDStream

        return UnionDStream([self._stream, other])

    @recorded
    def transform(self, func: Callable[..., RDD[Any]]) -> DStream:
        """func(rdd) or func(time, rdd) for each batch, on the driver; it must return an RDD. `time` is a datetime."""
        from kstream.dstream.transformed import TransformedDStream

        if takes_one_argument(func):
            return TransformedDStream([self._stream], lambda _time, rdd: func(rdd))
        return TransformedDStream([self._stream], lambda time, rdd: func(time.to_datetime(), rdd))

    @recorded
    def transformWith(self, func: Callable[..., RDD[Any]], other: DStream, keepSerializer: bool = False) -> DStream:
        """func(rdd, other's rdd) or func(time, rdd, other's rdd) for each batch, on the driver; it must return an RDD.

        Both streams must slide together. `keepSerializer` is pyspark's and means nothing here: no RDD leaves Python in between.
        """
        from kstream.dstream.transformed import TransformedDStream

        if takes_only_rdds(func, 2):
            return TransformedDStream([self._stream, other], lambda _time, a, b: func(a, b), "transformWith")
        return TransformedDStream([self._stream, other], lambda time, a, b: func(time.to_datetime(), a, b), "transformWith")


def takes_one_argument(func: Callable[..., Any]) -> bool:
    """Whether `func` wants only the RDD, and not the batch time before it."""
    return takes_only_rdds(func, 1)


def takes_only_rdds(func: Callable[..., Any], rdds: int) -> bool:
    """Whether `func` wants the RDDs only, and not the batch time before them; TypeError if it can be called neither way, or not at all.

    Decided by its positional parameters without a default, then by all of them: `lambda rdd, name=name: …` wants the RDD.
    """
    given = ", ".join(["rdd"] if rdds == 1 else [f"rdd{n + 1}" for n in range(rdds)])
    if not callable(func):
        raise TypeError(
            f"func must be a function of ({given}) or (time, {given}), it is {func!r}. Give the function itself, not the result of a call"
        )
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        return True
    positional = [p for p in parameters if p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is inspect.Parameter.empty for p in positional)
    takes_all = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    if required > rdds + 1 or (len(positional) < rdds and not takes_all):
        raise TypeError(f"{func!r} must take ({given}) or (time, {given}), it takes {required} arguments")
    return required == rdds or (required < rdds and len(positional) == rdds)
