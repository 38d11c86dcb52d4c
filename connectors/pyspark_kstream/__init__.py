"""The data source `kstream` of Spark 4: Spark looks for `DefaultSource` in every package whose name begins with `pyspark_`.

One package that cannot be imported breaks this search for all data sources of a session. So nothing is imported here that can fail, and
the source itself (`kstream_kafka.structured`) is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstream_kafka.structured.options import SourceOptions
    from kstream_kafka.structured.readers import KafkaBatchReader, KafkaStreamReader
    from kstream_kafka.structured.writers import KafkaBatchWriter, KafkaStreamWriter
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType
else:
    try:
        from pyspark.sql.datasource import DataSource
    except ImportError:  # no pyspark, or one before 4.0, which has no such search
        DataSource = object

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The Kafka source and sink of kstream: `format("kstream")` to read and to write. docs/structured.md has the options.

    Example:
        orders = (
            spark.readStream.format("kstream")
            .option("kafka.bootstrap.servers", "k:9092")
            .option("subscribe", "orders")
            .load()
        )
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Note the options; parse them if they are those of a source. Spark calls it when a query is defined, and pickles the source.

        Args:
            options: name in lower case → text.

        Raises:
            SourceOptionError: an option of the source is unknown, refused or malformed.
            KafkaConfigError: a Kafka parameter is unknown or cannot work.
            MissingDependencyError: the Python that Spark runs has no pyarrow.
        """
        from kstream_kafka.structured.requirements import check_pyarrow

        check_pyarrow()
        super().__init__(dict(options))
        self._given = dict(options)
        self._parsed: SourceOptions | None = None
        self._has_reader = False
        if any(name in self._given for name in ("subscribe", "subscribepattern", "assign")):  # else it is a sink, or `schema` tells
            self._of_source()

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "kstream"

    def schema(self) -> StructType:
        """Return the schema of a query without a schema of the user: that of Spark's Kafka source.

        Raises:
            SourceOptionError: as `__init__`; or the format of the values needs a schema of the user.
            KafkaConfigError, MissingDependencyError: as `__init__`.
        """
        from kstream_kafka.structured.columns import schema_of

        return schema_of(self._of_source())

    def reader(self, schema: StructType) -> KafkaBatchReader:
        """Return the reader of a batch query.

        Args:
            schema: the schema of the query.

        Raises:
            SourceOptionError: an option is not for batches, or the schema has a column that neither records nor their values have.
        """
        from kstream_kafka.structured.columns import columns_of
        from kstream_kafka.structured.readers import KafkaBatchReader

        options = self._of_source().of_batch()
        reader = KafkaBatchReader(options, columns_of(schema, options))
        self._has_reader = True
        return reader

    def streamReader(self, schema: StructType) -> KafkaStreamReader:
        """Return the reader of a streaming query. Arguments and errors as for `reader`."""
        from kstream_kafka.structured.columns import columns_of
        from kstream_kafka.structured.readers import KafkaStreamReader

        options = self._of_source().of_stream()
        reader = KafkaStreamReader(options, columns_of(schema, options))
        self._has_reader = True
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        """Return the writer of a batch query.

        Args:
            schema: that of the frame.
            overwrite: whether the mode is "overwrite".

        Raises:
            SourceOptionError: an option is unknown, refused or malformed; the frame has not the columns of a record; or `overwrite`.
            KafkaConfigError: a Kafka parameter is unknown or cannot work.
        """
        from kstream_kafka.structured.sink_options import SinkOptions, check_appends
        from kstream_kafka.structured.writers import KafkaBatchWriter

        check_appends(overwrite)
        return KafkaBatchWriter(SinkOptions.parse(self._given), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:
        """Return the writer of a streaming query. In the mode "complete" each batch appends all rows, as with Spark's own sink.

        Args:
            schema: that of the frame.
            overwrite: whether the mode is "complete".

        Raises:
            SourceOptionError, KafkaConfigError: as `writer`.
        """
        from kstream_kafka.structured.sink_options import SinkOptions
        from kstream_kafka.structured.writers import KafkaStreamWriter

        return KafkaStreamWriter(SinkOptions.parse(self._given), schema)

    def __getstate__(self) -> dict[str, Any]:
        """Return what the next process needs. With its reader a source goes into each task, for its name alone: without its options."""
        return {} if self._has_reader else dict(self.__dict__)

    def _of_source(self) -> SourceOptions:
        """Return the options of a source. Errors as `__init__`."""
        from kstream_kafka.structured.options import SourceOptions

        if self._parsed is None:
            self._parsed = SourceOptions.parse(self._given)
        return self._parsed
