"""The options of the sink, and the tables of them in the docs."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from kstream_kafka.errors import KafkaError, SourceOptionError
from kstream_kafka.structured.options import markdown_tables, of_kafka
from kstream_kafka.structured.sink_options import SINK_OPTIONS, SINK_REFUSED, SINK_REFUSED_PARAMETERS, SinkOptions

from kstream.storage import StorePlace

GIVEN = {"kafka.bootstrap.servers": "h:1"}


def test_without_options_a_sink_writes_exactly_once_where_the_column_says() -> None:
    options = SinkOptions.parse(GIVEN)
    assert options.is_exactly_once and options.topic is None and not options.keeps and options.prefix == "kstream"
    assert pickle.loads(pickle.dumps(options)) == options


def test_each_option_has_its_effect_whatever_the_case_of_its_name() -> None:
    names = {"TOPIC": "t", "outputchanged": "KEEP", "Delivery": "at-least-once", "prefix": "p", "spoolLocation": "/s"}
    options = SinkOptions.parse({**GIVEN, **names})
    assert (options.topic, options.keeps, options.is_exactly_once, options.prefix) == ("t", True, False, "p")
    assert options.place == StorePlace("/s", exclusive=False)
    assert SinkOptions.parse({**GIVEN, "kafka.compression.type": "lz4"}).params.sink()["compression.type"] == "lz4"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("topci", "t", "'topci' of the data source kstream is unknown. Did you mean 'topic'"),
        ("subscribe", "t", "'subscribe' of the data source kstream is for reading"),
        ("delivery", "exactly once", "Give exactly-once or at-least-once"),
        ("topic", " ", "Give some text"),
        ("prefix", "a b", "Give the beginning of a topic's name"),
        ("spoolLocation", "spools", "Give an absolute path, or a URL"),
        ("spoolLocation", "hdfs://namenode/spools", "not of Hadoop"),
        ("path", "/x", "is no place in Kafka"),
        ("asyncprogresstrackingenabled", "true", "would let Spark forget batches"),
        ("kafka.key.serializer", "x", "would be a Java class"),
        ("kafka.transactional.id", "x", "names the transactions"),
        ("kafka.oauth_cb", "x", "is a Python function"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(option: str, value: str, message: str) -> None:
    with pytest.raises(SourceOptionError, match=re.escape(message)):
        SinkOptions.parse({**GIVEN, option: value})


REGISTRY = {"schema.registry.url": "http://h:1"}
AVRO = '{"type": "record", "name": "R", "fields": []}'


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"value.format": "yaml"}, "is 'yaml', one of: avro, protobuf, json, text"),
        ({"value.format": "json", **REGISTRY}, "'schema.registry.url' of the data source kstream is for values whose schemas"),
        ({"value.format": "avro", "value.schema.id": "1"}, "'schema.registry.url' is missing"),
        ({"value.format": "avro", **REGISTRY}, "'value.schema.id' of the data source kstream is missing"),
        ({"value.format": "avro", **REGISTRY, "value.schema.id": "1", "value.schema": AVRO}, "is given together with value.schema"),
        ({"value.format": "avro", **REGISTRY, "value.schema.id": "one"}, "Give a whole number above zero"),
        ({"value.format": "avro", **REGISTRY, "value.schema": AVRO}, "'value.schema.subject' of the data source kstream is missing"),
        ({"value.format": "avro", **REGISTRY, "value.schema.id": "1", "value.schema.subject": "s"}, "is for value.schema"),
        ({"value.format": "protobuf", **REGISTRY, "value.schema": AVRO}, "'value.schema' of the data source kstream is for Avro"),
        ({"value.format": "protobuf", **REGISTRY}, "Protobuf values need the id of their file"),
    ],
)
def test_the_options_of_a_format_go_together_or_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError, match=re.escape(message)):
        SinkOptions.parse({**GIVEN, **given})


def test_the_subject_is_that_of_the_topic_unless_it_is_given() -> None:
    given = {**GIVEN, **REGISTRY, "value.format": "avro", "value.schema": AVRO, "topic": "t"}
    assert SinkOptions.parse(given).format_options["value.schema.subject"] == "t-value"
    assert SinkOptions.parse({**given, "value.schema.subject": "s"}).format_options["value.schema.subject"] == "s"


@pytest.mark.parametrize(
    ("checkpoint", "place"),
    [
        ("/c/", "/c/kstream-spools"),
        ("s3://bucket/c", "s3://bucket/c/kstream-spools"),
        ("file:/c", "file:/c/kstream-spools"),
        ("c", None),
        ("hdfs://namenode/c", None),
        ("dbfs:/c", None),
        ("memory://c", None),
    ],
)
def test_spools_go_into_the_checkpoint_where_python_workers_can_open_it(checkpoint: str, place: str | None) -> None:
    found = SinkOptions.parse({**GIVEN, "checkpointLocation": checkpoint}).place
    assert (None if found is None else found.url) == place


def test_a_broker_must_be_named() -> None:
    with pytest.raises(SourceOptionError, match="Give host:port of a broker"):
        SinkOptions.parse({"topic": "t"})


def test_the_tables_of_the_docs_are_those_of_the_sink() -> None:
    page = (Path(__file__).parents[3] / "docs" / "structured.md").read_text()
    tables = re.search(r"<!-- sink options -->\n(.*?)\n<!-- /sink options -->", page, re.DOTALL)
    assert tables is not None and tables[1] == markdown_tables(SINK_OPTIONS, SINK_REFUSED | of_kafka(SINK_REFUSED_PARAMETERS))
