"""The data source `kstream` of Spark 4: Spark looks for `DefaultSource` in every package whose name begins with `pyspark_`.

One package that cannot be imported breaks this search for all data sources of a session. So nothing is imported here that can fail, and
the source itself (`kstream_kafka.structured`) is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstream_kafka.structured.readers import KafkaBatchReader, KafkaStreamReader
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType
else:
    try:
        from pyspark.sql.datasource import DataSource
    except ImportError:  # no pyspark, or one before 4.0, which has no such search
        DataSource = object

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The Kafka source of kstream: `spark.readStream.format("kstream")`, and `spark.read`. docs/structured.md has the options.

    Example:
        orders = (
            spark.readStream.format("kstream")
            .option("kafka.bootstrap.servers", "k:9092")
            .option("subscribe", "orders")
            .load()
        )
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Parse the options. Spark calls it when a query is defined, and pickles the source.

        Args:
            options: name in lower case → text.

        Raises:
            SourceOptionError: an option is unknown, refused or malformed.
            KafkaConfigError: a Kafka parameter is unknown or cannot work.
            MissingDependencyError: the Python that Spark runs has no pyarrow.
        """
        from kstream_kafka.structured.options import SourceOptions
        from kstream_kafka.structured.requirements import check_pyarrow

        check_pyarrow()
        super().__init__(dict(options))
        self._parsed = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "kstream"

    def schema(self) -> StructType:
        """Return the schema of a query without a schema of the user: that of Spark's Kafka source."""
        from kstream_kafka.structured.columns import default_schema

        return default_schema(self._parsed.include_headers)

    def reader(self, schema: StructType) -> KafkaBatchReader:
        """Return the reader of a batch query.

        Args:
            schema: the schema of the query.

        Raises:
            SourceOptionError: an option is not for batches, or the schema has other columns than Kafka's records.
        """
        from kstream_kafka.structured.columns import chosen_columns
        from kstream_kafka.structured.readers import KafkaBatchReader

        return KafkaBatchReader(self._parsed.of_batch(), chosen_columns(schema))

    def streamReader(self, schema: StructType) -> KafkaStreamReader:
        """Return the reader of a streaming query. Arguments and errors as for `reader`."""
        from kstream_kafka.structured.columns import chosen_columns
        from kstream_kafka.structured.readers import KafkaStreamReader

        return KafkaStreamReader(self._parsed.of_stream(), chosen_columns(schema))
