"""Writing a DataFrame of a batch by the Kafka sink of DStreams: `KafkaUtils.writeDataFrame`."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from kstream.public_call import refused
from kstream.sinks.named_output import writable_output
from kstream_kafka.sink.at_least_once import AtLeastOnceWriter
from kstream_kafka.sink.frame_columns import RowEncoder, check_columns
from kstream_kafka.sink.kafka_output import KafkaTarget
from kstream_kafka.sink.producer_record import Encoded

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

CALL = "writeDataFrame"
ADAPTIVE = "spark.sql.adaptive.enabled"
_planning = threading.Lock()
"""Who holds it plans a frame under another setting of its session."""


def write_frame(df: Any, target: KafkaTarget) -> None:
    """Write a frame. Blocks until it is written.

    Args:
        df: the frame.
        target: what is written, and how.

    Raises:
        TypeError: `df` is no DataFrame.
        ValueError: it is streaming, or a column is missing or has another type; or its output is not one of the function that runs, or is
            written already.
        Exception: as `KafkaOutput.prepare` and `KafkaOutput.run`.
    """
    if not isinstance(df, DataFrame):
        raise refused(TypeError(f"{CALL}: the first argument must be a DataFrame, it is {type(df).__name__}"))
    if df.isStreaming:
        raise refused(
            ValueError(f"{CALL}: the frame is that of a query of Structured Streaming. Write it by writeStream.format('kstream')")
        )
    columns = check_columns(df.schema, target.topic, _refuse)
    encoder = RowEncoder(target.name, columns, target.topic, target.params.max_record_bytes)
    if target.is_exactly_once:
        output = writable_output(CALL, target.name)
        output.write(CALL, lambda: _records(df, encoder), target.output, target)
    else:
        _records(df, encoder).foreachPartition(AtLeastOnceWriter(target.params.sink()))


def _records(df: DataFrame, encoder: RowEncoder) -> RDD[Encoded]:
    """Return the records of a frame. Spark plans it now.

    Adaptive execution would choose the number of partitions behind a shuffle anew at each try. So the plan has none.
    """
    with _not_adaptive(df.sparkSession):
        return df.select(*encoder.columns).rdd.mapPartitions(encoder)


@contextmanager
def _not_adaptive(spark: SparkSession) -> Generator[None]:
    """Switch adaptive execution off during a `with` block. Frames that other threads plan meanwhile go without it, too."""
    with _planning:
        before = spark.conf.get(ADAPTIVE) or "true"
        spark.conf.set(ADAPTIVE, "false")
        try:
            yield
        finally:
            spark.conf.set(ADAPTIVE, before)


def _refuse(what: str, reason: str, hint: str) -> Exception:
    return refused(ValueError(f"{CALL}: {what} {reason}. {hint}"))
