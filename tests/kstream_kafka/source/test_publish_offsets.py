"""publishOffsets: a consumer group of Kafka follows the completed batches, whatever becomes of the commits."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from kstream_kafka import KafkaUtils, OffsetRange, restore_input
from kstream_kafka.errors import BrokerUnreachableError, GroupNotEmptyError, KafkaConfigError, KafkaError
from kstream_kafka.source.committing_stream import CommittingInputDStream
from kstream_kafka.source.offset_committer import RENEWAL_MS, OffsetCommitter

from kstream import crash_point
from kstream.batch_time import Time
from kstream.dstream.recipe import Replay
from kstream.errors import StorageError
from kstream.offsets.offset_range import Partition, TopicAndPartition
from kstream.testing import ManualClock
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Driver, World
from tests.kstream_kafka.fakes import FakeClient
from tests.kstream_kafka.stream import KafkaInput
from tests.stores import FaultyStore

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
PARAMS = {"bootstrap.servers": "h:1", "auto.offset.reset": "earliest"}
P, Q = ("orders", 0), ("orders", 1)
FIRST, SECOND = (START + n * INTERVAL for n in (1, 2))
Told = Callable[[Exception | None], None]


class SlowClient(FakeClient):
    """Under `is_slow` a commit has no answer until the test gives it by `answers`."""

    is_slow = False

    def commit(self, group: str, offsets: Mapping[Partition, int], on_done: Told) -> None:
        if self.is_slow:
            self.commits.append((group, dict(offsets)))
            self.answers.append(on_done)
        else:
            super().commit(group, offsets, on_done)

    @property
    def answers(self) -> list[Told]:
        return self.__dict__.setdefault("_answers", [])


class PublishingJob:
    """A job on a topic of two partitions, its checkpoint and its cluster. `build` gets each new stream."""

    def __init__(self, build: Callable[[CommittingInputDStream], object] = lambda stream: stream.publishOffsets("orders-job")) -> None:
        world = World()
        self.store = FaultyStore(world.store)
        self.world = World(self.store, world.clock)
        self.client = SlowClient({P: (0, 0), Q: (0, 0)})
        self.streams: list[KafkaInput] = []
        self._build = build

    def driver(self) -> Driver:
        def build(host: FakeHost, driver: Driver) -> None:
            made: Any = host
            spec = KafkaUtils.createDirectStream(made, ["orders"], {**PARAMS, "group.id": "orders-etl"}).spec
            stream = KafkaInput(made, spec, lambda _params, _retries: self.client, self.world.clock)
            self._build(stream)
            self.streams.append(stream)
            driver.output(stream)

        return Driver(self.world, build=build).start()

    def produce(self, *partitions: Partition) -> None:
        """Ten records for each of these partitions."""
        for p in partitions:
            begin, end = self.client.logs[p]
            self.client.logs[p] = (begin, end + 10)

    def batch(self, driver: Driver, *partitions: Partition) -> int:
        """A batch with ten records of each of these partitions, and what follows from its end; its time."""
        self.produce(*partitions)
        time = driver.tick()
        driver.settle()
        return time

    @property
    def commits(self) -> list[tuple[str, dict[Partition, int]]]:
        return self.client.commits

    def committed(self) -> list[dict[Partition, int]]:
        return [offsets for _group, offsets in self.commits]


# -- what is committed, and when


def test_the_ends_of_a_completed_batch_are_committed_in_one_request_for_all_partitions() -> None:
    job = PublishingJob()
    driver = job.driver()
    job.batch(driver, P, Q)
    job.batch(driver, P)
    driver.stop()
    assert job.commits == [("orders-job", {P: 10, Q: 10}), ("orders-job", {P: 20})]


def test_nothing_is_committed_before_the_completion_is_stored() -> None:
    job = PublishingJob()
    driver = job.driver()
    job.store.fault = lambda verb, name: "before" if verb == "create" and name.startswith("done/") else None
    job.batch(driver, P, Q)
    driver.wait_error(StorageError)
    assert job.commits == []
    job.store.fault = lambda _verb, _name: None
    job.batch(driver)
    driver.stop()
    assert job.committed() == [{P: 10, Q: 10}]


def test_a_commit_does_not_pass_the_oldest_unfinished_batch() -> None:
    job = PublishingJob()
    driver = job.driver()
    job.batch(driver, P, Q)
    driver.refuse(SECOND)
    job.produce(P)
    driver.tick_only()
    driver.wait_error(ValueError)
    job.batch(driver, P, Q)
    driver.stop()
    assert job.committed() == [{P: 10, Q: 10}], "batch 3 has completed, and batch 2 has not"
    again = job.driver()
    job.batch(again)
    again.stop()
    assert job.committed()[-1] == {P: 30, Q: 20}


def test_a_driver_that_has_completed_no_batch_commits_nothing() -> None:
    job = PublishingJob()
    first = job.driver()
    job.batch(first, P, Q)
    first.stop()
    job.commits.clear()
    again = job.driver()
    again.settle()
    again.stop()
    assert job.commits == []


def test_at_a_restart_the_first_commit_comes_with_the_first_completed_batch() -> None:
    job = PublishingJob()
    first = job.driver()
    job.batch(first, P, Q)
    first.stop()
    job.commits.clear()
    again = job.driver()
    again.settle()
    assert job.commits == []
    job.batch(again)
    assert job.committed() == [{P: 10, Q: 10}], "the first one of a driver has all partitions"
    again.stop()


def test_a_batch_that_an_earlier_driver_left_counts_when_this_driver_has_completed_it() -> None:
    job = PublishingJob()
    first = job.driver()
    job.produce(P)
    first.die_at(crash_point.JOB_DONE)
    again = job.driver()
    job.world.wait(lambda: FIRST in again.listener.completed())
    again.settle()
    assert job.committed() == [{P: 10, Q: 0}]
    again.stop()


def test_a_graceful_stop_sends_what_a_slow_broker_has_kept_back() -> None:
    job = PublishingJob()
    driver = job.driver()
    job.client.is_slow = True
    job.batch(driver, P, Q)
    job.batch(driver, P)
    assert job.committed() == [{P: 10, Q: 10}]
    job.client.is_slow = False
    job.client.answers.pop()(None)
    driver.stop()
    assert job.committed() == [{P: 10, Q: 10}, {P: 20}]


def test_while_a_commit_has_no_answer_nothing_is_sent_and_then_only_the_newest_offsets() -> None:
    job = PublishingJob()
    driver = job.driver()
    job.client.is_slow = True
    for _ in range(4):
        job.batch(driver, P)
    assert job.committed() == [{P: 10, Q: 0}]
    job.client.answers.pop()(None)
    job.client.is_slow = False
    job.batch(driver, Q)
    driver.stop()
    assert job.committed() == [{P: 10, Q: 0}, {P: 40, Q: 10}]


def test_a_partition_without_new_records_is_committed_again_after_an_hour_because_kafka_forgets_it_after_a_week() -> None:
    clock, client = ManualClock(), FakeClient()
    committer = published(clock)
    for n in range(3):
        ended(committer, client, Time(n), OffsetRange(*P, 10 * n, 10 * n + 10), OffsetRange(*Q, 10, 10))
        clock.advance(RENEWAL_MS // 2)
    assert [offsets for _group, offsets in client.commits] == [{P: 10, Q: 10}, {P: 20}, {P: 30, Q: 10}]


def test_a_topic_that_was_created_again_is_committed_at_its_new_offsets() -> None:
    client = FakeClient()
    committer = published(ManualClock())
    ended(committer, client, Time(1), OffsetRange(*P, 0, 90))
    ended(committer, client, Time(2), OffsetRange(*P, 0, 4))
    assert [offsets for _group, offsets in client.commits] == [{P: 90}, {P: 4}]


def test_a_partition_that_has_left_the_stream_is_committed_no_more() -> None:
    client = FakeClient()
    committer = published(ManualClock())
    client.commit_error = KafkaError("no such topic")
    ended(committer, client, Time(1), OffsetRange(*P, 0, 10), OffsetRange(*Q, 0, 10))
    ended(committer, client, Time(2), OffsetRange(*P, 10, 20))
    assert [offsets for _group, offsets in client.commits] == [{P: 10, Q: 10}, {P: 20}]


def published(clock: ManualClock) -> OffsetCommitter:
    committer = OffsetCommitter(None, clock)
    committer.publish("g")
    return committer


def ended(committer: OffsetCommitter, client: FakeClient, time: Time, *ranges: OffsetRange) -> None:
    """A batch of these ranges, from its plan to its completion."""
    committer.planned(time, ranges)
    committer.succeeded(time)
    committer.ended([])
    committer.send(client)


# -- commits that fail


def test_a_failed_commit_is_one_warning_and_is_sent_again_with_the_next_batch(caplog: pytest.LogCaptureFixture) -> None:
    job = PublishingJob()
    driver = job.driver()
    job.client.commit_error = BrokerUnreachableError("h:1", 15_000)
    with caplog.at_level(logging.INFO, "kstream.kafka"):
        for _ in range(3):
            job.batch(driver, P)
        job.client.commit_error = None
        job.batch(driver, P)
        driver.stop()
    assert [offsets[P] for offsets in job.committed()] == [10, 20, 30, 40]
    told = [(r.levelname, r.getMessage()) for r in caplog.records if r.getMessage().startswith("group orders-job")]
    assert [level for level, _ in told] == ["WARNING", "INFO"]
    assert "the commit of offsets failed, the next batch repeats it" in told[0][1] and "committed again" in told[1][1]
    assert driver.errors == [] and len(driver.listener.completed()) == 4, "no batch has failed or waited"


def test_another_reason_is_another_warning(caplog: pytest.LogCaptureFixture) -> None:
    job = PublishingJob()
    driver = job.driver()
    for error in (BrokerUnreachableError("h:1", 15_000), GroupNotEmptyError("h:1", "orders-job", "Unknown member")):
        job.client.commit_error = error
        job.batch(driver, P)
    driver.stop()
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and "orders-job" in r.getMessage()]
    assert len(warnings) == 2 and "live members" in warnings[1] and "a group of its own" in warnings[1]


def test_a_client_that_raises_fails_no_batch() -> None:
    job = PublishingJob()
    driver = job.driver()
    job.client.commit = lambda *_: 1 / 0  # type: ignore[method-assign]
    job.batch(driver, P)
    job.batch(driver, P)
    driver.stop()
    assert driver.errors == [] and driver.listener.completed() == [FIRST, SECOND]


# -- the group


def test_without_a_name_the_group_is_that_of_the_kafka_parameters() -> None:
    job = PublishingJob(lambda stream: stream.publishOffsets())
    driver = job.driver()
    job.batch(driver, P)
    driver.stop()
    assert job.commits == [("orders-etl", {P: 10, Q: 0})]


def test_without_any_group_the_call_says_what_is_missing() -> None:
    host: Any = FakeHost({})
    stream = KafkaUtils.createDirectStream(host, ["orders"], PARAMS)
    with pytest.raises(KafkaConfigError, match=r"'group\.id' is missing.*publishOffsets needs a group"):
        stream.publishOffsets()
    with pytest.raises(ValueError, match="group is empty"):
        stream.publishOffsets("")
    with pytest.raises(TypeError, match="should be a text or None, it is a int"):
        stream.publishOffsets(7)  # pyright: ignore[reportArgumentType]


def test_a_stream_that_publishes_nothing_commits_nothing() -> None:
    job = PublishingJob(lambda stream: None)
    driver = job.driver()
    job.batch(driver, P)
    driver.stop()
    assert job.commits == []


def test_each_of_several_groups_gets_the_offsets() -> None:
    job = PublishingJob(lambda stream: stream.publishOffsets("one").publishOffsets("two").publishOffsets("one"))
    driver = job.driver()
    job.batch(driver, P, Q)
    driver.stop()
    assert job.commits == [("one", {P: 10, Q: 10}), ("two", {P: 10, Q: 10})]


def test_commitAsync_for_a_published_group_adds_only_its_callback() -> None:
    job = PublishingJob(lambda stream: stream.publishOffsets("orders-etl"))
    driver = job.driver()
    told: list[Any] = []
    wanted = [OffsetRange(*P, 0, 3)]  # less than the batch has
    driver.before_job = lambda _time: job.streams[0].commitAsync(wanted, lambda offsets, error: told.append((offsets, error)))
    job.batch(driver, P, Q)
    driver.stop()
    assert job.committed() == [{P: 10, Q: 10}]
    assert told == [({TopicAndPartition(*P): 10, TopicAndPartition(*Q): 10}, None)]


def test_commitAsync_for_another_group_goes_its_own_way() -> None:
    job = PublishingJob()
    driver = job.driver()
    driver.before_job = lambda _time: job.streams[0].commitAsync([OffsetRange(*P, 0, 3)])
    job.batch(driver, P)
    driver.stop()
    assert sorted(job.commits) == [("orders-etl", {P: 3}), ("orders-job", {P: 10, Q: 0})]


# -- the stored graph


def published_groups(stream: CommittingInputDStream) -> list[str]:
    return [group for group, commits in stream._committer._groups.items() if commits.is_published]


def test_the_bytes_of_the_call_in_a_stored_graph_and_a_graph_without_it() -> None:
    host: Any = FakeHost({})
    KafkaUtils.createDirectStream(host, ["orders"], PARAMS).publishOffsets("orders-job")
    calls = json.loads(json.dumps(host.recorder.calls))
    del calls[1]["at"]
    assert json.dumps(calls[1], sort_keys=True) == '{"args": ["orders-job"], "call": "publishOffsets", "kwargs": {}, "on": 0}'
    for stored, groups in ((calls, ["orders-job"]), (calls[:1], [])):
        made: Any = FakeHost({})
        replay = Replay(made, [], lambda recipe, made=made: restore_input(made, recipe))
        replay.run(stored)
        assert published_groups(replay.streams[0]) == groups
