"""Kafka ranges as a DataFrame: the tasks of a `RangeReads`, each giving Arrow batches."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstream.errors import MissingDependencyError
from kstream_kafka.range_task import RangeReads

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class ArrowTask:
    """The function given to `mapInArrow`; pickled by reference into the tasks."""

    reads: RangeReads
    include_headers: bool

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For every row (a task number) its records. Normally one row; all of them where Spark has put partitions together."""
        from kstream_kafka.arrow import to_record_batch

        for batch in batches:
            for index in batch.column(0).to_pylist():
                for where, messages in self.reads.chunks(index):
                    yield to_record_batch(where, messages, self.include_headers)


def kafka_data_frame(spark: SparkSession, reads: RangeReads, include_headers: bool = True) -> DataFrame:
    """A DataFrame with the columns of Spark's Kafka source; partition i reads task i of `reads`. Nothing runs before an action.

    MissingDependencyError, on the driver, when pyarrow is not installed: in a worker it would only look like a lost connection.
    """
    check_arrow()
    from kstream_kafka.arrow import DDL, DDL_WITHOUT_HEADERS

    schema = DDL if include_headers else DDL_WITHOUT_HEADERS
    if not len(reads):
        return spark.createDataFrame([], schema)
    return spark.range(0, len(reads), 1, len(reads)).mapInArrow(ArrowTask(reads, include_headers), schema)


def check_arrow() -> None:
    """MissingDependencyError unless pyarrow and pandas are there: Spark asks for both."""
    for package in ("pyarrow", "pandas"):
        if importlib.util.find_spec(package) is None:
            raise MissingDependencyError(
                f"{package} is not installed, which DataFrames of Kafka records need: pip install 'kstream-spark[spark]', on the "
                "executors too",
                package=package,
            )


def session_of(sc: SparkContext) -> SparkSession:
    """The SparkSession of a SparkContext, made if there is none yet."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or SparkSession(sc)
