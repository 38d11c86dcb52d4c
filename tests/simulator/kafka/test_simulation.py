"""The simulated Kafka: it does to logs what brokers do, and says which records a stream may not lose."""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest
from kstream_kafka.errors import BrokerUnreachableError, LeaderNotAvailableError, LogTruncatedError, RecordsRemovedError, UnknownTopicError
from kstream_kafka.planning.partition_offsets import PartitionOffsets
from kstream_kafka.planning.subscription import Topics
from kstream_kafka.reader.range_reader import read_range

from kstream.offsets.offset_range import OffsetRange
from kstream.testing import ManualClock
from tests.simulator import History, Scenario, run_schedule
from tests.simulator.history import Attempt
from tests.simulator.kafka import Hazard, KafkaSource
from tests.simulator.kafka.checks import violations
from tests.simulator.kafka.clients import SimulatedConsumer, SimulatedDriverClient
from tests.simulator.kafka.cluster import TOPIC, SimulatedCluster

P0 = (TOPIC, 0)


class Alone:
    """Surroundings in which nothing else happens; sleeping moves the clock."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)

    def point(self, what: str) -> None: ...

    def sleep(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)


class Cluster:
    """One partition with `count` records, and both clients."""

    def __init__(self, count: int = 10) -> None:
        self.here = Alone()
        self.rng = random.Random(1)
        self.cluster = SimulatedCluster(1, self.here.clock.time_ms)
        self.client = SimulatedDriverClient(self.cluster, self.here)
        self.write(count)

    def write(self, count: int) -> None:
        for _ in range(count):
            self.cluster._append(P0, self.here.clock.time_ms())

    def read(self, begin: int, until: int, epoch: int | None = 0) -> list[int]:
        consumer: Any = SimulatedConsumer(self.cluster, self.here, 3)
        chunks = read_range(consumer, OffsetRange(TOPIC, 0, begin, until), 300, epoch, lambda: self.here.clock.time_ms() / 1000)
        return [message.offset() for chunk in chunks for message in chunk]


def test_what_is_written_is_read_by_the_real_reader() -> None:
    assert Cluster().read(2, 9) == list(range(2, 9))


def test_the_driver_is_told_ends_beginnings_and_epochs() -> None:
    c = Cluster()
    c.cluster.logs[P0].remove_before(4)
    assert c.client.latest([P0])[P0].offset == 10 and c.client.earliest([P0])[P0].offset == 4
    assert c.client.partitions(Topics((TOPIC,))) == {P0}


def test_an_emptied_log_still_ends_where_it_ended() -> None:
    c = Cluster()
    c.cluster.logs[P0].remove_before(10)
    assert (c.cluster.logs[P0].begin, c.cluster.logs[P0].end) == (10, 10)
    c.write(1)
    assert c.read(10, 11) == [10]


def test_offsets_are_told_by_time() -> None:
    c = Cluster(2)
    c.here.clock.advance(1000)
    c.write(2)
    now = c.here.clock.time_ms()
    assert c.client.at_times([now - 1000, now, now + 1], [P0]) == [{P0: 0}, {P0: 2}, {P0: None}]


def test_silent_brokers_and_missing_leaders_pass_by_being_asked() -> None:
    c = Cluster()
    c.cluster.silent = 1
    with pytest.raises(BrokerUnreachableError):
        c.client.latest([P0])
    c.cluster.logs[P0].leaderless = 1
    with pytest.raises(LeaderNotAvailableError):
        c.client.latest([P0])
    c.cluster.silent = c.cluster.logs[P0].leaderless = 2
    assert c.read(0, 10) == list(range(10))


def test_what_retention_removed_cannot_be_read() -> None:
    c = Cluster()
    c.cluster.logs[P0].remove_before(4)
    with pytest.raises(RecordsRemovedError, match=r"\[3, 4\) were removed"):
        c.read(3, 9)


def test_a_log_cut_below_a_range_refuses_the_epoch_of_its_plan() -> None:
    c = Cluster()
    c.cluster.logs[P0].cut(4)
    c.cluster.logs[P0].epoch += 1
    c.write(8)
    with pytest.raises(LogTruncatedError, match="written again"):
        c.read(6, 9, epoch=0)
    assert c.read(6, 9, epoch=1) == [6, 7, 8]


def test_a_deleted_topic_is_unknown_until_it_is_made_anew() -> None:
    c = Cluster()
    c.cluster.meet(Hazard.DELETION, c.rng)
    assert "still gone" in c.cluster.meet(Hazard.DELETION, c.rng)  # nobody has noticed
    with pytest.raises(UnknownTopicError):
        c.client.latest([P0])
    c.cluster.meet(Hazard.DELETION, c.rng)
    assert (c.client.latest([P0])[P0].offset, c.cluster.topic_id) == (0, "topic-2")


@pytest.mark.parametrize("hazard", Hazard)
def test_every_hazard_says_what_happened_and_leaves_logs_whole(hazard: Hazard) -> None:
    c = Cluster()
    for _ in range(30):
        assert c.cluster.meet(hazard, c.rng)
        c.cluster.produce(c.rng)
        for log in c.cluster.logs.values():
            offsets = [r.offset for r in log.records]
            assert offsets == list(range(log.end - len(offsets), log.end))
            epochs = [r.epoch for r in log.records]
            assert epochs == sorted(epochs)
    c.cluster.heal()
    assert c.client.latest([P0])


# -- what a stream may not lose


class Told:
    """A cluster of ten records in one partition, and what drivers did with them."""

    def __init__(self) -> None:
        self.c = Cluster()
        self.history = History(1000)
        self.planned: dict[Any, Any] = {}

    def batch(self, time: int, begin: int, until: int, read: tuple[int, ...] | None = None, error: str | None = None) -> Told:
        ranges = ((TOPIC, 0, begin, until),)
        idents = [r.ident for r in self.c.cluster.logs[P0].records]
        self.planned[time, ranges] = [tuple(idents[begin:until])]
        given = tuple(idents[n] for n in (range(begin, until) if read is None else read))
        step = self.history.next_step()
        attempt = Attempt(step, 1, time, {"ranges": [list(r) for r in ranges]}, read=None if error else given, error=error)
        attempt.finished_step = None if error else self.history.next_step()
        self.history.attempts.append(attempt)
        return self

    def broken(self) -> list[str]:
        return violations(self.c.cluster, self.planned, self.history)


def test_batches_that_follow_one_another_and_read_all_are_right() -> None:
    assert Told().batch(1, 0, 4).batch(2, 4, 10).broken() == []


def test_a_gap_and_an_overlap_are_wrong() -> None:
    assert any("the one before ended at 4" in line for line in Told().batch(1, 0, 4).batch(2, 5, 10).broken())
    assert any("the one before ended at 4" in line for line in Told().batch(1, 0, 4).batch(2, 3, 10).broken())


def test_records_left_out_and_other_records_are_wrong() -> None:
    assert any("should have 4 records" in line for line in Told().batch(1, 0, 4, read=(0, 1, 3)).broken())
    assert any("was planned as" in line for line in Told().batch(1, 0, 4, read=(0, 1, 3, 2)).broken())


def test_a_record_that_nobody_read_is_wrong_unless_an_error_spoke_of_it() -> None:
    assert any("record 0@4#4" in line for line in Told().batch(1, 0, 4).batch(2, 5, 10).broken())
    assert Told().batch(1, 0, 4, error="RecordsRemovedError: gone").batch(2, 4, 10).broken() == []
    told = Told().batch(1, 0, 4).batch(2, 5, 10)
    told.history.trouble.append("Error generating jobs: LogShrankError: 1 partition(s) end before the offset reached (t-0: …)")
    assert not any("record" in line for line in told.broken())


# -- logs that were rewritten before anybody looked


@pytest.mark.parametrize("hazard", [Hazard.REGROWTH, Hazard.REMAKING])
def test_a_log_that_was_rewritten_before_anybody_looked_is_never_read_in_silence(hazard: Hazard) -> None:
    """A cursor at 100, a log cut to 90 or made anew, 120 records: the plan [100, 120) is made, and refused when it is read."""
    scenario = Scenario(functools.partial(KafkaSource, hazards=frozenset({hazard})))
    told = 0
    for seed in range(300):
        outcome = run_schedule(seed, scenario)
        assert outcome.broken == []
        words = [*outcome.history.trouble, *(a.error for a in outcome.history.attempts if a.error)]
        told += any(error in line for line in words for error in ("LogTruncatedError", "LogShrankError", "TopicRecreatedError"))
    assert told > 5


@pytest.mark.parametrize("hazard, check", [(Hazard.REGROWTH, "epochs"), (Hazard.REMAKING, "ids")])
def test_without_what_a_plan_says_of_epochs_and_ids_it_would_be(hazard: Hazard, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator sees it: so the promise above is one that can fail."""
    if check == "epochs":
        monkeypatch.setattr(PartitionOffsets, "epoch_of", lambda self, partition: None)
    else:
        monkeypatch.setattr(PartitionOffsets, "topic_ids", property(lambda self: {}))
    scenario = Scenario(functools.partial(KafkaSource, hazards=frozenset({hazard})))
    assert any(run_schedule(seed, scenario).broken for seed in range(1000))
