"""The class that Spark finds: what it gives for a query, and what the search for it can meet."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark_kstream
import pytest
from kstream_kafka.errors import KafkaConfigError, SourceOptionError
from kstream_kafka.structured.columns import default_schema
from kstream_kafka.structured.readers import KafkaBatchReader, KafkaStreamReader
from kstream_kafka.structured.writers import KafkaBatchWriter, KafkaStreamWriter
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import LongType, StringType, StructField, StructType
from pyspark_kstream import DefaultSource

OPTIONS = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def test_the_package_that_spark_looks_into_imports_nothing_that_can_fail() -> None:
    tree = ast.parse(Path(pyspark_kstream.__file__).read_text())
    unguarded = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in unguarded}
    assert names <= {"__future__", "collections.abc", "typing"}
    code = "import sys; sys.modules.update({'pyspark.sql': None, 'kstream': None, 'kstream_kafka': None}); import pyspark_kstream"
    subprocess.run([sys.executable, "-c", f"{code}; pyspark_kstream.DefaultSource"], check=True)


def test_spark_finds_a_data_source_of_the_name_kstream() -> None:
    assert issubclass(DefaultSource, DataSource) and DefaultSource.name() == "kstream"


def test_a_source_goes_to_other_processes_pickled_and_gives_readers_there() -> None:
    source = pickle.loads(pickle.dumps(DefaultSource(OPTIONS)))
    schema = source.schema()
    assert isinstance(source.reader(schema), KafkaBatchReader) and isinstance(source.streamReader(schema), KafkaStreamReader)


@pytest.mark.parametrize("kind", ["reader", "streamReader"])
def test_a_task_gets_the_parameters_of_its_consumer_and_no_other_option(kind: str) -> None:
    """Spark pickles the reader and its source into each task, and a log of Spark may show what it has pickled."""
    secrets = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u"}
    source = DefaultSource({**OPTIONS, **secrets, "kafka.sasl.password": "pa55word", "failondataloss": "false"})
    assert b"pa55word" in pickle.dumps(source), "the process of the planner needs it"
    reader = getattr(source, kind)(source.schema())
    assert b"pa55word" not in pickle.dumps(source) and pickle.loads(pickle.dumps(source)).name() == "kstream"
    in_task = pickle.dumps(reader)
    assert in_task.count(b"pa55word") == 1 and b"fail_on_data_loss" not in in_task
    assert isinstance(pickle.loads(in_task), KafkaBatchReader | KafkaStreamReader)


@pytest.mark.parametrize(("text", "has_headers"), [("true", True), ("false", False)])
def test_the_schema_has_headers_if_they_are_asked_for(text: str, has_headers: bool) -> None:
    assert DefaultSource({**OPTIONS, "includeheaders": text}).schema() == default_schema(has_headers)


def test_wrong_options_are_refused_when_the_query_is_defined() -> None:
    with pytest.raises(SourceOptionError):
        DefaultSource({**OPTIONS, "startingoffset": "earliest"})
    with pytest.raises(KafkaConfigError):
        DefaultSource({**OPTIONS, "kafka.isolation.level": "serializable"})


def test_options_of_the_other_kind_of_query_and_wrong_columns_are_refused_when_it_begins() -> None:
    offset: Any = StructType([StructField("ofset", LongType())])
    source = DefaultSource({**OPTIONS, "endingoffsets": "latest"})
    with pytest.raises(SourceOptionError, match="a stream has no end"):
        source.streamReader(source.schema())
    with pytest.raises(SourceOptionError, match="Did you mean 'offset'"):
        source.reader(offset)


def test_a_sink_goes_to_other_processes_pickled_and_gives_writers_there() -> None:
    sink = pickle.loads(pickle.dumps(DefaultSource({"kafka.bootstrap.servers": "h:1", "topic": "t"})))
    schema = StructType([StructField("value", StringType())])
    for writer in (sink.writer(schema, False), sink.streamWriter(schema, False)):
        assert isinstance(pickle.loads(pickle.dumps(writer)), KafkaBatchWriter | KafkaStreamWriter)


def test_only_a_batch_cannot_overwrite_for_in_complete_mode_spark_appends_all_rows_too() -> None:
    sink, schema = DefaultSource({"kafka.bootstrap.servers": "h:1", "topic": "t"}), StructType([StructField("value", StringType())])
    with pytest.raises(SourceOptionError, match="records in Kafka stay"):
        sink.writer(schema, True)
    assert isinstance(sink.streamWriter(schema, True), KafkaStreamWriter)


def test_a_source_without_topics_is_refused_when_its_columns_are_asked_for() -> None:
    with pytest.raises(SourceOptionError, match="'subscribe' of the data source kstream is missing"):
        DefaultSource({"kafka.bootstrap.servers": "h:1"}).schema()
