"""A KafkaRDD leaves out exactly the records that its batch skips: packed and split, in tasks, counts and DataFrames."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer
from kstream_kafka import OffsetRange
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.demo.embedded_broker import MockCluster
from kstream_kafka.planning.packing import Packing, RangeSplit, leave_out, pack
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.reader.decoding import Decoding, utf8_decoder, value_only
from kstream_kafka.reader.range_reads import RangeReads
from kstream_kafka.reader.range_task import lend_in_task

from kstream.batch import SkippedRecord
from kstream.batch_time import Time
from kstream.worker.current_record import begin_task
from tests.kstream_kafka.stream import Stream

RANGES = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 4, 10), OffsetRange("t", 2, 3, 3), OffsetRange("t", 3, 0, 1)]
SKIPPED = [SkippedRecord(0, "t", 0, 4), SkippedRecord(0, "t", 0, 9), SkippedRecord(0, "t", 3, 0), SkippedRecord(0, "t", 1, 3)]
"""Two records of a range, the only record of one, and one that lies in no range."""
LEFT = [f"0:{n}" for n in range(9) if n != 4] + [f"1:{n}" for n in range(4, 10)]


@pytest.fixture(scope="module")
def bootstrap() -> Any:
    cluster = MockCluster()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for partition in range(4):
        for n in range(12):
            producer.produce("t", f"{partition}:{n}", partition=partition)
    assert producer.flush(10) == 0
    yield cluster.bootstrap
    del cluster


def reads(packing: Packing, bootstrap: str = "h:1", skipped: Any = SKIPPED) -> RangeReads:
    executor = KafkaParams.parse({"bootstrap.servers": bootstrap}).executor()
    return RangeReads.of([RangeSplit(r) for r in RANGES], executor, 10_000, packing, skipped=skipped)


PACKINGS = [Packing(), Packing(max_tasks=1), Packing(max_tasks=2), Packing(max_records_per_task=3), Packing(2, 4)]


@pytest.mark.parametrize("packing", PACKINGS, ids=str)
def test_all_tasks_together_read_the_ranges_without_the_skipped_records(bootstrap: str, packing: Packing) -> None:
    begin_task()
    made = reads(packing, bootstrap)
    chunks = [messages for index in range(len(made)) for _, messages in made.chunks(index, lend_in_task)]
    values = [m.value().decode() for messages in chunks for m in messages]
    assert sorted(values) == sorted(LEFT)
    for partition in range(4):
        of_it = [int(v.partition(":")[2]) for v in values if v.startswith(f"{partition}:")]
        assert of_it == sorted(of_it), "the order inside a partition is kept"


@pytest.mark.parametrize("packing", PACKINGS, ids=str)
def test_a_task_keeps_its_place_and_without_skipped_records_nothing_changes(packing: Packing) -> None:
    plain, made = reads(packing, skipped=()), reads(packing)
    assert plain.tasks == pack([RangeSplit(r) for r in RANGES], packing)
    assert len(plain) == len(made)
    for before, after in zip(plain.tasks, made.tasks, strict=True):
        for split in after:
            assert any(
                (split.range.topic, split.range.partition) == (b.range.topic, b.range.partition)
                and b.range.fromOffset <= split.range.fromOffset
                and split.range.untilOffset <= b.range.untilOffset
                for b in before
            )


def test_the_first_part_keeps_the_epoch_of_its_beginning_and_a_later_one_has_that_of_the_end() -> None:
    parts = leave_out((RangeSplit(OffsetRange("t", 0, 0, 10), 7, 5),), [SkippedRecord(0, "t", 0, 4)])
    assert parts == (RangeSplit(OffsetRange("t", 0, 0, 4), 7, 5), RangeSplit(OffsetRange("t", 0, 5, 10), 7, 7))


@pytest.mark.parametrize("exact", [True, False])
def test_count_isEmpty_and_take_know_what_is_left(sc: Any, bootstrap: str, exact: bool) -> None:
    from kstream_kafka.reader.kafka_rdd import KafkaRDD

    def rdd(ranges: list[OffsetRange], skipped: Any) -> KafkaRDD:
        executor = KafkaParams.parse({"bootstrap.servers": bootstrap}).executor()
        decoding = Decoding(None, utf8_decoder, value_only)
        reads = RangeReads.of([RangeSplit(r) for r in ranges], executor, 120_000, skipped=skipped)
        return KafkaRDD(sc, ranges, reads, decoding, exact_counts=exact)

    whole = rdd(RANGES, SKIPPED)
    assert whole.offsetRanges() == RANGES, "the ranges never change"
    assert (whole.count(), whole.isEmpty(), whole.collect(), whole.take(5)) == (len(LEFT), False, LEFT, LEFT[:5])
    assert whole.take(100) == LEFT and whole.map(str).count() == len(LEFT)
    nothing = rdd(RANGES[3:], SKIPPED)
    assert (nothing.count(), nothing.isEmpty(), nothing.take(1), nothing.getNumPartitions()) == (0, True, [], 1)
    assert nothing.offsetRangesOf(0) == []


def test_a_data_frame_of_the_batch_leaves_the_records_out_too(sc: Any, bootstrap: str) -> None:
    from kstream_kafka.reader.data_frame import kafka_data_frame
    from pyspark.sql import SparkSession

    frame = kafka_data_frame(SparkSession(sc), reads(Packing(), bootstrap))
    assert sorted(bytes(row["value"]).decode() for row in frame.collect()) == sorted(LEFT)


def test_a_data_frame_has_the_columns_that_were_asked_for_in_their_order(sc: Any, bootstrap: str) -> None:
    from kstream_kafka import KafkaUtils
    from pyspark.sql import SparkSession

    def frame(columns: list[str]) -> Any:
        return KafkaUtils.createDataFrame(SparkSession(sc), {"bootstrap.servers": bootstrap}, RANGES[2:], columns=columns)

    assert [(row.offset, bytes(row.value)) for row in frame(["offset", "value"]).collect()] == [(0, b"3:0")]
    assert frame(["value"]).dtypes == [("value", "binary")] and frame(["value"]).count() == 1


def test_the_stored_form_of_the_plan_has_the_whole_ranges() -> None:
    stream = Stream({("t", 0): (0, 10)}, auto_offset_reset="earliest").start()
    stream.batch()
    time, plan = Time(1000), KafkaPlan([RANGES[0]], [None], [None])
    stream.stream.remember_plan(time, plan)
    stream.stream.leave_out(time, SKIPPED[:1])
    left = stream.stream._plans[time]
    assert left.encode() == plan.encode() and left.num_records == plan.num_records
    assert stream.stream.outcome(time, left).skipped == SKIPPED[:1]
