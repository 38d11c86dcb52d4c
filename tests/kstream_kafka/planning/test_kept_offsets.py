"""A topic or a partition that leaves a stream's list and comes back: its offsets are kept. And the checkpoint of another job is refused."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from kstream_kafka import ConsumerStrategies, KafkaUtils, LocationStrategies, TopicAndPartition
from kstream_kafka.planning.missing_partitions import SECOND_LOOK_MS
from kstream_kafka.planning.plan import KafkaPlan, left_behind, still_kept

from kstream import crash_point
from kstream.batch import BatchPlan
from kstream.batch_time import Time
from kstream.checkpoint import PlanLog, read_log, take_epoch
from kstream.checkpoint.input_records import KeptOffsets, kept_of, read_kept, write_kept
from kstream.checkpoint.reader import newest_plan
from kstream.errors import CorruptRecordError, NotRecoverableError, StorageError, StreamVanishedError, TopicsChangedError
from kstream.offsets.offset_range import OffsetRange
from kstream.storage import MemoryFileStore
from tests.fakes import FakeHost
from tests.harness import Driver, Killed, LogInput, World, _living
from tests.kstream_kafka.fakes import FakeClient
from tests.kstream_kafka.stream import KafkaInput
from tests.stores import SteppingStore

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
PARAMS = {"bootstrap.servers": "h:1", "auto.offset.reset": "earliest"}
ALLOW = "spark.streaming.kstream.recovery.allow"
Topics = Sequence[str] | re.Pattern[str] | Sequence[TopicAndPartition]


class Kafka:
    """A cluster and a checkpoint that outlive drivers."""

    def __init__(self, *topics: str, partitions: int = 1) -> None:
        self.world = World()
        self.client = FakeClient({(topic, n): (0, 0) for topic in topics for n in range(partitions)})
        self.client.ids = {topic: f"{topic}-id" for topic in topics}

    def produce(self, count: int = 3) -> None:
        self.client.logs = {p: (begin, end + count) for p, (begin, end) in self.client.logs.items()}

    def driver(
        self, *streams: Topics, names: Sequence[str | None] = (), allow: str = "", store: Any = None, until: Any = None, rate: int = 0
    ) -> Driver:
        """A driver with one stream a list of topics; not started."""

        def build(host: FakeHost, driver: Driver) -> None:
            for number, topics in enumerate(streams):
                stream = KafkaInput(host, self._spec(topics, until), lambda _params, _retries: self.client, self.world.clock)  # pyright: ignore
                if number < len(names) and (name := names[number]) is not None:
                    stream.setName(name)
                driver.output(stream)

        conf = {ALLOW: allow, "spark.streaming.kafka.maxRatePerPartition": str(rate)}
        return Driver(self.world, conf, build=build, store=store)

    @staticmethod
    def _spec(topics: Topics, until: Any) -> Any:
        host: Any = FakeHost({})
        if not isinstance(topics, re.Pattern) and not isinstance(topics[0], str):
            strategy = ConsumerStrategies.Assign(topics, PARAMS)
            return KafkaUtils.createDirectStream(host, LocationStrategies.PreferConsistent, strategy).spec
        return KafkaUtils.createDirectStream(host, topics, PARAMS, untilOffsets=until).spec

    def run(self, *streams: Topics, **options: Any) -> Driver:
        """A driver's life of two batches with records; stopped."""
        driver = self.driver(*streams, **options).start()
        for _ in range(2):
            self.produce()
            driver.tick()
        driver.stop()
        return driver

    def contents(self) -> dict[str, bytes]:
        """Everything that is stored."""
        store = self.world.store
        folders = ["", "plans", "done", "adopted", "kept-offsets", "failed", "history"]
        names = [f"{folder}/{name}".lstrip("/") for folder in folders for name in store.list(folder)]
        return {name: store.read(name) for name in names}

    def check_exact(self, *partitions: tuple[str, int]) -> None:
        """Every record of these partitions is in one batch, and no batch had two contents."""
        handed = [record for records in self.world.records_by_time().values() for record in records]
        handed = [record for record in handed if record[:2] in partitions]
        assert sorted(handed) == [(*p, at) for p in sorted(partitions) for at in range(self.client.logs[p][1])]


# -- another job on a checkpoint


@pytest.mark.parametrize("other", [["returns"], [TopicAndPartition("orders", 7)]], ids=["subscribe", "assign"])
def test_a_stream_that_reads_nothing_of_what_is_stored_is_refused_and_nothing_changes(other: Topics) -> None:
    kafka = Kafka("orders", "returns", partitions=2)
    running = kafka.driver(["orders"]).start()
    kafka.produce()
    running.tick()
    before = kafka.contents()
    with pytest.raises(TopicsChangedError) as caught:
        kafka.driver(other).start()
    assert caught.value.streams == ["1"]
    for words in ("stored are orders-0 at 3, orders-1 at 3", "returns" if "returns" in other else "Assign[orders-7]", "--allow topics:1"):
        assert words in str(caught.value)
    assert kafka.contents() == before
    running.tick()  # the driver that runs has not been fenced
    running.stop()
    assert not running.fenced


@pytest.mark.parametrize("topics", [["orders"], re.compile("ord.*")], ids=["list", "pattern"])
def test_a_stream_under_the_number_of_another_kind_of_input_is_refused_and_nothing_changes(topics: Topics) -> None:
    kafka = Kafka("orders")
    running = Driver(kafka.world, build=lambda host, driver: driver.output(LogInput(host, kafka.world.log, 9))).start()
    running.tick(2)
    before = kafka.contents()
    with pytest.raises(NotRecoverableError, match=r"another kind of input \(json: from, until\).*order in which the inputs are made"):
        kafka.driver(topics).start()
    assert kafka.contents() == before
    running.tick(2)  # the driver that runs has not been fenced
    running.stop()
    assert not running.fenced


def test_a_plan_of_another_kind_of_input_that_a_fenced_driver_wrote_late_does_not_stop_the_start() -> None:
    """Its successor died before its own first plan. So the plan is the newest one, and only the whole log tells that it does not stand."""
    kafka = Kafka("orders")
    first = kafka.driver(["orders"]).start()
    kafka.produce()
    first.die_at(crash_point.PLAN_DURABLE)  # with a pending batch, so that the successor stores which plans stand
    fenced = take_epoch(kafka.world.store, 0)
    kafka.driver(["orders"]).start().kill()
    time = Time(kafka.world.clock.time_ms() + 1000)
    PlanLog(kafka.world.store, fenced).write_plan(BatchPlan(time, fenced, "n", {1: {"files": []}}, {1: 3}, time, Time(0)))
    newest = newest_plan(kafka.world.store)
    assert newest is not None and newest.epoch == fenced
    kafka.run(["orders"])
    kafka.check_exact(("orders", 0))


def test_a_word_of_allow_lets_the_stream_read_other_topics_and_the_old_offsets_are_kept() -> None:
    kafka = Kafka("orders", "returns")
    kafka.run(["orders"], names=["in"])
    with pytest.raises(TopicsChangedError, match="--allow topics:in"):
        kafka.driver(["returns"], names=["in"]).start()
    kafka.run(["returns"], names=["in"], allow="topics:in")
    kafka.run(["orders"], names=["in"])  # kept offsets are stored offsets of this stream
    kafka.check_exact(("orders", 0))
    assert read_log(kafka.world.store).pending == []


def test_one_topic_in_common_is_enough_and_a_pattern_is_never_refused() -> None:
    kafka = Kafka("orders", "returns", "other")
    kafka.run(["orders"])
    kafka.run(["returns", "orders"])
    kafka.run(re.compile("oth.*"))


def test_the_refusal_knows_the_stream_by_its_name_wherever_it_stands() -> None:
    kafka = Kafka("orders", "returns")
    kafka.run(["orders"], ["returns"], names=["a", "b"])
    kafka.run(["returns"], ["orders"], names=["b", "a"])
    with pytest.raises(TopicsChangedError, match="--allow topics:a --allow topics:b"):
        kafka.driver(["returns"], ["orders"], names=["a", "b"]).start()


@pytest.mark.parametrize("allow", ["dropped:1", "topics:1", "dropped:0,topics:orders"])
def test_a_word_of_allow_that_allows_nothing_is_a_warning_that_names_it(allow: str, caplog: pytest.LogCaptureFixture) -> None:
    kafka = Kafka("orders")
    kafka.run(["orders"])
    with caplog.at_level(logging.WARNING, "kstream"):
        kafka.run(["orders"], allow=allow)
    assert f"recovery.allow contains {allow.replace(',', ', ')}, which this start does not need" in caplog.text


def test_a_word_of_allow_that_is_needed_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    kafka = Kafka("orders", "returns")
    kafka.run(["orders"])
    with caplog.at_level(logging.WARNING, "kstream"):
        kafka.run(["returns"], allow="topics:1")
    assert "does not need" not in caplog.text


# -- a topic leaves the list and comes back


def test_a_topic_that_leaves_the_list_and_comes_back_goes_on_from_its_offset(caplog: pytest.LogCaptureFixture) -> None:
    kafka = Kafka("a", "b", partitions=2)
    kafka.run(["a", "b"])
    with caplog.at_level(logging.INFO, "kstream"):
        kafka.run(["a"])
        assert "no longer reads b-0 at 6, b-1 at 6; the checkpoint keeps these offsets" in caplog.text
        kafka.run(["a"])
        kafka.run(["a", "b"])
        assert "reads b-0 at 6, b-1 at 6 again" in caplog.text
    kafka.check_exact(("a", 0), ("a", 1), ("b", 0), ("b", 1))


def test_the_offsets_are_in_one_record_and_in_no_plan_and_the_record_goes_when_it_is_of_no_use() -> None:
    kafka = Kafka("a", "b")
    store = kafka.world.store
    kafka.run(["a", "b"])
    assert store.list("kept-offsets") == []
    kafka.run(["a"])
    kafka.run(["a"])
    assert store.list("kept-offsets") == ["000003"]
    newest = max(read_log(store).plans.items())[1]
    assert [r[0] for r in newest.inputs[1]["ranges"]] == ["a"] and "b" not in newest.inputs[1]["topic_ids"]
    kafka.run(["a", "b"])
    kafka.run(["a", "b"])
    assert store.list("kept-offsets") == []
    kafka.check_exact(("a", 0), ("b", 0))


def test_of_several_streams_each_gets_its_own_kept_offsets_back_whatever_its_position() -> None:
    kafka = Kafka("a", "b", "x", "y")
    kafka.run(["a", "b"], ["x", "y"], names=["first", "second"])
    kafka.run(["a"], ["x"], names=["first", "second"])
    kafka.run(["x", "y"], ["a", "b"], names=["second", "first"])
    handed = sorted(record for attempt in kafka.world.attempts for record in attempt.records)
    assert handed == [(topic, 0, at) for topic in "abxy" for at in range(18)]


def test_a_stream_without_a_name_gets_its_kept_offsets_by_position_and_under_a_name_given_later() -> None:
    kafka = Kafka("a", "b")
    kafka.run(["a", "b"])
    kafka.run(["a"])
    kafka.run(["a"], names=["orders"])
    kafka.run(["a", "b"], names=["orders"])
    kafka.check_exact(("a", 0), ("b", 0))


Names = tuple[str | None, ...]
UNNAMED: Names = (None, None)
NAMED: Names = ("orders", "clicks")


@pytest.mark.parametrize("last", [UNNAMED, NAMED, ("orders", None), ("others", None)], ids=str)
@pytest.mark.parametrize("dead", [[NAMED], [NAMED, UNNAMED], [("orders", None), NAMED], [NAMED, ("others", "clicks")]], ids=str)
def test_a_driver_that_names_a_stream_and_dies_before_its_first_plan_takes_no_kept_offsets_away(dead: Sequence[Names], last: Names) -> None:
    """Its code is rolled back: the plans are still those of streams without names, and so is what is kept besides them."""
    kafka = Kafka("a", "b", "x", "y")
    kafka.run(["a", "b"], ["x", "y"])
    kafka.run(["a"], ["x"])
    planned = kafka.world.store.list("plans")
    for names in dead:
        kafka.driver(["a"], ["x"], names=names).start().kill()
    assert kafka.world.store.list("plans") == planned
    kafka.run(["a"], ["x"])
    kafka.run(["a", "b"], ["x", "y"], names=last)
    handed = sorted(record for attempt in kafka.world.attempts for record in attempt.records)
    assert handed == [(topic, 0, at) for topic in "abxy" for at in range(24)]


def test_what_is_kept_of_a_stream_goes_with_the_stream_when_that_is_dropped() -> None:
    kafka = Kafka("a", "b", "x")
    kafka.run(["a", "b"], ["x"], names=["first", "second"])
    kafka.run(["a"], ["x"], names=["first", "second"])
    with pytest.raises(StreamVanishedError):
        kafka.driver(["x"], names=["second"]).start()
    kafka.run(["x"], names=["second"], allow="dropped:first")
    assert read_kept(kafka.world.store) is None


def test_partitions_that_are_assigned_leave_and_come_back_one_by_one() -> None:
    kafka = Kafka("a", partitions=2)
    both = [TopicAndPartition("a", 0), TopicAndPartition("a", 1)]
    kafka.run(both)
    kafka.run(both[:1])
    kept = read_kept(kafka.world.store)
    assert kept is not None and kept.inputs[1]["ranges"] == [["a", 1, 6, 6]]
    kafka.run(both)
    kafka.check_exact(("a", 0), ("a", 1))


def test_a_topic_that_a_changed_pattern_no_longer_matches_is_kept_too() -> None:
    kafka = Kafka("pa", "pb")
    for pattern in ("p.", "pa", "p."):
        kafka.run(re.compile(pattern))
    kafka.check_exact(("pa", 0), ("pb", 0))


def test_a_topic_that_a_pattern_let_go_of_because_it_was_deleted_is_not_kept() -> None:
    kafka = Kafka("pa", "pb")
    driver = kafka.driver(re.compile("p.")).start()
    kafka.produce()
    driver.tick()
    del kafka.client.logs["pb", 0]
    kafka.world.clock.advance(400_000)
    driver.tick()
    kafka.world.clock.advance(SECOND_LOOK_MS)
    driver.tick()
    assert [r[0] for r in max(read_log(kafka.world.store).plans.items())[1].inputs[1]["ranges"]] == ["pa"]
    driver.stop()
    kafka.run(re.compile("p."))
    assert read_kept(kafka.world.store) is None


@pytest.mark.parametrize("restarts", [False, True])
def test_a_topic_of_a_pattern_that_one_answer_lacks_is_read_once(restarts: bool) -> None:
    kafka = Kafka("pa", "pb")
    driver = kafka.driver(re.compile("p.")).start()
    kafka.produce()
    driver.tick()
    away = kafka.client.logs.pop(("pb", 0))
    kafka.world.clock.advance(400_000)
    driver.tick()
    if restarts:
        driver.stop()
        driver = kafka.driver(re.compile("p.")).start()
        driver.tick()
    kafka.client.logs["pb", 0] = away
    kafka.world.clock.advance(SECOND_LOOK_MS)
    kafka.produce()
    driver.tick()
    driver.stop()
    kafka.check_exact(("pa", 0), ("pb", 0))


@pytest.mark.parametrize("records", [2, 20])
def test_a_topic_made_anew_while_it_was_away_is_read_from_its_beginning(records: int, caplog: pytest.LogCaptureFixture) -> None:
    kafka = Kafka("a", "b", partitions=2)
    kafka.run(["a", "b"])
    kafka.run(["a"])
    kafka.client.ids["b"] = "another"
    del kafka.client.logs["b", 1]  # fewer partitions, too
    kafka.client.logs["b", 0] = (0, records)
    read_before = len([r for records in kafka.world.records_by_time().values() for r in records if r[0] == "b"])
    with caplog.at_level(logging.WARNING, "kstream"):
        kafka.run(["a", "b"])
    assert "topic 'b' was deleted and created again while the stream did not read it" in caplog.text
    handed = [r for records in kafka.world.records_by_time().values() for r in records if r[0] == "b"]
    assert handed[read_before:] == [("b", 0, at) for at in range(records + 6)]
    kafka.run(["a", "b"])
    assert read_kept(kafka.world.store) is None


def test_a_bounded_run_that_is_restarted_takes_no_topic_back_and_the_next_run_does() -> None:
    kafka = Kafka("a", "b")
    kafka.run(["a", "b"])
    kafka.run(["a"])  # b is kept at 6
    kafka.produce()
    first = kafka.driver(["a"], until="latest", rate=2).start()  # its ends are known from its first plan on
    first.tick()
    first.stop()
    assert not first.exhausted
    rest = kafka.driver(["a", "b"], until="latest", rate=2).start()
    rest.tick()
    rest.stop()
    assert rest.exhausted
    assert {r[0] for attempt in kafka.world.attempts for r in attempt.records if attempt.driver == rest.number} == {"a"}
    night = kafka.driver(["a", "b"], until="latest").start()
    night.tick()
    night.stop()
    assert night.exhausted
    kafka.check_exact(("a", 0), ("b", 0))


# -- crashes


def kill_at(number: int) -> Callable[[Kafka, Topics], bool]:
    """Lives a life on a topic list, killed before or after the n-th change of the store. Returns whether it lived to its end."""

    def live(kafka: Kafka, topics: Topics) -> bool:
        steps = 0

        def step(verb: str, name: str, done: bool) -> None:
            nonlocal steps
            steps += 1
            if steps == number:
                driver.die()
            driver.check_alive()

        driver = kafka.driver(topics, store=SteppingStore(kafka.world.store, step))
        try:
            driver.start()
            for _ in range(2):
                kafka.produce()
                time = driver.tick_only()
                kafka.world.wait(lambda time=time: not driver.alive or time in driver.listener.completed())
                driver.check_alive()
            driver.stop()
            return driver.alive
        except (Killed, StorageError):
            driver.kill()
            return False

    return live


@pytest.mark.parametrize("number", range(1, 25))
@pytest.mark.parametrize("killed", ["leaving", "coming back"])
def test_a_driver_killed_around_any_write_of_leaving_or_coming_back_loses_and_repeats_nothing(number: int, killed: str) -> None:
    kafka = Kafka("a", "b")
    kafka.run(["a", "b"])
    lives: list[tuple[Topics, bool]] = [(["a"], killed == "leaving"), (["a", "b"], killed == "coming back")]
    for topics, dies in lives:
        if dies:
            kill_at(number)(kafka, topics)
        kafka.run(topics)
    kafka.run(["a", "b"])
    kafka.check_exact(("a", 0), ("b", 0))
    assert read_log(kafka.world.store).pending == []


@pytest.mark.parametrize("number", range(1, 15, 2))
def test_a_list_that_changes_back_after_a_kill_loses_and_repeats_nothing(number: int) -> None:
    """The driver that leaves the topic out dies, and the next one has the topic again: the newest plan says where that stands."""
    kafka = Kafka("a", "b")
    kafka.run(["a", "b"])
    kill_at(number)(kafka, ["a"])
    kafka.run(["a", "b"])
    kill_at(number)(kafka, ["b"])
    kafka.run(["a", "b"])
    kafka.check_exact(("a", 0), ("b", 0))


@pytest.mark.parametrize("older", [["a"], ["a", "b"]], ids="".join)
@pytest.mark.parametrize("newer", [["a"], ["a", "b"]], ids="".join)
@pytest.mark.parametrize("at", ["create kept-offsets", "delete kept-offsets", "create plans"])
def test_a_driver_that_is_fenced_while_it_starts_destroys_no_kept_offsets(at: str, older: Topics, newer: Topics) -> None:
    """It stands still before one of its writes while its successor starts, runs and stops; then it goes on."""
    kafka, overtaken = Kafka("a", "b"), False
    kafka.run(["a", "b"])
    kafka.run(["a"])

    def step(verb: str, name: str, done: bool) -> None:
        nonlocal overtaken
        if not done and not overtaken and f"{verb} {name}".startswith(at):
            overtaken = True
            _living.remove(slow)  # its timer is not there yet
            kafka.run(newer)
            _living.append(slow)

    slow = kafka.driver(older, store=SteppingStore(kafka.world.store, step))
    slow.start()
    if not slow.fenced:
        kafka.world.clock.advance(1000)
        kafka.world.wait(lambda: slow.fenced)
    slow.kill()
    assert overtaken
    for topics in (newer, ["a"], ["a", "b"]):
        kafka.run(topics)
    kafka.check_exact(("a", 0), ("b", 0))


# -- the record


RECORD = KeptOffsets(
    4,
    {0: "orders", 1: None},
    {0: {"ranges": [["b", 0, 6, 6]], "leader_epochs": [7], "from_epochs": [7], "topic_ids": {"b": "b-id"}, "ahead": [["b", 0]]}},
)
BYTES = (
    b'{"checksum":"708352e661bbab81e3cae56956a89bcaa89e05ed5ecd3f087f9b1b749707c3da","epoch":4,"inputs":{"0":{"ahead":[["b",0]],"from_epochs":[7],"leader_epochs":[7],"ranges":[["b",0,6,6]],'
    b'"topic_ids":{"b":"b-id"}}},"kind":"kept-offsets","streams":{"0":"orders","1":null},"version":1}'
)


@pytest.fixture
def store() -> MemoryFileStore:
    return World().store


def test_the_bytes_and_the_name_of_the_record(store: MemoryFileStore) -> None:
    write_kept(store, RECORD)
    assert store.read("kept-offsets/000004") == BYTES
    assert read_kept(store) == RECORD


def test_the_record_of_the_highest_epoch_counts_and_its_writer_deletes_the_older_ones(store: MemoryFileStore) -> None:
    for epoch in (3, 6, 5):  # 5: a driver that was fenced before it wrote
        write_kept(store, KeptOffsets(epoch, RECORD.streams, RECORD.inputs))
    assert store.list("kept-offsets") == ["000005", "000006"]
    write_kept(store, KeptOffsets(5, RECORD.streams))  # nor does a fenced driver that keeps nothing delete what is newer
    assert read_kept(store) == KeptOffsets(6, RECORD.streams, RECORD.inputs)
    write_kept(store, KeptOffsets(7, RECORD.streams))
    assert store.list("kept-offsets") == []


def test_a_damaged_record_is_an_error_that_says_what_to_do(store: MemoryFileStore) -> None:
    write_kept(store, RECORD)
    store.replace("kept-offsets/000004", store.read("kept-offsets/000004").replace(b"6,6", b"5,5"))
    with pytest.raises(CorruptRecordError, match=r"kept-offsets/000004 is damaged.*Or delete it") as caught:
        read_kept(store)
    assert "forget-batch" not in str(caught.value)


def test_a_record_that_is_deleted_while_it_is_looked_for_is_looked_for_again(store: MemoryFileStore) -> None:
    write_kept(store, RECORD)
    newer = KeptOffsets(5, RECORD.streams, RECORD.inputs)

    class Overtaken(SteppingStore):
        def read(self, name: str) -> bytes:
            if name.endswith("4"):
                write_kept(self.inner, newer)
            return super().read(name)

    assert read_kept(Overtaken(store, lambda *_: None)) == newer


def plan(*rows: tuple[str, int, int], ids: Mapping[str, str] | None = None, epoch: int | None = 7) -> KafkaPlan:
    ranges = [OffsetRange(t, p, max(at - 2, 0), at) for t, p, at in rows]
    return KafkaPlan(ranges, [epoch] * len(ranges), [5] * len(ranges), ids or {})


def test_the_newest_plan_wins_over_what_is_kept() -> None:
    kept = plan(("b", 0, 6), ("b", 1, 6), ids={"b": "one"})
    assert still_kept(plan(("a", 0, 9), ("b", 0, 8), ids={"b": "one"}), kept).until_offsets == {("b", 1): 6}
    assert still_kept(plan(("b", 0, 8), ids={"b": "two"}), kept).until_offsets == {}
    assert still_kept(plan(("b", 0, 8)), kept).until_offsets == {("b", 1): 6}  # brokers that tell no ids
    assert still_kept(plan(("b", 0, 8)), None).until_offsets == {}


def test_what_is_left_behind_stands_still_under_the_epochs_in_which_it_was_reached() -> None:
    kept = plan(("c", 0, 4), ids={"c": "c1"}, epoch=3)
    left = left_behind(plan(("a", 0, 9), ("b", 0, 8), ids={"a": "a1", "b": "b1"}), kept, lambda p: p[0] == "a")
    assert left is not None
    assert left.ranges == [OffsetRange("b", 0, 8, 8), OffsetRange("c", 0, 4, 4)]
    assert (left.leader_epochs, left.from_epochs) == ([7, 3], [7, 3])
    assert left.topic_ids == {"b": "b1", "c": "c1"}
    assert left_behind(plan(("a", 0, 9)), None, lambda _: True) is None
    assert kept_of({"epoch": 1, "streams": {}, "inputs": {}}).inputs == {}
