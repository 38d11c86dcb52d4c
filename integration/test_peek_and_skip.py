"""`kstream peek` and `kstream skip` as a user types them, on a real broker: a poison record is looked at and left out, under kill -9."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from integration.kafka_broker import KafkaBroker
from integration.peeked_world import EACH, PARTITIONS, World
from integration.skip_job import INTERVAL_S
from kstream import crash_point
from kstream.checkpoint import read_log
from kstream.storage import open_store

KILLS = [
    f"at {point}" for point in (crash_point.PLAN_DURABLE, crash_point.RUNNING, crash_point.JOB_DONE)
] * 2 + ["retry", "command", "done"] * 2  # fmt: skip
"""The driver dies before and in the batch, while it tries the batch again, and after the batch. In two rounds the command dies first."""


def round_of(world: World, number: int, kill: str) -> None:
    """Produce a poison record, skip it, and kill the driver, or the command, at a moment."""
    place = world.produce(number)
    if kill.startswith("at "):
        with world.driver(f"{kill.removeprefix('at ')}:1") as driver:
            assert driver.wait(120) == -signal.SIGKILL
        if not world.is_pending(place):  # it died in an older batch: another driver plans the records
            with world.driver():
                world.wait(lambda: world.is_pending(place), "the plan of the records")
        world.skip(place)
        return
    with world.driver() as driver:
        world.wait(lambda: world.is_pending(place), "the plan of the records")
        if kill == "command":
            world.skip_and_die(place)
        else:
            world.skip(place)
        if kill == "done":
            world.wait(lambda: not world.is_pending(place), "the end of the batch")
        driver.kill()


@pytest.mark.timeout(900)
def test_under_twelve_kills_the_poison_records_and_no_others_are_left_out(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    world = World(kafka, topic(PARTITIONS), tmp_path)
    assert len(KILLS) == 12
    for number, kill in enumerate(KILLS):
        round_of(world, number, kill)
    with world.driver():
        world.wait(lambda: sum(map(len, world.files("sink").values())) == len(world.good), "reading the rest")
        world.wait(lambda: not any(world.is_pending(place) for place in world.poison), "the end of every batch")
    sink = world.files("sink")
    assert sorted(n for numbers in sink.values() for n in numbers) == world.good, "a record is missing, or in two batches"
    assert world.ledger() == dict.fromkeys(world.poison, "skipped")
    for at, numbers in world.files("windows").items():
        assert numbers == sorted(sink.get(at, []) + sink.get(at - 1000 * INTERVAL_S, [])), f"the window at {at}"


@pytest.mark.timeout(300)
def test_a_poison_record_is_shown_until_it_is_gone(kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path) -> None:
    world = World(kafka, topic(PARTITIONS), tmp_path)
    place = world.produce(0)
    with world.driver():
        world.wait(lambda: world.is_pending(place), "the plan of the records")
    code, out, err = world.kstream("peek", world.checkpoint, "--offset", place, "-n", 1)
    assert (code, err) == (0, "") and out.splitlines()[0].startswith(f"{place}  ") and r'{"n": 0\x1b[2J' in out and "\x1b" not in out
    (pending,) = [at for at in read_log(open_store(str(world.checkpoint))).pending if at]
    words = ("peek", world.checkpoint, "--batch", pending.milliseconds, "-n", 100, "--format", "json")
    code, out, err = world.kstream(*words)
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, len(rows), sum(row["key"] == "poison" for row in rows)) == (0, 2 * EACH + 1, 1)

    kafka.admin.delete_records([TopicPartition(world.topic, 0, 3)])[TopicPartition(world.topic, 0, 3)].result(30)
    code, out, err = world.kstream(*words)
    assert (code, len(out.splitlines())) == (3, 2 * EACH - 2)
    assert err == f"kstream: {world.topic}-0 [0, 3) cannot be shown: retention has removed the records, the log begins at 3\n"
    kafka.delete_topic(world.topic)
    code, out, err = world.kstream(*words)
    assert (code, out) == (3, "") and err.startswith(f"kstream: Kafka knows no topic '{world.topic}'") and err.count("\n") == 1
