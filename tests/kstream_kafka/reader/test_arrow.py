"""Chunks of messages as record batches: every column, and the sizes of the batches. Without a broker and without Spark."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from kstream_kafka import OffsetRange
from kstream_kafka.reader import arrow
from kstream_kafka.reader.arrow import COLUMNS, Chunk, record_batches, to_record_batch
from kstream_kafka.reader.data_frame import SCHEMA, checked_columns, kafka_data_frame, read_tasks
from kstream_kafka.reader.range_reads import Lend

from kstream.errors import MissingDependencyError
from tests.kstream_kafka.arrow_of_spark import arrow_of_spark
from tests.kstream_kafka.fakes import Message, records

WHERE = OffsetRange("orders", 3, 0, 100)
UTC = timezone.utc


@dataclass
class Timed(Message):
    """A message with a timestamp of its own; 1 is the producer's, 2 the broker's, 0 none."""

    kind: int = 1
    stamp: int = 0

    def timestamp(self) -> tuple[int, int]:
        return (self.kind, self.stamp)


def rows(messages: list[Any], where: OffsetRange = WHERE) -> list[dict[str, Any]]:
    return to_record_batch([(where, messages)]).to_pylist()


def column(name: str, messages: list[Any]) -> list[Any]:
    return to_record_batch([(WHERE, messages)]).column(name).to_pylist()


def test_the_columns_are_those_of_Sparks_Kafka_source():
    assert [f"{field.name} {field.type}" for field in arrow.SCHEMA] == [
        "key binary",
        "value binary",
        "topic string",
        "partition int32",
        "offset int64",
        "timestamp timestamp[us, tz=UTC]",
        "timestampType int32",
        "headers list<item: struct<key: string, value: binary>>",
    ]
    assert SCHEMA.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in SCHEMA)


def test_the_schema_told_to_Spark_is_the_schema_of_the_batches():
    expected = [(field.name, field.type) for field in arrow_of_spark(SCHEMA)]
    made = to_record_batch([(WHERE, records([1]))]).schema
    assert [(name, str(kind).replace("element", "item")) for name, kind in expected] == [(f.name, str(f.type)) for f in made]
    assert list(COLUMNS) == SCHEMA.names


def test_a_record_is_a_row_with_all_its_parts():
    message = Timed(41, b"v", b"k", extra=[("trace", b"\x00\xff")], stamp=1_700_000_000_123)
    assert rows([message]) == [
        {
            "key": b"k",
            "value": b"v",
            "topic": "orders",
            "partition": 3,
            "offset": 41,
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
            "timestampType": 0,
            "headers": [{"key": "trace", "value": b"\x00\xff"}],
        }
    ]


def test_no_key_and_a_tombstone_are_null_and_empty_bytes_are_not():
    messages = [Message(1, None, b"k"), Message(2, b"", None), Message(3, b"\xff\x00", b"")]
    assert column("value", messages) == [None, b"", b"\xff\x00"]
    assert column("key", messages) == [b"k", None, b""]


def test_offsets_with_gaps_are_the_records_own():
    assert column("offset", records([5, 6, 7])) == [5, 6, 7]
    assert column("offset", records([5, 7, 9, 2**40])) == [5, 7, 9, 2**40]


def test_timestamp_types_are_Javas_numbers_also_where_they_change_within_a_chunk():
    messages = [Timed(1, kind=1, stamp=1000), Timed(2, kind=2, stamp=2000), Timed(3, kind=0, stamp=-1)]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert column("timestampType", messages) == [0, 1, -1]
    assert column("timestamp", messages) == [epoch + timedelta(seconds=1), epoch + timedelta(seconds=2), None]
    assert column("timestampType", messages[1:2]) == [1]
    assert column("timestamp", [Timed(1, kind=1, stamp=-1)]) == [None]


def test_headers_are_null_where_there_are_none_and_values_may_be_null():
    messages = [
        Message(1),
        Message(2, extra=[]),
        Message(3, extra=[("a", None), ("a", b"2"), ("ключ", b"")]),
    ]
    assert column("headers", messages) == [
        None,
        None,
        [{"key": "a", "value": None}, {"key": "a", "value": b"2"}, {"key": "ключ", "value": b""}],
    ]
    assert column("headers", messages[:2]) == [None, None]


# -- columns


ASKED = {"key": "key", "value": "value", "offset": "offset", "timestamp": "timestamp", "timestampType": "timestamp", "headers": "headers"}
"""Column → the method of a message that has it. The others come from the range."""


@pytest.mark.parametrize("name", COLUMNS)
def test_a_message_is_asked_for_nothing_that_no_column_needs(name: str):
    class Silent(Message):
        """A message that has nothing but what the column needs. A gap makes its offset needed."""

    def asked(_message: Any) -> Any:
        raise AssertionError("asked")

    for method in {"key", "value", "timestamp", "headers", "topic", "partition", "leader_epoch", *ASKED.values()} - {ASKED.get(name)}:
        setattr(Silent, method, asked)
    batches = list(record_batches([(WHERE, [Silent(1), Silent(5)]), (WHERE, [Silent(9)])], [name]))
    assert [batch.schema for batch in batches] == [pa.schema([arrow.SCHEMA.field(name)])] and batches[0].num_rows == 3


def test_the_columns_are_in_the_order_asked_for_and_have_the_same_values_as_in_whole_rows():
    chunks = [(WHERE, [Timed(3, b"a", b"k", extra=[("h", b"1")], kind=2, stamp=7), Timed(8, None, None, kind=0, stamp=-1)])]
    whole = to_record_batch(chunks)
    for names in ["offset", "value"], ["timestampType", "headers", "key"], ["timestamp"], list(reversed(COLUMNS)):
        some = to_record_batch(chunks, names)
        assert some.schema.names == names and [some.column(n) for n in names] == [whole.column(n) for n in names]


def test_an_unknown_column_is_an_error_with_the_name_that_was_meant():
    assert checked_columns("foreachBatch", None) == COLUMNS
    assert checked_columns("foreachBatch", ["offset", "value"]) == ("offset", "value")
    with pytest.raises(ValueError, match=r"^foreachBatch: a Kafka record has no column 'valeu'\. Did you mean 'value'\?$"):
        checked_columns("foreachBatch", ["key", "valeu"])
    with pytest.raises(ValueError, match=r"no column 'body'\. The columns are key, value, topic, partition, .*, headers\.$"):
        checked_columns("foreachBatch", ["body"])


@pytest.mark.parametrize("columns", [[], ["value", "key", "value"]], ids=["none", "twice"])
def test_each_column_is_asked_for_once_and_at_least_one(columns: list[str]):
    with pytest.raises(ValueError, match="columns must name each column once, and at least one"):
        checked_columns("foreachBatch", columns)


@pytest.mark.parametrize("columns", ["value", {"value"}, [1], 3], ids=repr)
def test_columns_that_are_no_list_of_names_are_refused(columns: Any):
    with pytest.raises(TypeError, match=r"^foreachBatch: columns must be a list of names, as \['value'\], it is "):
        checked_columns("foreachBatch", columns)


def test_no_messages_are_a_batch_of_no_rows():
    batch = to_record_batch([(WHERE, [])])
    assert batch.num_rows == 0 and batch.schema.equals(arrow.SCHEMA)


def test_the_chunks_of_several_partitions_keep_their_places_in_one_batch():
    other = OffsetRange("refunds", 0, 0, 100)
    batch = to_record_batch([(WHERE, records([5, 9])), (other, records([7]))])
    places = zip(*(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    assert list(places) == [("orders", 3, 5), ("orders", 3, 9), ("refunds", 0, 7)]


# -- sizes


def sizes(chunks: list[Chunk]) -> list[int]:
    batches = list(record_batches(chunks))
    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert values == [m.value() for _, messages in chunks for m in messages]
    return [batch.num_rows for batch in batches]


def test_small_chunks_are_put_together_and_full_ones_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(arrow, "FEW_RECORDS", 4)
    monkeypatch.setattr(arrow, "ENOUGH_RECORDS", 6)
    chunks = [(WHERE, records(range(n))) for n in (1, 2, 3, 1, 1, 8, 2)]
    assert sizes(chunks) == [6, 2, 8, 2]


def test_large_records_come_in_bounded_batches_and_none_is_lost(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(arrow, "MOST_BYTES", 10_000)
    large = [replace(m, payload=bytes([i]) * 3_000) for i, m in enumerate(records(range(10)))]
    assert max(sizes([(WHERE, large)])) <= 4
    assert sizes([(WHERE, [Message(i, b"x" * 50_000)]) for i in range(3)]) == [1, 1, 1]


def test_nothing_gives_nothing():
    assert sizes([]) == []
    assert sizes([(WHERE, [])]) == []


# -- the task


class Reads:
    """Task i holds one chunk, of one record with offset i."""

    def __len__(self) -> int:
        return 2

    def chunks(self, index: int, lend: Lend) -> Iterator[Chunk]:
        assert not gc.isenabled()
        yield WHERE, list(records([index]))


def ids(*batches: list[int]) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], ["id"]) for numbers in batches])


def test_a_task_reads_all_the_numbers_it_is_given():
    batches = read_tasks(Reads(), ids([4], [0, 2]), ["offset"])  # pyright: ignore[reportArgumentType]
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == [4, 0, 2]
    assert list(read_tasks(Reads(), ids(), COLUMNS)) == []  # pyright: ignore[reportArgumentType]


def test_cycles_are_collected_again_after_a_read_and_after_one_given_up():
    batches = read_tasks(Reads(), ids([1]), COLUMNS)  # pyright: ignore[reportArgumentType]
    next(batches)
    assert not gc.isenabled()
    batches.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert gc.isenabled()
    list(read_tasks(Reads(), ids([1]), COLUMNS))  # pyright: ignore[reportArgumentType]
    assert gc.isenabled()


@pytest.mark.parametrize("package", ["pyarrow", "pandas"])
def test_a_missing_package_is_told_on_the_driver_before_anything_runs(package: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"needs {package} .*: pip install 'kstream-spark\[spark\]'") as caught:
        kafka_data_frame(None, Reads())  # pyright: ignore[reportArgumentType]
    assert caught.value.facts["package"] == package


def test_where_pyspark_lacks_distutils_setuptools_is_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    from pyspark.sql.pandas import utils

    def as_in_pyspark_3_5() -> None:
        raise ModuleNotFoundError("No module named 'distutils'", name="distutils")

    monkeypatch.setattr(utils, "require_minimum_pyarrow_version", as_in_pyspark_3_5)
    with pytest.raises(MissingDependencyError, match=r"needs setuptools \(No module named 'distutils'\): pip install") as caught:
        kafka_data_frame(None, Reads())  # pyright: ignore[reportArgumentType]
    assert caught.value.facts["package"] == "setuptools"
