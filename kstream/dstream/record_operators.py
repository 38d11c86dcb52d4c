"""RecordOperators: transformations of a stream's records one by one, of its partitions, and of its RDDs as wholes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstream.dstream import rdd_functions as fn
from kstream.dstream.base import DStreamBase
from kstream.dstream.recipe import recorded

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.dstream.dstream import DStream


class RecordOperators(DStreamBase):
    """The part of DStream that looks at single records and whole RDDs."""

    @recorded
    def map(self, f: Callable[[Any], Any], preservesPartitioning: bool = False) -> DStream:
        """f(record) for each record."""
        return self._each("map", lambda rdd: rdd.map(f, preservesPartitioning))

    @recorded
    def flatMap(self, f: Callable[[Any], Iterable[Any]], preservesPartitioning: bool = False) -> DStream:
        """All results of f(record) for each record."""
        return self._each("flatMap", lambda rdd: rdd.flatMap(f, preservesPartitioning))

    @recorded
    def filter(self, f: Callable[[Any], Any]) -> DStream:
        """The records for which f(record) is true."""
        return self._each("filter", lambda rdd: rdd.filter(f))

    @recorded
    def mapPartitions(self, f: Callable[[Iterable[Any]], Iterable[Any]], preservesPartitioning: bool = False) -> DStream:
        """f(iterator) for each partition."""
        return self._each("mapPartitions", lambda rdd: rdd.mapPartitions(f, preservesPartitioning))

    @recorded
    def mapPartitionsWithIndex(self, f: Callable[[int, Iterable[Any]], Iterable[Any]], preservesPartitioning: bool = False) -> DStream:
        """f(index, iterator) for each partition."""
        return self._each("mapPartitionsWithIndex", lambda rdd: rdd.mapPartitionsWithIndex(f, preservesPartitioning))

    @recorded
    def reduce(self, func: Callable[[Any, Any], Any]) -> DStream:
        """One record a batch: all records combined by `func`; nothing for an empty batch."""
        return self._each("reduce", lambda rdd: fn.reduce_to_one(rdd, func))

    @recorded
    def count(self) -> DStream:
        """One record a batch: the number of records; 0 for an empty batch."""
        return self._each("count", fn.count)

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


def takes_one_argument(func: Callable[..., Any]) -> bool:
    """Whether `func` wants only the RDD (as pyspark decides it: by the number of positional parameters)."""
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        return True
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty]
    positional = [p for p in parameters if p.kind in kinds]
    if len(required) not in (0, 1, 2):
        raise TypeError(f"{func!r} must take (rdd) or (time, rdd), it takes {len(required)} arguments")
    return len(required) == 1 or (not required and len(positional) == 1)
