"""A streaming query over a fake cluster: Spark's calls in Spark's order, and what a killed driver finds again."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from kstream_kafka.errors import BrokerUnreachableError, LogShrankError, PartitionRevokedError, SourceOptionError, TopicRecreatedError
from kstream_kafka.structured.bounds import PATIENCE_MS, patiently
from kstream_kafka.structured.options import SourceOptions
from kstream_kafka.structured.partition_reads import KafkaInputPartition
from kstream_kafka.structured.readers import NO_LIMIT, KafkaBatchReader, KafkaStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kstream.errors import CheckpointError
from tests.kstream_kafka.fakes import FakeClient
from tests.kstream_kafka.structured.micro_batches import EARLIEST, TWO, Logs, Query, WaitingClock, recreated


@pytest.fixture(params=["4.1", "4.2"])
def version(request: pytest.FixtureRequest) -> str:
    return request.param


def all_of(logs: Logs) -> list[tuple[str, int, int]]:
    return [(*p, at) for p, (begin, end) in logs.items() for at in range(begin, end)]


def test_a_query_reads_each_record_once_in_the_order_of_its_partition(version: str) -> None:
    query = Query(TWO, version, **EARLIEST).begin()
    assert query.trigger() == all_of(TWO)
    assert query.trigger() == []
    query.produce(("t", 0), 12)
    assert query.trigger() == [("t", 0, 10), ("t", 0, 11)]
    assert query.offsets[-1] == {"t": {"0": 12, "1": 20}}


def test_offsets_are_in_the_order_of_numbers_so_that_equal_offsets_have_equal_texts() -> None:
    query = Query({("t", n): (0, n) for n in (10, 9, 2)}, **EARLIEST)
    query.trigger()
    assert list(query.offsets[0]["t"]) == ["2", "9", "10"]


def test_a_trigger_without_data_costs_one_request(version: str) -> None:
    query = Query(TWO, version, **EARLIEST)
    for _ in range(3):
        query.trigger()
    query.client.asked.clear()
    query.trigger()
    assert query.client.asked == ["latest"]


def test_the_start_is_the_same_however_often_spark_asks(version: str) -> None:
    query = Query(TWO, version)
    first = query.reader.initialOffset()
    query.produce(("t", 0), 50)
    assert query.reader.initialOffset() == first == {"t": {"0": 10, "1": 20}}


def test_a_query_killed_in_its_first_batch_loses_no_record(version: str) -> None:
    """Spark does not store where a query began."""
    query = Query(TWO, version)
    query.construct()
    query.produce(("t", 0), 50)
    query.restart()
    query.trigger()
    assert query.read == [("t", 0, at) for at in range(10, 50)]


@pytest.mark.parametrize("killed", [1, 2, 3])
def test_a_batch_that_was_logged_and_not_committed_is_read_again_as_it_was(killed: int, version: str) -> None:
    query = Query(TWO, version, **EARLIEST, maxOffsetsPerTrigger="10")
    for _ in range(killed):
        query.trigger()
    query.construct()
    query.produce(("t", 1), 90)
    query.restart()
    while query.trigger():
        pass
    assert sorted(query.read) == all_of({("t", 0): (0, 10), ("t", 1): (5, 90)})


@pytest.mark.parametrize("start", ["earliest", "latest", '{"t":{"0":3}}'])
def test_whatever_happens_to_a_query_it_reads_each_record_once(start: str, version: str) -> None:
    """100 lives of a query, each with records, new partitions, outages and kills at any place between two of Spark's calls."""
    for seed in range(100):
        dice = random.Random(seed)
        limits = dice.choice([{}, {"maxOffsetsPerTrigger": "4"}, {"minOffsetsPerTrigger": "9", "maxTriggerDelay": "1m"}])
        query = Query({("t", 0): (0, 5)}, version, startingOffsets=start, **limits)
        for _ in range(40):
            match dice.randrange(8):
                case 0 | 1:
                    partition = dice.choice(sorted(query.client.logs))
                    query.produce(partition, query.client.logs[partition][1] + dice.randrange(8))
                case 2 if query.offsets:  # before that, given offsets must name it
                    query.client.logs["t", len(query.client.logs)] = (0, dice.randrange(5))
                case 3:
                    query.clock.advance(dice.choice([1_000, 60_000, 300_000]))
                case 4:
                    query.construct()
                    query.restart()
                case 5:
                    query.restart()
                case 6:
                    query.client.failure = BrokerUnreachableError("h:1", 1)
                    query.clock.at_wait = lambda _, query=query: setattr(query.client, "failure", None)
                    query.trigger()
                    query.client.failure = None
                case _:
                    query.trigger()
        for _ in range(40):
            query.clock.advance(300_000)
            query.trigger()
        begin = query.offsets[0]["t"] if start == "latest" else {"0": 3 if "3" in start else 0}
        expected = {p: (begin.get(str(p[1]), 0), end) for p, (_, end) in query.client.logs.items()}
        assert sorted(query.read) == sorted(all_of(expected)), seed


def test_a_restart_after_a_committed_batch_goes_on_there(version: str) -> None:
    query = Query(TWO, version, **EARLIEST).begin()
    query.trigger()
    query.produce(("t", 0), 11)
    assert query.restart().trigger() == [("t", 0, 10)]


def test_offsets_of_sparks_own_source_are_continued() -> None:
    query = Query(TWO)
    query.offsets, query.committed = [{"t": {"0": 3, "1": 18}}], 1
    assert query.restart().trigger() == [*(("t", 0, at) for at in range(3, 10)), ("t", 1, 18), ("t", 1, 19)]


def test_a_start_in_offsets_needs_no_empty_batch(version: str) -> None:
    query = Query(TWO, version, startingOffsets='{"t":{"0":8,"1":19}}')
    assert query.trigger() == [("t", 0, 8), ("t", 0, 9), ("t", 1, 19)]


def test_starting_offsets_name_all_partitions_and_no_others() -> None:
    with pytest.raises(SourceOptionError, match=r"'startingOffsets' .* lacks t-1"):
        Query(TWO, startingOffsets='{"t":{"0":8}}').start()
    with pytest.raises(SourceOptionError, match="names partitions that the query does not read: u-0"):
        Query(TWO, startingOffsets='{"t":{"0":8,"1":-1},"u":{"0":1}}').start()


def test_a_start_at_a_time() -> None:
    query = Query(TWO, startingTimestamp="500")
    query.client.times = {("t", 0): [(400, 0), (500, 4)], ("t", 1): [(600, 9)]}
    assert query.start() == {"t": {"0": 4, "1": 9}}


def test_a_start_after_all_records_is_an_error_or_the_end_of_the_log() -> None:
    query = Query(TWO, startingTimestamp="500")
    query.client.times = {("t", 0): [(500, 4)]}
    with pytest.raises(SourceOptionError, match="is 500, and t-1 has no record of that time or later"):
        query.start()
    query.given["startingOffsetsByTimestampStrategy"] = "latest"
    assert query.restart().start() == {"t": {"0": 4, "1": 20}}


def test_a_limit_of_offsets_is_shared_by_lag_and_ends_at_the_ends_of_the_logs(version: str) -> None:
    query = Query({("t", 0): (0, 30), ("t", 1): (0, 10)}, version, **EARLIEST, maxOffsetsPerTrigger="20").begin()
    query.trigger()
    assert query.offsets[-1] == {"t": {"0": 15, "1": 5}}
    query.trigger()
    assert query.trigger() == [] and len(query.read) == 40


def test_a_query_waits_for_enough_records_and_not_for_ever(version: str) -> None:
    query = Query(TWO, version, **EARLIEST, minOffsetsPerTrigger="100", maxTriggerDelay="10s").begin()
    assert query.trigger() == all_of(TWO), "the first batch with records does not wait"
    query.produce(("t", 0), 15)
    assert query.trigger() == []
    query.clock.advance(9_999)
    assert query.trigger() == []
    query.clock.advance(1)
    assert len(query.trigger()) == 5
    query.produce(("t", 0), 115)
    assert len(query.trigger()) == 100


def test_a_query_of_one_batch_knows_no_limit() -> None:
    query = Query(TWO, **EARLIEST, maxOffsetsPerTrigger="3", minOffsetsPerTrigger="2")
    assert query.trigger(ReadAllAvailable()) == all_of(TWO)
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(3)
    assert Query(TWO).reader.getDefaultReadLimit() == ReadMaxRows(NO_LIMIT)


def test_a_query_of_one_batch_that_begins_at_latest_and_is_killed_loses_no_record() -> None:
    query = Query(TWO)
    query.construct(ReadAllAvailable())
    query.produce(("t", 0), 50)
    query.restart()
    assert query.trigger(ReadAllAvailable()) == [("t", 0, at) for at in range(10, 50)]


def test_available_now_ends_at_the_records_of_its_start() -> None:
    query = Query(TWO, **EARLIEST, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="9")
    query.reader.prepareForTriggerAvailableNow()
    query.produce(("t", 0), 50)
    query.client.logs["t", 2] = (0, 5)
    while query.construct():
        query.run()
    assert sorted(query.read) == all_of(TWO)


def test_available_now_before_spark_4_2_reads_to_the_offsets_of_its_first_question() -> None:
    """There Spark asks once, before it asks for the beginning, and stops at the answer."""
    query = Query(TWO, "4.1", **EARLIEST)
    assert query.trigger() == all_of(TWO)
    query.produce(("t", 0), 15)
    assert query.restart().trigger() == [("t", 0, at) for at in range(10, 15)]


def test_partitions_that_come_later_begin_at_their_first_record(version: str) -> None:
    query = Query(TWO, version)
    query.trigger()
    query.client.logs["t", 2] = (3, 6)
    query.clock.advance(300_000)
    assert query.trigger() == [("t", 2, at) for at in (3, 4, 5)]


def test_a_new_partition_of_a_batch_that_runs_again_is_read_from_its_first_record(version: str) -> None:
    query = Query(TWO, version)
    query.trigger()
    query.client.logs["t", 2] = (3, 6)
    query.clock.advance(300_000)
    query.construct()
    query.restart()
    assert query.read == [("t", 2, at) for at in (3, 4, 5)]


def test_given_offsets_need_not_name_a_partition_that_has_come_since(version: str) -> None:
    query = Query(TWO, version, startingOffsets='{"t":{"0":8,"1":19}}')
    query.construct()
    query.client.logs["t", 2] = (3, 6)
    query.restart()
    query.clock.advance(300_000)
    query.trigger()
    assert query.read == [("t", 0, 8), ("t", 0, 9), ("t", 1, 19), ("t", 2, 3), ("t", 2, 4), ("t", 2, 5)]


def test_a_pattern_without_topics_waits_for_the_first(version: str) -> None:
    query = Query({}, version, subscribePattern="t.*")
    assert query.trigger() == [] and query.offsets == [{}]
    query.client.logs["t1", 0] = (0, 2)
    query.clock.advance(300_000)
    assert query.trigger() == [("t1", 0, 0), ("t1", 0, 1)]


def test_assigned_partitions_alone_are_read_and_must_exist() -> None:
    query = Query(TWO, assign='{"t":[1]}', **EARLIEST)
    query.trigger()
    assert query.trigger() == [("t", 1, at) for at in range(5, 20)]
    with pytest.raises(SourceOptionError, match=r"'assign' .* names partitions that the cluster does not have: t-7"):
        Query(TWO, assign='{"t":[7]}').start()


def test_an_outage_is_waited_out_and_the_query_goes_on(version: str) -> None:
    query = Query(TWO, version, **EARLIEST).begin()
    query.client.failure = BrokerUnreachableError("h:1", 15_000)
    query.clock.at_wait = lambda number: setattr(query.client, "failure", None) if number == 30 else None
    assert query.trigger() == all_of(TWO)
    assert query.clock.waits == 30


def test_an_outage_has_a_deadline() -> None:
    query = Query(TWO)
    query.trigger()
    query.client.failure = BrokerUnreachableError("h:1", 15_000)
    with pytest.raises(BrokerUnreachableError):
        query.trigger()
    assert query.clock.waits == PATIENCE_MS // 1000


def test_nobody_waits_for_a_driver_that_was_killed() -> None:
    clock, parents = WaitingClock(), [7, 7, 7, 1]

    def away() -> None:
        raise BrokerUnreachableError("h:1", 15_000)

    with pytest.raises(BrokerUnreachableError):
        patiently(away, clock, lambda: parents.pop(0))
    assert clock.waits == 2


def test_an_error_that_no_wait_mends_ends_the_query_at_once() -> None:
    query = Query(TWO)
    query.trigger()
    del query.client.logs["t", 1]
    query.clock.advance(300_000)
    with pytest.raises(PartitionRevokedError):
        query.trigger()
    assert query.clock.waits == 0


def test_a_topic_that_was_made_anew_fails_the_query_or_is_read_from_its_beginning() -> None:
    new: Logs = {("t", 0): (0, 2), ("t", 1): (0, 1)}
    with pytest.raises(TopicRecreatedError):
        recreated(new).trigger()
    assert recreated(new, failOnDataLoss="false").trigger() == [("t", 0, 0), ("t", 0, 1), ("t", 1, 0)]


def test_a_topic_made_anew_with_as_many_records_waits_for_one_more_and_loses_none() -> None:
    """Spark compares texts of offsets: it takes equal ones for nothing new."""
    query = recreated({("t", 0): (0, 10), ("t", 1): (0, 20)}, failOnDataLoss="false")
    query.clock.advance(300_000)
    assert query.trigger() == [] and query.trigger() == []
    query.produce(("t", 0), 11)
    assert query.trigger() == all_of(query.client.logs)


def test_a_batch_of_a_topic_made_anew_that_runs_again_is_read_from_its_beginning() -> None:
    query = recreated({("t", 0): (0, 2), ("t", 1): (0, 1)}, failOnDataLoss="false")
    query.construct()
    query.read.clear()
    query.restart()
    assert query.read == [("t", 0, 0), ("t", 0, 1), ("t", 1, 0)]


def test_a_batch_that_ends_before_it_begins_is_a_loss() -> None:
    query = Query(TWO)
    query.offsets, query.committed = [{"t": {"0": 9, "1": 9}}, {"t": {"0": 4, "1": 9}}], 1
    with pytest.raises(LogShrankError, match="t-0: next to read is 9, the log ends at 4"):
        query.restart()


def test_each_task_gets_the_epoch_and_the_topic_id_of_its_range() -> None:
    query = Query(TWO, **EARLIEST, minPartitions="3")
    query.client.ids = {"t": "id"}
    query.trigger()
    query.construct()
    partitions = query.reader.partitions(query.start(), query.offsets[-1])
    assert [split.range.count() for p in partitions for split in p.splits] == [10, 7, 8]
    assert {split.leader_epoch for p in partitions for split in p.splits} == {7}
    assert {p.topic_ids["t"] for p in partitions} == {"id"}
    assert pickle.loads(pickle.dumps(partitions)) == partitions


def test_a_thousand_partitions_with_a_few_records_each_are_read_by_as_many_tasks_as_a_query_wants() -> None:
    """A Python task costs 30 ms, however little it reads."""
    logs = {("t", number): (0, 3) for number in range(1000)} | {("u", 0): (5, 7)}
    query = Query(logs, **EARLIEST, subscribePattern="[tu]", maxPartitions="4").begin()
    query.client.ids = {"t": "id of t", "u": "id of u"}
    query.construct()
    partitions = query.reader.partitions(query.start(), query.offsets[-1])
    assert len(partitions) == 4 and query.run() == all_of(logs)
    assert [set(p.topic_ids) for p in partitions] == [{"t"}, {"t"}, {"t"}, {"t", "u"}]


def test_a_reader_for_the_tasks_is_pickled_and_asks_nobody() -> None:
    query = Query(TWO)
    reader = KafkaStreamReader(SourceOptions.parse(query.given).of_stream(), ("value",))
    again = pickle.loads(pickle.dumps(reader))
    assert isinstance(again, KafkaStreamReader) and query.client.asked == []


def test_progress_has_the_ends_of_the_logs() -> None:
    query = Query(TWO, **EARLIEST, maxOffsetsPerTrigger="2")
    assert query.reader.reportLatestOffset() is None
    query.trigger()
    query.trigger()
    assert query.reader.reportLatestOffset() == {"t": {"0": 10, "1": 20}}


def test_a_checkpoint_of_another_source_is_refused_in_words() -> None:
    with pytest.raises(CheckpointError, match="which is no offset of Kafka"):
        Query(TWO).reader.partitions({"offset": 3}, {"offset": 3})  # type: ignore[dict-item]


def test_a_stopped_query_closes_its_client() -> None:
    query = Query(TWO)
    query.trigger()
    query.reader.stop()
    assert query.client.closed


def batch(logs: Logs, times: Any = None, **given: str) -> list[tuple[str, int, int, int]]:
    client = FakeClient(dict(logs), times or {})
    options = SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given}).of_batch()
    partitions = KafkaBatchReader(options, ("value",), lambda _: client, WaitingClock()).partitions()
    assert client.closed and all(isinstance(p, KafkaInputPartition) for p in partitions)
    ranges = [split.range for p in partitions for split in p.splits]  # type: ignore[attr-defined]
    return [(r.topic, r.partition, r.fromOffset, r.untilOffset) for r in ranges]


def test_a_batch_reads_between_its_bounds() -> None:
    assert batch(TWO) == [("t", 0, 0, 10), ("t", 1, 5, 20)]
    bounds = {"startingOffsets": '{"t":{"0":3,"1":-2}}', "endingOffsets": '{"t":{"0":-1,"1":9}}'}
    assert batch(TWO, **bounds) == [("t", 0, 3, 10), ("t", 1, 5, 9)]
    times = {("t", 0): [(400, 0), (500, 4)], ("t", 1): [(400, 5)]}
    assert batch(TWO, times, startingTimestamp="400", endingTimestamp="500") == [("t", 0, 0, 4), ("t", 1, 5, 20)]


def test_a_batch_whose_end_is_before_its_start_reads_nothing_as_in_spark() -> None:
    assert batch(TWO, startingOffsets='{"t":{"0":9,"1":19}}', endingOffsets='{"t":{"0":3,"1":20}}') == [("t", 1, 19, 20)]


def test_the_bounds_of_a_batch_name_all_partitions() -> None:
    with pytest.raises(SourceOptionError, match=r"'endingOffsets' .* lacks t-1"):
        batch(TWO, endingOffsets='{"t":{"0":3}}')
