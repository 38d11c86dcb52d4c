"""Records that go between Python workers and the JVM as they are, bytes; and pairs of a number and such bytes, as in partitionBy."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer

from kstream.rdd.stable_hash import partition_of

if TYPE_CHECKING:
    from pyspark.core.rdd import Partitioner
else:
    try:
        from pyspark.core.rdd import Partitioner
    except ModuleNotFoundError:  # pyspark 3.5
        from pyspark.rdd import Partitioner

_FILTERS = "_kstream_filters"
_CLASSES = "_kstream_java_classes"
_JAVA_PAIR_RDD = "org.apache.spark.api.java.JavaPairRDD"
NUMBER = struct.Struct("!q")
"""A number, as the JVM's PairwiseRDD reads it."""


def java_class(sc: SparkContext, name: str) -> Any:
    """The Java class of this full name. The SparkContext keeps the class: a look-up by name takes py4j several calls, 2 ms."""
    known: dict[str, Any] = sc.__dict__.setdefault(_CLASSES, {})
    if name not in known:
        found: Any = sc._jvm  # pyright: ignore[reportPrivateUsage]
        for part in name.split("."):
            found = getattr(found, part)
        known[name] = found
    return known[name]


def jrdd(rdd: RDD[Any]) -> Any:
    """The JVM's side of an RDD."""
    return rdd._jrdd  # pyright: ignore[reportPrivateUsage]


def raw(made: RDD[bytes]) -> RDD[bytes]:
    """An RDD that was just made by `mapPartitions…`, and whose records are bytes: they go to the JVM as they are."""
    rdd: Any = made
    rdd._bypass_serializer = True
    rdd._jrdd_deserializer = NoOpSerializer()
    return made


def is_raw(rdd: RDD[Any]) -> bool:
    """Whether its records are bytes on the JVM's side, too; else they are pickled lists of records."""
    return isinstance(rdd._jrdd_deserializer, NoOpSerializer)  # pyright: ignore[reportPrivateUsage]


def pairs(numbered: RDD[bytes]) -> Any:
    """The JVM's pair RDD of an RDD that gives a NUMBER and a record by turns. It keeps the partitioner."""
    return java_class(numbered.ctx, "org.apache.spark.api.python.PairwiseRDD")(jrdd(raw(numbered)).rdd()).asJavaPairRDD()


def value_of_pair(sc: SparkContext, numbered: Any) -> Any:
    """The JVM's RDD of the records of a pair RDD, without their numbers."""
    return java_class(sc, "org.apache.spark.api.python.PythonRDD").valueOfPair(numbered)


def with_numbers(sc: SparkContext, numbered: Any, first: int, last: int) -> Any:
    """Those of the JVM's pairs whose number is between the two, or one of them: a pair RDD of the JVM with the same partitions.

    That is `filterByRange(first, last)`, which however serializes the pairs with all they are made of when it is called, to see whether
    its function can be sent: the longer the lineage the slower, and after some fifty batches there is no stack left. So its function is
    taken out of such a filter of no pairs, once a SparkContext.
    """
    functions: dict[tuple[int, int], Any] = sc.__dict__.setdefault(_FILTERS, {})
    if (first, last) not in functions:
        functions[first, last] = _function_of_filter(sc, first, last)
    kept = numbered.rdd().filter(functions[first, last])
    return java_class(sc, _JAVA_PAIR_RDD)(kept, numbered.kClassTag(), numbered.vClassTag())


def _function_of_filter(sc: SparkContext, first: int, last: int) -> Any:
    """What says of a pair whether its number is between the two. The JVM has the function, and no name by which Python could call it."""
    nothing: Any = sc._jsc.emptyRDD()  # pyright: ignore
    filtered = java_class(sc, _JAVA_PAIR_RDD).fromJavaRDD(nothing).filterByRange(first, last).rdd()
    of_partition = _value(filtered, filtered.getClass().getDeclaredField("f"))
    (captured,) = of_partition.getClass().getDeclaredFields()
    return _value(of_partition, captured)


def _value(owner: Any, field: Any) -> Any:
    field.setAccessible(True)
    return field.get(owner)


def by_key(partitions: int) -> Partitioner:
    """How states are partitioned; PySpark finds two of them equal if their numbers are."""
    return Partitioner(partitions, partition_of)
