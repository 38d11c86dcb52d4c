"""DataFrames of Kafka ranges. The workers read Kafka and give Arrow record batches to Spark, so no record is pickled."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Generator, Iterator, Sequence
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
from kstream.nearest_name import did_you_mean, nearest_names
from kstream.public_call import refused
from kstream.worker.process import freeze_gc
from kstream_kafka.reader.range_reads import RangeReads
from kstream_kafka.reader.range_task import lend_in_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INSTALL = "pip install 'kstream-spark[spark]'"
"""The command that installs pyarrow and pandas."""
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
"""The schema of Spark's Kafka source with the option includeHeaders."""
COLUMNS = tuple(SCHEMA.names)
"""The names of all columns."""


def checked_columns(call: str, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the columns that a call asks for; all of COLUMNS for None.

    Args:
        call: the name of the public function, for the message.
        columns: the names, in the order of the DataFrame's columns.

    Raises:
        TypeError: `columns` is no list of names.
        ValueError: a column does not exist or is named twice, or none is named.
    """
    if columns is None:
        return COLUMNS
    if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):  # pyright: ignore
        raise refused(TypeError(f"{call}: columns must be a list of names, as ['value'], it is {columns!r}"))
    for name in columns:
        if name not in COLUMNS:
            hint = did_you_mean(nearest_names(name, COLUMNS)) or f"The columns are {', '.join(COLUMNS)}."
            raise refused(ValueError(f"{call}: a Kafka record has no column {name!r}. {hint}"))
    if not columns or len(set(columns)) < len(columns):
        raise refused(ValueError(f"{call}: columns must name each column once, and at least one. It is {columns!r}"))
    return tuple(columns)


def kafka_data_frame(spark: SparkSession, reads: RangeReads, columns: Sequence[str] = COLUMNS) -> DataFrame:
    """Return a DataFrame of the records of ranges. Partition i holds the records of task i, in their order.

    `KafkaUtils.createDataFrame` and `foreachBatch` call it on the driver. It does not block and runs no job. Each action reads Kafka again.

    Args:
        spark: the session.
        reads: the ranges of each task.
        columns: the names of its columns, of COLUMNS, in their order. The workers build only these.

    Returns:
        The DataFrame.

    Raises:
        MissingDependencyError: pyarrow or pandas, which Spark's Arrow functions need, is missing or too old. The workers need both too.
    """
    _require_arrow()
    schema = StructType([SCHEMA[name] for name in columns])
    tasks = len(reads)
    if not tasks:
        return spark.createDataFrame([], schema)

    def read_kafka(ids: Iterator[Any]) -> Iterator[Any]:  # a function: pyspark 3.5 inspects its arguments, and plans show its name
        return read_tasks(reads, ids, columns)

    return spark.range(0, tasks, 1, tasks).mapInArrow(read_kafka, schema)


def read_tasks(reads: RangeReads, ids: Iterator[Any], columns: Sequence[str]) -> Iterator[Any]:
    """Yield the record batches of tasks. Runs in a Spark task and blocks on the brokers. It is pickled by its name.

    All task numbers are read before the first record, however Spark distributes them over partitions. If a worker does not read its input
    to the end, Spark kills the worker, and its cached consumer is lost.

    Args:
        reads: the ranges of each task.
        ids: record batches whose first column has the numbers of the tasks to read.
        columns: the names of the columns.
    """
    from kstream_kafka.reader.arrow import record_batches  # the driver loads no pyarrow

    tasks = [index for batch in ids for index in batch.column(0).to_pylist()]
    chunks = itertools.chain.from_iterable(reads.chunks(index, lend_in_task) for index in tasks)
    with no_cycle_collection():
        yield from record_batches(chunks, columns)


@contextmanager
def no_cycle_collection() -> Generator[None]:
    """Switch Python's cycle collector off during a `with` block, and keep it from what the worker has loaded (`freeze_gc`).

    A read creates tens of thousands of objects a second and no cycles, and collections took a fifth of the worker's time. No user code runs
    in this worker meanwhile, because Python functions on a DataFrame have their own worker.
    """
    freeze_gc()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _require_arrow() -> None:
    """Check that the driver has pyarrow and pandas. In a worker, Spark's only error would be that the worker did not connect back.

    Raises:
        MissingDependencyError: one of them is missing or too old.
    """
    from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

    for package, require in (("pyarrow", require_minimum_pyarrow_version), ("pandas", require_minimum_pandas_version)):
        try:
            require()
        except ImportError as e:
            raise MissingDependencyError(
                f"a DataFrame of Kafka records needs {package} ({e}): {INSTALL}", package=package, install=INSTALL
            ) from e
