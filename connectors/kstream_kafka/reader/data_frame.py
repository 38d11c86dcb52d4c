"""Kafka ranges as a DataFrame: the workers read, and hand Spark Arrow record batches; no record is pickled, none is a row before SQL."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kstream.errors import MissingDependencyError
from kstream_kafka.reader.range_task import RangeReads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INSTALL = "pip install 'kstream-spark[spark]'"
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", HEADERS),
    ]
)
"""The columns of Spark's Kafka source, `headers` as with its option includeHeaders."""


def kafka_data_frame(spark: SparkSession, reads: RangeReads, include_headers: bool = True) -> DataFrame:
    """A DataFrame of what `reads` reads: partition i holds the records of task i, in their order.

    Called on the driver by `KafkaUtils.createDataFrame` and `foreachBatch`; blocks on nothing and runs no job: Kafka is read when an
    action needs it, each time anew. MissingDependencyError at once if pyarrow or pandas, which Spark's Arrow functions need, is not
    there or too old; the workers need them too.
    """
    _require_arrow()
    schema = SCHEMA if include_headers else StructType(SCHEMA.fields[:-1])
    tasks = len(reads)
    if not tasks:
        return spark.createDataFrame([], schema)

    def read_kafka(ids: Iterator[Any]) -> Iterator[Any]:  # a plain function: pyspark 3.5 looks at its arguments; also its name in plans
        return read_tasks(reads, ids, include_headers)

    return spark.range(0, tasks, 1, tasks).mapInArrow(read_kafka, schema)


def read_tasks(reads: RangeReads, ids: Iterator[Any], include_headers: bool) -> Iterator[Any]:
    """The record batches of the tasks whose numbers come as record batches; found by its name in the workers, where it runs.

    Every number is read, however Spark has put them into partitions, and all are taken before the first record: a worker whose
    input was left unread is thrown away by Spark, its consumer with it.
    """
    from kstream_kafka.reader.arrow import record_batches  # here: the driver's side needs no pyarrow loaded

    tasks = [index for batch in ids for index in batch.column(0).to_pylist()]
    with _no_cycle_collection():
        yield from record_batches(itertools.chain.from_iterable(map(reads.chunks, tasks)), include_headers)


@contextmanager
def _no_cycle_collection() -> Generator[None]:
    """Reading makes ten thousands of objects a second and no cycles; collecting them all the same took a fifth of the worker's time.

    Only our own code runs in the worker meanwhile: what the user does with a DataFrame in Python has a worker of its own.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _require_arrow() -> None:
    """On the driver: in a worker Spark says no more than that the worker failed to connect back."""
    from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

    for package, require in (("pyarrow", require_minimum_pyarrow_version), ("pandas", require_minimum_pandas_version)):
        try:
            require()
        except ImportError as e:
            raise MissingDependencyError(
                f"a DataFrame of Kafka records needs {package} ({e}): {INSTALL}", package=package, install=INSTALL
            ) from e
