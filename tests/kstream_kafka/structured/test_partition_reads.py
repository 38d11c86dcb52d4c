"""A task of a query: the columns that are asked for, and losses that nobody else hears of."""

from __future__ import annotations

import gc
import logging
import pickle
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from kstream_kafka.client.ports import FetchErrorKind
from kstream_kafka.errors import RecordsRemovedError
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.reader import consumer_cache
from kstream_kafka.reader.consumer_cache import ConsumerCache
from kstream_kafka.structured.columns import chosen_columns, default_schema
from kstream_kafka.structured.options import SourceOptions
from kstream_kafka.structured.partition_reads import KafkaInputPartition, PartitionReads
from pyspark.serializers import CPickleSerializer
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from kstream.offsets.offset_range import OffsetRange
from kstream.worker import process
from tests.kstream_kafka.arrow_of_spark import arrow_of_spark
from tests.kstream_kafka.fakes import FakeConsumer, Message, records

ALL = default_schema(include_headers=True)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeConsumer]:
    """The consumer of this process. It has the records 0 to 9."""
    fake = FakeConsumer([records(range(10))], log_range=(4, 10))
    monkeypatch.setattr(consumer_cache, "_cache", ConsumerCache(lambda _: fake))
    yield fake


def reads(*names: str, **given: str) -> PartitionReads:
    options = SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given})
    return PartitionReads.of(options, names)


def partition(begin: int, end: int) -> KafkaInputPartition:
    return KafkaInputPartition((RangeSplit(OffsetRange("t", 0, begin, end)),), {})


@pytest.mark.parametrize("names", [("value",), ("offset", "value"), ("headers", "timestamp"), chosen_columns(ALL)])
def test_a_task_gives_the_columns_of_the_query_in_its_order_with_sparks_types(consumer: FakeConsumer, names: tuple[str, ...]) -> None:
    schema = StructType([ALL[name] for name in names])
    [batch] = reads(*names).read(partition(0, 10))
    assert batch.schema.names == list(names) and batch.num_rows == 10
    assert arrow_of_spark(schema).equals(batch.schema)


def test_a_task_reads_the_records_of_its_partition_and_no_others(consumer: FakeConsumer) -> None:
    consumer.script = [records(range(2, 10))]
    [batch] = reads("offset", "value").read(partition(2, 5))
    assert batch.to_pydict() == {"offset": [2, 3, 4], "value": [b"2", b"3", b"4"]}


def test_a_task_reads_small_ranges_together_and_gives_one_record_batch_of_them(consumer: FakeConsumer) -> None:
    consumer.script = [[*records(range(2, 5)), *records(range(4, 6), where=("t", 1))]]
    both = KafkaInputPartition((RangeSplit(OffsetRange("t", 0, 2, 5)), RangeSplit(OffsetRange("t", 1, 4, 6))), {})
    [batch] = reads("partition", "offset").read(both)
    assert batch.to_pydict() == {"partition": [0, 0, 0, 1, 1], "offset": [2, 3, 4, 4, 5]}
    assert consumer.assignments == 1


def test_a_query_that_reads_nothing_has_one_task_which_reads_nothing(consumer: FakeConsumer) -> None:
    assert list(reads("value").read(InputPartition(None))) == []


def out_of_range() -> list[Message]:
    return [Message(0, problem=FetchErrorKind.OUT_OF_RANGE)]


def test_records_that_are_gone_fail_the_task(consumer: FakeConsumer) -> None:
    consumer.script = [out_of_range()]
    with pytest.raises(RecordsRemovedError):
        list(reads("value").read(partition(0, 10)))


def test_without_that_the_task_goes_on_and_its_log_tells_the_loss(consumer: FakeConsumer, caplog: pytest.LogCaptureFixture) -> None:
    consumer.script = [out_of_range(), records(range(4, 10))]
    with caplog.at_level(logging.WARNING):
        [batch] = reads("offset", failOnDataLoss="false").read(partition(0, 10))
    assert batch.to_pydict() == {"offset": [4, 5, 6, 7, 8, 9]}
    assert any("t-0: the query goes on without records from offset 0" in record.message for record in caplog.records)


def test_a_partition_reaches_its_task_whole_in_few_bytes() -> None:
    """A trigger of a thousand partitions has a thousand of them, which the planner pickles one by one."""
    ranges = RangeSplit(OffsetRange("orders", 7, 10**9, 10**9 + 5), 3, 2), RangeSplit(OffsetRange("orders", 8, 0, 1))
    whole = KafkaInputPartition(ranges, {"orders": "AbCdEfGhIjKlMnOpQrStUv"})
    [one, both] = [CPickleSerializer().dumps(p) for p in (KafkaInputPartition(ranges[:1], whole.topic_ids), whole)]
    assert CPickleSerializer().loads(both) == whole
    assert len(one) < 160 and len(both) < 200


def test_what_goes_to_a_task_is_pickled(consumer: FakeConsumer) -> None:
    made: Any = (reads("value"), partition(0, 10))
    assert pickle.loads(pickle.dumps(made)) == made


def test_the_collector_of_a_worker_passes_over_what_was_loaded_before_a_task_reads(
    consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark's workers collect after every task, and the next task waits for it."""
    monkeypatch.setitem(sys.modules, "pyspark.worker", ModuleType("pyspark.worker"))
    monkeypatch.setattr(process, "_seen", 0)
    try:
        list(reads("value").read(partition(0, 10)))
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
