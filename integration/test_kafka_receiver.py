"""Kafka receivers against a real ZooKeeper and a real broker: what is acknowledged was stored, what was not stored comes again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from integration.group_consumer import Consumer, plain, reliable, wait_until
from integration.kafka_broker import Broker
from integration.zookeeper_server import ZooKeeper

pytestmark = pytest.mark.timeout(120)


class Place:
    """A group and a topic of one test's own, and a client that looks into ZooKeeper."""

    def __init__(self, zookeeper: ZooKeeper, kafka: Broker, topic: str, partitions: int, root: str = "") -> None:
        self.zookeeper, self.kafka, self.topic, self.partitions = zookeeper, kafka, topic, partitions
        self.group = f"g-{uuid.uuid4().hex[:8]}"
        self.root = root
        self.sent = 0
        patient = {"max_tries": -1, "max_delay": 0.5}
        self.client = KazooClient(zookeeper.hosts, timeout=3, connection_retry=patient, command_retry=patient)
        self.client.start()
        self.consumers: list[Consumer] = []

    def produce(self, count: int) -> None:
        """Records with the keys "0", "1" …, over all partitions in turn."""
        numbers = range(self.sent, self.sent + count)
        self.kafka.produce(self.topic, [(str(n), f"value {n}", n % self.partitions) for n in numbers])
        self.sent += count

    def given(self, threads: int = 1) -> list[Any]:
        return [self.zookeeper.hosts + self.root, self.group, {self.topic: threads}, self.kafka.bootstrap]

    def consumer(self, make: Callable[..., Consumer] = reliable, **more: Any) -> Consumer:
        made = make(*self.given(), **more)
        self.consumers.append(made)
        return made.start()

    def consumer_that_has_read(self, count: int, make: Callable[..., Consumer] = reliable, **more: Any) -> Consumer:
        """The first of the group: so many records came when it was there, and are acknowledged."""
        made = self.consumer(make, **more)
        self.produce(count)
        made.wait_for(count)
        self.wait_until_acknowledged()
        return made

    def node(self, path: str) -> str:
        return f"{self.root}/consumers/{self.group}/{path}"

    def offsets(self) -> dict[int, int]:
        return {number: int(text) for number, text in self._contents(f"offsets/{self.topic}").items()}

    def owners(self) -> dict[int, str]:
        return self._contents(f"owners/{self.topic}")

    def _contents(self, node: str) -> dict[int, str]:
        """By partition; without those that go while one looks."""
        found: dict[int, str] = {}
        for name in self._children(node):
            with suppress(NoNodeError):
                found[int(name)] = self.client.retry(self.client.get, f"{self.node(node)}/{name}")[0].decode()
        return found

    def _children(self, node: str) -> list[str]:
        try:
            return sorted(self.client.retry(self.client.get_children, self.node(node)))
        except NoNodeError:
            return []

    def ids(self) -> list[str]:
        return self._children("ids")

    def wait_until_acknowledged(self) -> None:
        """Returns when the offsets in ZooKeeper are the ends of the logs."""
        wait_until(lambda: sum(self.offsets().values()) == self.sent, lambda: f"{self.offsets()} of {self.sent}")

    def wait_until_shared(self, consumers: int) -> None:
        """Returns when so many consumers own all partitions."""
        wait_until(
            lambda: len(self.owners()) == self.partitions and len({o.rpartition("-")[0] for o in self.owners().values()}) == consumers
        )

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.stop()
        self.client.stop()


@pytest.fixture
def place(zookeeper: ZooKeeper, kafka: Broker, topic: Callable[..., str]) -> Iterator[Place]:
    made = Place(zookeeper, kafka, topic(4), 4)
    yield made
    made.close()


def expected(place: Place) -> set[str]:
    return {str(n) for n in range(place.sent)}


def test_records_arrive_once_and_the_offsets_in_zookeeper_are_those_of_stored_blocks(place: Place) -> None:
    place.produce(1000)
    consumer = place.consumer()
    consumer.wait_for(1000)
    place.wait_until_acknowledged()
    assert place.offsets() == dict.fromkeys(range(4), 250)
    (member,) = place.ids()
    registered = json.loads(place.client.get(place.node(f"ids/{member}"))[0])
    assert registered["subscription"] == {place.topic: 1} and registered["pattern"] == "static"
    assert set(place.owners().values()) == {f"{member}-0"}
    assert sorted(consumer.keys) == sorted(expected(place))
    consumer.stop()
    assert place.ids() == [] and place.owners() == {}


def test_a_second_start_reads_on(place: Place) -> None:
    place.produce(400)
    first = place.consumer()
    first.wait_for(400)
    first.stop()
    assert sum(place.offsets().values()) == 400
    place.produce(400)
    second = place.consumer()
    second.wait_for(400)
    assert sorted(first.keys + second.keys) == sorted(expected(place))


def test_a_chroot_and_the_offsets_that_an_older_job_has_left_there(zookeeper: ZooKeeper, kafka: Broker, topic: Callable[..., str]) -> None:
    place = Place(zookeeper, kafka, topic(2), 2, root=f"/kafka/{uuid.uuid4().hex[:6]}")
    place.produce(100)
    place.client.create(place.node(f"offsets/{place.topic}/0"), b"40", makepath=True)
    consumer = place.consumer()
    consumer.wait_for(60)
    place.wait_until_acknowledged()
    assert sorted(map(int, consumer.keys)) == sorted([n for n in range(100) if n % 2 == 1 or n >= 80])
    place.close()


def test_two_receivers_of_a_group_share_the_partitions(place: Place) -> None:
    first = place.consumer()
    place.wait_until_shared(1)
    second = place.consumer()
    place.wait_until_shared(2)
    place.produce(2000)
    wait_until(lambda: len(set(first.keys) | set(second.keys)) == 2000)
    assert len(first.keys) == len(second.keys) == 1000
    assert sorted(place.owners()[n] for n in range(4)) == [place.owners()[n] for n in range(4)], "runs, in the order of the ids"
    second.stop()
    place.wait_until_shared(1)
    place.produce(400)
    wait_until(lambda: len(set(first.keys) | set(second.keys)) == 2400)
    place.wait_until_acknowledged()
    assert sorted(first.keys + second.keys) == sorted(expected(place)), "nobody died: every record came once"


class Apart:
    """A reliable receiver in a process of its own, to be killed and frozen; `stored` is what it has stored."""

    def __init__(self, place: Place, directory: Path) -> None:
        self._file = directory / "stored"
        command = [sys.executable, "-m", "integration.group_consumer", json.dumps(place.given()), str(self._file)]
        self.process = subprocess.Popen(command)

    @property
    def stored(self) -> list[str]:
        """Whole lines: a line is there when its block is stored."""
        return self._file.read_text().rpartition("\n")[0].split() if self._file.exists() else []

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def apart(place: Place, tmp_path: Path) -> Iterator[Apart]:
    made = Apart(place, tmp_path)
    yield made
    made.kill()


def test_what_a_killed_consumer_had_not_acknowledged_is_read_by_the_other(place: Place, apart: Apart) -> None:
    wait_until(lambda: len(place.ids()) == 1)
    other = place.consumer()
    place.wait_until_shared(2)
    for _ in range(10):
        place.produce(400)
    wait_until(lambda: len(apart.stored) > 300)
    apart.kill()
    place.produce(400)
    place.wait_until_shared(1)
    place.wait_until_acknowledged()
    assert set(other.keys) | set(apart.stored) == expected(place), "an acknowledged record was lost, or one was skipped"
    assert len(other.keys) == len(set(other.keys))


def test_a_consumer_that_was_frozen_acknowledges_nothing_of_what_became_anothers(place: Place, apart: Apart) -> None:
    wait_until(lambda: len(place.ids()) == 1)
    other = place.consumer()
    place.wait_until_shared(2)
    place.produce(400)
    wait_until(lambda: len(apart.stored) > 100)
    before = place.ids()
    apart.process.send_signal(signal.SIGSTOP)
    place.produce(400)
    place.wait_until_shared(1)
    place.wait_until_acknowledged()
    ends = place.offsets()
    apart.process.send_signal(signal.SIGCONT)
    wait_until(lambda: len(place.ids()) == 2, lambda: f"{place.ids()}")
    assert place.ids() != before and place.offsets() == ends
    place.wait_until_shared(2)
    place.produce(400)
    place.wait_until_acknowledged()
    assert set(other.keys) | set(apart.stored) == expected(place)


def test_zookeeper_that_is_killed_and_comes_back_costs_nothing(place: Place) -> None:
    consumer = place.consumer_that_has_read(400, zookeeper_session_timeout_ms=20000)
    member = place.ids()
    place.zookeeper.kill9()
    place.produce(400)
    place.zookeeper.start()
    consumer.wait_for(800)
    place.wait_until_acknowledged()
    assert place.ids() == member, "its session went on"
    assert sorted(consumer.keys) == sorted(expected(place))


def test_a_receiver_stops_also_while_zookeeper_is_away_and_what_it_could_not_acknowledge_comes_again(place: Place) -> None:
    consumer = place.consumer_that_has_read(400)
    keep = consumer.keep

    def killing(records: list[Any]) -> None:
        consumer.keep = keep
        place.zookeeper.kill9()
        consumer.keep(records)

    consumer.keep = killing
    place.produce(40)
    consumer.wait_for(401)
    began = time.monotonic()
    consumer.stop()
    assert time.monotonic() - began < 10
    place.zookeeper.start()
    again = place.consumer()
    wait_until(lambda: set(consumer.keys) | set(again.keys) == expected(place))
    place.wait_until_acknowledged()
    assert again.keys and not set(again.keys) - {str(n) for n in range(400, 440)}


def expire(consumer: Consumer, place: Place) -> None:
    """Takes over its session by another client and ends it, as the server does when it hears nothing. The consumer's own client takes it
    back as soon as it has lost it: so often until it is gone."""
    (before,) = place.ids()
    member: Any = consumer.receiver
    session = member._member._membership._client.client_id

    def ended() -> bool:
        thief = KazooClient(place.zookeeper.hosts, client_id=session, timeout=1.5)
        with suppress(KazooTimeoutError):
            thief.start(timeout=2)
        thief.stop()
        thief.close()
        return before not in place.ids()

    wait_until(ended)


def test_after_its_session_has_expired_a_receiver_comes_again_as_another_and_reads_on(place: Place) -> None:
    consumer = place.consumer_that_has_read(400)
    (before,) = place.ids()
    expire(consumer, place)
    place.produce(400)
    consumer.wait_for(800)
    place.wait_until_acknowledged()
    (after,) = place.ids()
    assert after != before and set(consumer.keys) == expected(place)
    assert [news.kind for news in consumer.news] == ["started", "error"]


def test_who_has_lost_a_claim_cannot_move_its_offset_and_comes_again(place: Place) -> None:
    consumer = place.consumer_that_has_read(400)
    member, owners, seen = place.ids(), place.owners(), list[int]()

    def rob(records: list[Any]) -> None:
        """Another takes a claim while a block is being stored."""
        consumer.keep = keep
        place.client.set(place.node(f"owners/{place.topic}/2"), b"another")
        consumer.keep(records)
        seen.append(place.offsets()[2])

    keep, consumer.keep = consumer.keep, rob
    place.produce(400)
    wait_until(lambda: len(place.owners()) == 4 and place.ids() not in ([], member))
    consumer.wait_for(800)
    place.wait_until_acknowledged()
    assert seen == [100] and set(place.owners().values()).isdisjoint(owners.values())
    assert set(consumer.keys) == expected(place) and len(consumer.keys) > 800, "the block came again"


def test_offsets_that_an_operator_removes_are_written_again(place: Place) -> None:
    consumer = place.consumer_that_has_read(400)
    place.client.delete(place.node("offsets"), recursive=True)
    place.produce(400)
    place.wait_until_acknowledged()
    assert sorted(consumer.keys) == sorted(expected(place))


def test_a_block_that_cannot_be_stored_is_not_acknowledged_and_comes_again(place: Place) -> None:
    consumer = place.consumer_that_has_read(400)
    keep, refused = consumer.keep, list[int]()

    def refuse(records: list[Any]) -> None:
        refused.append(len(records))
        if len(refused) == 3:
            consumer.keep = keep
        raise OSError("no room")

    consumer.keep = refuse
    place.produce(400)
    wait_until(lambda: len(refused) == 3)
    consumer.wait_for(800)
    place.wait_until_acknowledged()
    assert sorted(consumer.keys) == sorted(expected(place))
    assert [news.kind for news in consumer.news] == ["started", "stopped", "started"]


def test_the_plain_receiver_writes_its_offsets_on_a_timer_and_when_it_stops(place: Place) -> None:
    consumer = place.consumer_that_has_read(400, plain, auto_commit_interval_ms=300)
    place.produce(4)
    consumer.wait_for(404)
    consumer.stop()
    assert sum(place.offsets().values()) == 404


def test_offsets_that_the_log_does_not_have_are_replaced_as_auto_offset_reset_says(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.produce(40)
    place.client.create(place.node(f"offsets/{place.topic}/1"), b"7000", makepath=True)
    consumer = place.consumer()
    consumer.wait_for(40)
    place.wait_until_acknowledged()
    assert f"{place.topic}-1: offset 7000 of group {place.group} is out of range, the log has [0, 10)" in caplog.text
