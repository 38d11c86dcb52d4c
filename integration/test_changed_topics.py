"""A job whose topics change between two starts, on the real broker: another job is refused, a topic that comes back goes on exactly."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kstream_kafka import KafkaUtils, value_only

from integration.kafka_broker import KafkaBroker
from integration.reading import Collected, running, wait_until
from kstream import StreamingContext
from kstream.cli import main
from kstream.context.settings import RECOVERY_ALLOW
from kstream.errors import TopicsChangedError

RECORDS = 20


class Job:
    """A job of one stream over some topics, on one checkpoint. `put` writes records that are all different."""

    def __init__(self, sc: Any, kafka: KafkaBroker, checkpoint: Path) -> None:
        self._sc, self._kafka, self.checkpoint = sc, kafka, checkpoint
        self.written: dict[str, list[str]] = {}

    def put(self, *topics: str) -> None:
        for topic in topics:
            known = self.written.setdefault(topic, [])
            new = [f"{topic} {len(known) + i}" for i in range(RECORDS)]
            self._kafka.produce(topic, [(None, value, i % 2) for i, value in enumerate(new)])
            known += new

    def context(self, topics: list[str], collected: Collected, allow: str = "") -> StreamingContext:
        ssc = StreamingContext(self._sc, 0.5)
        ssc.checkpoint(str(self.checkpoint))
        ssc._settings.override(RECOVERY_ALLOW, allow)
        params = {"bootstrap.servers": self._kafka.bootstrap, "auto.offset.reset": "earliest"}
        KafkaUtils.createDirectStream(ssc, topics, params, messageHandler=value_only).foreachRDD(collected)
        return ssc

    @contextmanager
    def life(self, *topics: str, allow: str = "") -> Any:
        """The job runs on these topics until the block is left. Gives what it reads."""
        collected = Collected()
        with running(self.context(list(topics), collected, allow)):
            yield collected

    def read(self, *topics: str, count: int, allow: str = "") -> list[str]:
        """What one life of the job has read when it has read so many records, and two batches more."""
        with self.life(*topics, allow=allow) as collected:
            wait_until(lambda: len(collected.records) >= count, f"reading {count} records of {topics}")
            batches = collected.batches
            wait_until(lambda: collected.batches >= batches + 2, "two more batches")
        return collected.records

    def standing(self) -> dict[str, Any]:
        return json.loads(CliRunner().invoke(main, ["offsets", "show", str(self.checkpoint), "--json"]).output)


@pytest.fixture
def job(sc: Any, kafka: KafkaBroker, tmp_path: Path) -> Job:
    return Job(sc, kafka, tmp_path / "checkpoint")


@pytest.fixture
def topics(kafka: KafkaBroker) -> Callable[[], tuple[str, str]]:
    def make() -> tuple[str, str]:
        end = uuid.uuid4().hex[:8]
        for name in (f"orders-{end}", f"returns-{end}"):
            kafka.create_topic(name, 2)
        return f"orders-{end}", f"returns-{end}"

    return make


def test_another_job_is_refused_and_the_first_loses_no_offset_even_if_the_other_one_is_allowed(
    job: Job, topics: Callable[[], tuple[str, str]]
) -> None:
    orders, returns = topics()
    job.put(orders, returns)
    first = job.read(orders, count=RECORDS)
    before = job.standing()
    with pytest.raises(TopicsChangedError, match=f"stored are {orders}-0 at 10, {orders}-1 at 10, it reads .*{returns}.*topics:0"):
        job.context([returns], Collected()).start()
    assert job.standing() == before
    job.put(orders)
    assert sorted(job.read(returns, count=RECORDS, allow="topics:0")) == sorted(job.written[returns])
    again = job.read(orders, count=RECORDS)
    assert sorted(first + again) == sorted(job.written[orders])


def test_a_topic_that_leaves_the_list_and_comes_back_is_read_on_exactly(job: Job, topics: Callable[[], tuple[str, str]]) -> None:
    orders, returns = topics()
    job.put(orders, returns)
    first = job.read(orders, returns, count=2 * RECORDS)
    job.put(orders, returns)
    second = job.read(orders, count=RECORDS)
    kept = [{"stream": 0, "topic": returns, "partition": p, "next": 10} for p in (0, 1)]
    assert job.standing()["kept"] == kept
    job.put(orders, returns)
    third = job.read(orders, returns, count=3 * RECORDS)
    assert job.standing()["kept"] == []
    assert sorted(first + second + third) == sorted(job.written[orders] + job.written[returns])


def test_a_topic_made_anew_while_it_was_away_is_read_from_its_beginning(
    job: Job, kafka: KafkaBroker, topics: Callable[[], tuple[str, str]]
) -> None:
    orders, returns = topics()
    job.put(orders, returns)
    job.read(orders, returns, count=2 * RECORDS)
    job.read(orders, count=0)
    kafka.delete_topic(returns)
    kafka.create_topic(returns, 2)
    job.put(returns, returns)  # longer than the old one
    assert sorted(job.read(orders, returns, count=2 * RECORDS)) == sorted(job.written[returns][RECORDS:])
