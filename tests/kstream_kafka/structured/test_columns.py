"""The columns are those of Spark's Kafka source, and a schema selects among them."""

from __future__ import annotations

import pytest
from kstream_kafka.errors import SourceOptionError
from kstream_kafka.structured.columns import chosen_columns, default_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampNTZType

DDL = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
    "headers:array<struct<key:string,value:binary>>>"
)


def refused(*fields: StructField) -> str:
    with pytest.raises(SourceOptionError) as caught:
        chosen_columns(StructType(list(fields)))
    assert caught.value.key == "schema"
    return str(caught.value)


def test_the_schema_is_that_of_sparks_kafka_source_letter_for_letter() -> None:
    assert default_schema(True).simpleString() == DDL
    assert default_schema(False).simpleString() == DDL.partition(",headers")[0] + ">"
    assert all(field.nullable and not field.metadata for field in default_schema(True).fields)
    assert chosen_columns(default_schema(True)) == tuple(default_schema(True).names)


def test_a_schema_selects_columns_in_its_own_order() -> None:
    assert chosen_columns(StructType([StructField("offset", LongType()), StructField("value", BinaryType())])) == ("offset", "value")
    assert chosen_columns(StructType([default_schema(True)["headers"]])) == ("headers",)


def test_another_type_is_refused_with_both_types() -> None:
    assert "has the column 'value' as string, and it is binary. Cast it in the query" in refused(StructField("value", StringType()))
    assert "has the column 'offset' as int, and it is bigint" in refused(StructField("offset", IntegerType()))
    assert "as timestamp_ntz, and it is timestamp" in refused(StructField("timestamp", TimestampNTZType()))


def test_an_unknown_column_is_refused_with_the_nearest_name_or_all_of_them() -> None:
    assert "Did you mean 'timestampType'?" in refused(StructField("timestamp_type", IntegerType()))
    assert "The columns are: key binary, value binary, topic string" in refused(StructField("colour", StringType()))


def test_a_column_twice_one_that_is_not_nullable_and_none_at_all_are_refused() -> None:
    value = StructField("value", BinaryType())
    assert "has the column 'value' twice" in refused(value, value)
    assert "has the column 'value' as NOT NULL" in refused(StructField("value", BinaryType(), nullable=False))
    assert "names no column" in refused()
