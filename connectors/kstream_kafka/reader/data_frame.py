"""DataFrames of Kafka ranges. The workers read Kafka and give Arrow record batches to Spark, so no record is pickled."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
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
from kstream.worker.record_errors import TaskErrors
from kstream.worker.record_failure import VALUE_CONVERTER, RecordStep
from kstream_kafka.errors import SourceOptionError
from kstream_kafka.reader.range_reads import RangeReads
from kstream_kafka.reader.range_task import lend_in_task, stored_letters
from kstream_kafka.reader.tolerant_decoding import record_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kstream_kafka.client.schema_registry import SchemaRegistry
    from kstream_kafka.reader.typed_columns import TypedColumns
    from kstream_kafka.reader.value_formats import Mode

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


def checked_typed_columns(
    call: str,
    schema: Any,
    value_format: str,
    mode: Mode,
    policy: str,
    registry: SchemaRegistry | None = None,
    schema_id: int | None = None,
) -> tuple[StructType, TypedColumns]:
    """Check the arguments of a call whose DataFrame has decoded values; return its schema, and the columns that the workers build.

    Called on the driver. Blocks on the registry if the fields are those of `schema_id`.

    Args:
        call: the name of the public function, for the message.
        schema: a StructType, or its DDL. None for the format `text`, whose field is `value`, or for the fields of `schema_id`.
        value_format: the name of the format of the values.
        mode: what becomes of a value that does not fit.
        policy: the errors policy of the stream.
        registry: the schema registry of Avro and Protobuf values.
        schema_id: the id of the reader's schema.

    Raises:
        TypeError: `schema` is none of these.
        KafkaError: an error of the registry.
        ValueError: the format or the mode is unknown, the mode needs another errors policy, or the schema cannot be that of the values.
        MissingDependencyError: pyarrow or pandas is missing or too old.
    """
    _require_arrow()
    from kstream_kafka.reader.registry_options import options_of
    from kstream_kafka.reader.value_columns import TEXT, parsed_schema, schema_of_format, typed_columns
    from kstream_kafka.reader.value_formats import FORMATS, MODES

    def no(reason: str, hint: str) -> Exception:
        return refused(ValueError(f"{call}: schema {reason}.{' ' + hint if hint else ''}"))

    if value_format not in FORMATS:
        raise refused(ValueError(f"{call}: value_format must be one of {', '.join(FORMATS)}, it is {value_format!r}"))
    if FORMATS[value_format].has_registry and registry is None:
        raise refused(ValueError(f"{call}: value_format={value_format!r} needs schema_registry"))
    if not FORMATS[value_format].has_registry and (registry is not None or schema_id is not None):
        raise refused(ValueError(f"{call}: schema_registry and value_schema_id are for the values of a registry, as 'avro'"))
    if mode not in MODES:
        raise refused(ValueError(f"{call}: mode must be one of {', '.join(MODES)}, it is {mode!r}"))
    if mode == "dead-letter" and policy != "dead-letter":
        hint = "Give the stream onRecordError='dead-letter' and a deadLetterTopic"
        raise refused(ValueError(f"{call}: mode is 'dead-letter', and the errors policy of the stream is {policy!r}. {hint}"))
    options: dict[str, Any] = {} if registry is None else options_of(registry, schema_id)
    if schema is None and value_format == TEXT:
        schema = "value STRING"
    elif schema is None and schema_id is not None:
        try:
            schema = schema_of_format(SCHEMA, value_format, options)
        except SourceOptionError as e:
            raise refused(ValueError(f"{call}: value_schema_id {e.reason}")) from None
    schema = parsed_schema(call, schema)
    return schema, typed_columns(schema, value_format, mode, options, no)


def kafka_data_frame(
    spark: SparkSession, reads: RangeReads, columns: Sequence[str] | TypedColumns = COLUMNS, schema: StructType | None = None
) -> DataFrame:
    """Return a DataFrame of the records of ranges. Partition i holds the records of task i, in their order.

    `KafkaUtils.createDataFrame` and `foreachBatch` call it on the driver. It does not block and runs no job. Each action reads Kafka again.

    Args:
        spark: the session.
        reads: the ranges of each task.
        columns: the names of its columns, of COLUMNS, in their order; or with decoded values. The workers build only these.
        schema: the schema of TypedColumns; None for that of names.

    Returns:
        The DataFrame.

    Raises:
        MissingDependencyError: pyarrow or pandas, which Spark's Arrow functions need, is missing or too old. The workers need both too.
    """
    _require_arrow()
    if schema is None:
        assert isinstance(columns, list | tuple)
        schema = StructType([SCHEMA[name] for name in columns])
    tasks = len(reads)
    if not tasks:
        return spark.createDataFrame([], schema)

    def read_kafka(ids: Iterator[Any]) -> Iterator[Any]:  # a function: pyspark 3.5 inspects its arguments, and plans show its name
        return read_tasks(reads, ids, columns)

    return spark.range(0, tasks, 1, tasks).mapInArrow(read_kafka, schema)


def read_tasks(reads: RangeReads, ids: Iterator[Any], columns: Sequence[str] | TypedColumns) -> Iterator[Any]:
    """Yield the record batches of tasks. Runs in a Spark task and blocks on the brokers. It is pickled by its name.

    All task numbers are read before the first record, however Spark distributes them over partitions. If a worker does not read its input
    to the end, Spark kills the worker, and its cached consumer is lost.

    Args:
        reads: the ranges of each task.
        ids: record batches whose first column has the numbers of the tasks to read.
        columns: the names of the columns, or with decoded values.
    """
    from kstream_kafka.reader.arrow import record_batches  # the driver loads no pyarrow
    from kstream_kafka.reader.typed_columns import TypedColumns

    tasks = [index for batch in ids for index in batch.column(0).to_pylist()]
    chunks = itertools.chain.from_iterable(reads.chunks(index, lend_in_task) for index in tasks)
    with no_cycle_collection():
        if not isinstance(columns, TypedColumns):
            yield from record_batches(chunks, columns)
        elif columns.values.mode != "dead-letter":
            yield from columns.record_batches(chunks)
        else:
            for index in tasks:
                yield from _without_malformed(reads, index, columns)


def _without_malformed(reads: RangeReads, index: int, columns: TypedColumns) -> Iterator[Any]:
    """Yield the record batches of a task in the mode "dead-letter". Records whose values do not fit go to the stream's errors policy."""
    policy = reads.read_context.errors
    assert policy is not None
    errors = TaskErrors(policy, index, partial(stored_letters, policy))
    step = RecordStep(VALUE_CONVERTER, "value_format", columns.values.format)

    def leave_out(message: Any, reason: str) -> None:
        errors.tolerate(ValueError(f"the value {reason}"), record_of((message,), 0), step)

    yield from columns.record_batches(reads.chunks(index, lend_in_task, errors), leave_out)


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
        MissingDependencyError: one of them is missing or too old, or what pyspark 3.5 finds that out with.
    """
    from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

    for package, require in (("pyarrow", require_minimum_pyarrow_version), ("pandas", require_minimum_pandas_version)):
        try:
            require()
        except ImportError as e:
            if e.name == "distutils":  # pyspark 3.5 imports it, and Python has none from 3.12 on
                package = "setuptools"
            raise MissingDependencyError(
                f"a DataFrame of Kafka records needs {package} ({e}): {INSTALL}", package=package, install=INSTALL
            ) from e
