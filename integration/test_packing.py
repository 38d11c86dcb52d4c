"""Packed and split RDDs against a real broker: exactly the records, in order, with few consumers and few assignments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from kstream_kafka import KafkaRDD, OffsetRange, consumer_record, value_only
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.planning.packing import MOST_TOGETHER, SMALL_RANGE, Packing, RangeSplit
from kstream_kafka.reader import consumer_cache
from kstream_kafka.reader.consumer_cache import ConsumerCache
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_consumer import KafkaRangeConsumer
from kstream_kafka.reader.range_reads import RangeReads
from kstream_kafka.reader.range_task import lend_in_task

from integration.kafka_broker import KafkaBroker

MakeTopic = Callable[..., str]
WHERE_AND_VALUE = Decoding(message_handler=lambda m: (m.partition, m.offset, m.message))


def rdd_of(sc: Any, kafka: KafkaBroker, ranges: list[OffsetRange], packing: Packing, decoding: Decoding = WHERE_AND_VALUE) -> KafkaRDD:
    return KafkaRDD(sc, ranges, RangeReads.of([RangeSplit(r) for r in ranges], executor(kafka), 20_000, packing), decoding)


def executor(kafka: KafkaBroker) -> dict[str, Any]:
    return KafkaParams.parse({"bootstrap.servers": kafka.bootstrap}).executor()


def fill(kafka: KafkaBroker, topic: str, sizes: list[int]) -> list[OffsetRange]:
    """So many records in each partition; the value tells partition and offset."""
    kafka.produce(topic, [(None, f"{p}-{at}", p) for p, size in enumerate(sizes) for at in range(size)])
    return [OffsetRange(topic, p, 0, size) for p, size in enumerate(sizes)]


def expected(*ranges: OffsetRange) -> list[tuple[int, int, str]]:
    return [(r.partition, at, f"{r.partition}-{at}") for r in ranges for at in range(r.fromOffset, r.untilOffset)]


@pytest.fixture(scope="module")
def mixed(kafka: KafkaBroker) -> list[OffsetRange]:
    """Ranges small, large and empty of one topic, in no order; logs go on past their ends and begin before them."""
    kafka.create_topic("mixed", 8)
    whole = fill(kafka, "mixed", [5, 3000, 0, 1, 40, 1500, 700, 3])
    cut = [OffsetRange("mixed", r.partition, min(1, r.count()), r.untilOffset - r.count() // 3) for r in whole]
    return [cut[p] for p in (3, 1, 0, 2, 7, 6, 4, 5)]


# -- exactly the records


@pytest.mark.parametrize("packing", [Packing(1), Packing(3), Packing(100), Packing(2, 400), Packing(100, 400)], ids=str)
def test_a_packed_RDD_has_exactly_the_records_in_the_order_of_partition_and_offset(
    sc: Any, kafka: KafkaBroker, mixed: list[OffsetRange], packing: Packing
):
    rdd = rdd_of(sc, kafka, mixed, packing)
    wanted = expected(*sorted(mixed, key=lambda r: r.partition))
    assert rdd.collect() == wanted
    assert rdd.getNumPartitions() <= packing.max_tasks
    assert rdd.offsetRanges() == mixed
    assert [expected(*rdd.offsetRangesOf(i)) for i in range(rdd.getNumPartitions())] == rdd.glom().collect()


def test_a_split_RDD_has_the_parts_of_a_range_in_consecutive_partitions(sc: Any, kafka: KafkaBroker, mixed: list[OffsetRange]):
    rdd = rdd_of(sc, kafka, mixed, Packing(max_records_per_task=300))
    assert rdd.collect() == expected(*mixed)
    parts = [rdd.offsetRangesOf(i) for i in range(rdd.getNumPartitions())]
    assert all(len(part) == 1 and part[0].count() <= 300 for part in parts)
    assert [expected(*part) for part in parts] == rdd.glom().collect()


@pytest.mark.parametrize("packing", [Packing(1), Packing(3), Packing(0, 300), Packing(3, 300)], ids=str)
def test_count_take_first_and_isEmpty_are_exact(sc: Any, kafka: KafkaBroker, mixed: list[OffsetRange], packing: Packing):
    rdd = rdd_of(sc, kafka, mixed, packing)
    all_of_it = expected(*(mixed if not packing.max_tasks else sorted(mixed, key=lambda r: r.partition)))
    assert rdd.count() == len(all_of_it) == rdd.map(len).count() and not rdd.isEmpty()
    for num in (0, 1, 4, 900, 10**6):
        assert rdd.take(num) == all_of_it[:num]
    assert rdd.first() == all_of_it[0]


def test_ranges_without_records_make_an_empty_RDD_that_works(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic(2)
    rdd = rdd_of(sc, kafka, [OffsetRange(t, 0, 0, 0), OffsetRange(t, 1, 0, 0)], Packing(4))
    assert rdd.getNumPartitions() == 0 and rdd.collect() == [] and rdd.count() == 0 and rdd.isEmpty() and rdd.take(3) == []
    assert rdd.map(lambda r: (r[0], r)).groupByKey().collect() == [] and rdd.union(rdd).collect() == []


def test_a_packed_RDD_zips_with_itself_and_gives_the_same_order_again(sc: Any, kafka: KafkaBroker, mixed: list[OffsetRange]):
    rdd = rdd_of(sc, kafka, mixed, Packing(2))
    assert all(one == other for one, other in rdd.zip(rdd).collect())


def test_two_ranges_of_one_partition_in_one_task_are_both_read(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic(2)
    fill(kafka, t, [20, 5])
    ranges = [OffsetRange(t, 0, 10, 14), OffsetRange(t, 0, 1, 4), OffsetRange(t, 1, 0, 5), OffsetRange(t, 0, 12, 16)]
    in_order = [ranges[1], ranges[0], ranges[3], ranges[2]]
    assert rdd_of(sc, kafka, ranges, Packing(1)).collect() == expected(*in_order)


def test_a_full_record_tells_all_that_the_broker_knows(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic(1, {"message.timestamp.type": "LogAppendTime"})
    created = topic()
    kafka.produce(created, [("k", "v", 0, 1234)])
    kafka.produce(t, [("k", None, 0)])
    ranges = [OffsetRange(created, 0, 0, 1), OffsetRange(t, 0, 0, 1)]
    by_topic = {r.topic: r for r in rdd_of(sc, kafka, ranges, Packing(1), Decoding(message_handler=consumer_record)).collect()}
    assert by_topic[created] == (created, 0, 0, 1234, 0, "k", "v", (), 0)
    appended = by_topic[t]
    assert appended.timestampType == 1 and appended.timestamp > 10**12 and appended.value is None and appended.leaderEpoch == 0


# -- what it costs


class Counting:
    """Makes real consumers; counts them and what they are assigned."""

    def __init__(self) -> None:
        self.made = 0
        self.assigned: list[int] = []

    def __call__(self, settings: Any) -> KafkaRangeConsumer:
        self.made += 1
        consumer = KafkaRangeConsumer(settings)
        assign = consumer.assign

        def counted(begins: Any) -> None:
            self.assigned.append(len(begins))
            assign(begins)

        consumer.assign = counted  # type: ignore[method-assign]
        return consumer


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    """The cache of this very process, which has no Spark task: `chunks` is called directly."""
    counting = Counting()
    cache = ConsumerCache(counting)
    monkeypatch.setattr(consumer_cache, "of_this_process", lambda: cache)
    yield counting
    cache.close()


def test_a_thousand_small_ranges_are_read_with_one_consumer_and_a_handful_of_assignments(
    kafka: KafkaBroker, topic: MakeTopic, counting: Counting
):
    t = topic(1000)
    reads = RangeReads.of([RangeSplit(r) for r in fill(kafka, t, [1] * 1000)], executor(kafka), 20_000, Packing(1))
    for _ in range(2):
        chunks = list(reads.chunks(0, lend_in_task))
        assert [(r.partition, [m.offset() for m in messages]) for r, messages in chunks] == [(p, [0]) for p in range(1000)]
    assert counting.made == 1 and counting.assigned == [MOST_TOGETHER] * (2000 // MOST_TOGETHER)
    kafka.delete_topic(t)


def test_small_and_large_ranges_of_a_task_are_read_by_two_consumers_whatever_their_number(
    kafka: KafkaBroker, topic: MakeTopic, counting: Counting
):
    t = topic(5)
    sizes = [3, SMALL_RANGE + 1, 5, SMALL_RANGE + 2, 4]
    reads = RangeReads.of([RangeSplit(r) for r in fill(kafka, t, sizes)], executor(kafka), 20_000, Packing(1))
    assert [(r.partition, len(messages)) for r, messages in reads.chunks(0, lend_in_task)] == list(enumerate(sizes))
    assert counting.made == 2 and counting.assigned == [1] * 5


def test_small_ranges_in_the_middle_of_long_logs_are_read_at_once_though_far_more_is_fetched(
    kafka: KafkaBroker, topic: MakeTopic, counting: Counting
):
    t = topic(20)
    whole = fill(kafka, t, [1500] * 20)
    few = [OffsetRange(t, r.partition, 700, 702) for r in whole]
    reads = RangeReads.of([RangeSplit(r) for r in few], executor(kafka), 20_000, Packing(1))
    assert [m.offset() for _, messages in reads.chunks(0, lend_in_task) for m in messages] == [700, 701] * 20
    assert counting.assigned == [20]


def test_the_first_range_of_a_topic_new_to_a_consumer_does_not_wait_for_the_next_look_at_the_metadata(
    kafka: KafkaBroker, topic: MakeTopic, counting: Counting, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []
    ask = KafkaRangeConsumer._learn_leaders  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(KafkaRangeConsumer, "_learn_leaders", lambda self, t: (asked.append(t), ask(self, t)))
    topics = [topic(), topic(), topic()]
    for t in [*topics, *topics]:
        reads = RangeReads.of([RangeSplit(r) for r in fill(kafka, t, [1])], executor(kafka), 20_000)
        assert [len(messages) for _, messages in reads.chunks(0, lend_in_task)] == [1]
    assert asked == topics and counting.made == 1


# -- what fails


def test_a_range_past_the_end_of_its_log_fails_the_packed_task_and_is_named(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic(3)
    first, second, third = fill(kafka, t, [4, 4, 4])
    beyond = OffsetRange(t, 1, 2, 10)
    with pytest.raises(Exception, match=rf"LogTruncatedError: {t}-1 \[2, 10\): the partition ends at 4"):
        rdd_of(sc, kafka, [first, beyond, third], Packing(1)).collect()
    assert rdd_of(sc, kafka, [first, second, third], Packing(1)).collect() == expected(first, second, third)


def test_records_removed_in_one_of_many_partitions_are_named(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic(3)
    ranges = fill(kafka, t, [4, 4, 4])
    (removed,) = kafka.admin.delete_records([TopicPartition(t, 2, 3)]).values()
    removed.result(30)
    with pytest.raises(Exception, match=re.escape(f"RecordsRemovedError: {t}-2 [0, 4): records [0, 3) were removed")):
        rdd_of(sc, kafka, ranges, Packing(1), Decoding(message_handler=value_only)).collect()
