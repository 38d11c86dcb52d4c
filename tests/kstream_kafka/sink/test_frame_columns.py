"""The columns of a frame that is written: which there may be, and what becomes of a row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from kstream_kafka.errors import RecordTooLargeError, SourceOptionError
from kstream_kafka.sink.frame_columns import RowEncoder, check_columns, encoded, kept
from pyspark.sql import Row
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

HEADERS = ArrayType(StructType([StructField("key", StringType(), False), StructField("value", BinaryType())]), False)
ALL: dict[str, Any] = {
    "topic": StringType(),
    "value": StringType(),
    "partition": IntegerType(),
    "key": BinaryType(),
    "headers": HEADERS,
    "offset": LongType(),
}


def schema(types: dict[str, Any]) -> StructType:
    return StructType([StructField(name, found) for name, found in types.items()])


def test_the_columns_are_those_of_sparks_own_sink_and_others_are_left_out() -> None:
    assert check_columns(schema(ALL), None, SourceOptionError) == ("key", "value", "headers", "partition", "topic")
    assert check_columns(schema(ALL), "t", SourceOptionError) == ("key", "value", "headers", "partition")
    assert check_columns(schema({"value": BinaryType()}), "t", SourceOptionError) == ("value",)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"key": StringType()}, "there is no column 'value'"),
        ({"value": StringType()}, "'topic' of the data source kstream is missing"),
        ({**ALL, "value": LongType()}, "have 'value' as bigint, and it must be string or binary"),
        ({**ALL, "partition": LongType()}, "have 'partition' as bigint, and it must be int"),
        ({**ALL, "topic": BinaryType()}, "have 'topic' as binary, and it must be string"),
        ({**ALL, "headers": ArrayType(StringType())}, "it must be array<struct<key:string,value:binary>>"),
    ],
)
def test_a_wrong_column_is_one_error_that_names_it_and_its_types(types: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceOptionError) as raised:
        check_columns(schema(types), None, SourceOptionError)
    assert message in str(raised.value)


def test_rows_become_records_whether_they_come_as_arrow_or_as_rows() -> None:
    columns = check_columns(schema(ALL), None, SourceOptionError)
    header = [Row(key="h", value=b"1"), Row(key="n", value=None)]
    rows = [
        Row(topic="a", value="text", partition=1, key=b"k", headers=header, offset=5),
        Row(topic="b", value=None, partition=None, key=None, headers=None, offset=6),
    ]
    batch = pa.RecordBatch.from_pylist(
        [{**row.asDict(recursive=True), "value": row.value} for row in rows],
        pa.schema(
            [
                ("topic", pa.large_string()),
                ("value", pa.string()),
                ("partition", pa.int32()),
                ("key", pa.binary()),
                ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
                ("offset", pa.int64()),
            ]
        ),
    )
    records = [("a", b"k", b"text", [("h", b"1"), ("n", None)], 1, None), ("b", None, None, [], None, None)]
    for frame in ([batch], rows):
        assert list(encoded(kept(frame, columns), None, 1_000)) == records
    assert [record[0] for record in encoded(kept(rows, columns[:-1]), "t", 1_000)] == ["t", "t"]
    in_order = [[row[name] for name in columns] for row in rows]
    assert list(RowEncoder("totals", columns, None, 1_000)(in_order)) == records
    assert list(RowEncoder("totals", ["value"], "t", 1_000)([[bytearray(b"v")]])) == [("t", None, b"v", [], None, None)]


def test_rows_that_cannot_be_written_are_refused() -> None:
    def write(**row: Any) -> None:
        columns = tuple(name for name in ("value", "headers", "partition", "topic") if name in row)
        list(encoded(kept([Row(**row)], columns), None, 1_000))

    with pytest.raises(ValueError, match="its column topic is null"):
        write(value=b"v", topic=None)
    with pytest.raises(ValueError, match="has the partition -1"):
        write(value=b"v", partition=-1, topic="t")
    for header in (None, Row(key=None, value=b"1")):
        with pytest.raises(ValueError, match="a record for topic t has a header that is null or has no key"):
            write(value=b"v", headers=[Row(key="h", value=b"1"), header], topic="t")
    with pytest.raises(RecordTooLargeError, match="output kstream: a record for topic t"):
        write(value=b"v" * 1_000, topic="t")
    with pytest.raises(RecordTooLargeError, match="output totals: a record for topic t"):
        list(RowEncoder("totals", ["value"], "t", 1_000)([["v" * 1_000]]))
    with pytest.raises(RecordTooLargeError):
        write(value=b"v", headers=[Row(key="h", value=b"v" * 1_000)], topic="t")
