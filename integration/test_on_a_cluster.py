"""A cluster of three workers: receivers of a group, every event, Spark's own dynamic allocation, skipped records, files of a namenode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration import skip_job
from integration.group_job import EVENTS, INTERVAL_S
from integration.hdfs_cluster import Hdfs
from integration.kafka_broker import Broker, KafkaBroker
from integration.masters import STANDALONE, Master, running_master
from integration.peeked_world import World
from integration.zookeeper_server import ZooKeeper
from kstream.spark.checkpoint_store import open_checkpoint

PARTITIONS, EACH = 6, 100
RATE, BLOCK_MS = 40, 500
FILES = 5


@pytest.fixture(scope="module")
def wide_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Master]:
    """Two cores a worker: each has one for a receiver and one for batches."""
    with running_master(STANDALONE, tmp_path_factory.mktemp("wide-cluster"), cores=2) as master:
        yield master


def run_job(master: Master, kafka: Broker, zookeeper: ZooKeeper, topic: str, directory: Path, **settings: str) -> dict[str, Any]:
    """A topic of some hundred records, read by the two receivers of a group."""
    kafka.produce(topic, [(None, f"{p}:{n}", p) for p in range(PARTITIONS) for n in range(EACH)])
    options = {
        "bootstrap": kafka.bootstrap, "zookeeper": zookeeper.hosts, "topic": topic, "total": PARTITIONS * EACH, "rate": RATE,
        "block_ms": BLOCK_MS, "directory": str(directory), "settings": {**master.settings, **settings},
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "integration.group_job", json.dumps(options)],
        capture_output=True, text=True, timeout=400, check=False, env={**os.environ, **master.environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def values_of(found: dict[str, Any], stream: str) -> list[str]:
    return [value for batch in found["batches"].values() if stream in batch for value in batch[stream]["values"]]


@pytest.mark.timeout(500)
def test_two_receivers_of_a_group_share_a_topic_within_their_rates_and_listeners_hear_all_nine_events(
    wide_cluster: Master, kafka: Broker, zookeeper: ZooKeeper, topic: Callable[..., str], tmp_path: Path
) -> None:
    found = run_job(wide_cluster, kafka, zookeeper, topic(PARTITIONS), tmp_path)
    first, second = values_of(found, "0"), values_of(found, "1")
    print({time: {n: (len(part["values"]), part["blocks"]) for n, part in batch.items()} for time, batch in found["batches"].items()})
    print(found["events"], found["executors"])
    assert first and second and set(first) | set(second) == {f"{p}:{n}" for p in range(PARTITIONS) for n in range(EACH)}
    assert len(set(found["executors"].values())) == 3, "receivers are spread over the executors"
    assert {name for name in EVENTS if found["events"].get(name, 0)} == set(EVENTS)
    parts = [part for batch in found["batches"].values() for part in batch.values()]
    full = [part for part in parts if part["values"]]
    assert len(full) >= PARTITIONS * EACH / (RATE * INTERVAL_S), "receiver.maxRate was not kept"
    assert max(part["blocks"] for part in full) >= 3, "blockInterval was not kept"
    assert max(len(part["values"]) / part["blocks"] for part in full) < 2.5 * RATE * BLOCK_MS / 1000, (
        "a block has more than its time allows"
    )


@pytest.mark.timeout(500)
def test_under_sparks_own_dynamic_allocation_no_receiver_loses_its_executor(
    wide_cluster: Master, kafka: Broker, zookeeper: ZooKeeper, topic: Callable[..., str], tmp_path: Path
) -> None:
    """An executor with a receiver is never idle for Spark, which ends idle ones after two seconds here."""
    allocation = {
        "enabled": "true", "shuffleTracking.enabled": "true", "minExecutors": "1", "initialExecutors": "3", "executorIdleTimeout": "2s"
    }  # fmt: skip
    settings = {f"spark.dynamicAllocation.{key}": value for key, value in allocation.items()}
    found = run_job(wide_cluster, kafka, zookeeper, topic(PARTITIONS), tmp_path, **settings)
    values = values_of(found, "0") + values_of(found, "1")
    assert set(values) == {f"{p}:{n}" for p in range(PARTITIONS) for n in range(EACH)}
    assert found["events"]["onReceiverStarted"] == 3, "no receiver was started again"


@pytest.mark.timeout(500)
def test_a_skipped_record_and_files_on_a_namenode_are_read_by_executors_that_die(
    wide_cluster: Master, kafka: KafkaBroker, hdfs: Hdfs, topic: Callable[..., str], tmp_path: Path
) -> None:
    assert wide_cluster.cluster is not None
    store, watched = open_checkpoint(hdfs.url("watched")), hdfs.url("watched/in")
    store.create("in/.keep", b"")
    options = json.dumps({"settings": dict(wide_cluster.settings), "watched": watched})
    world = World(kafka, topic(2), tmp_path, {**wide_cluster.environment, skip_job.VARIABLE: options})
    with world.driver():
        place = world.produce(0)
        world.wait(lambda: world.is_pending(place), "the plan of the records")
        for number in range(1, FILES + 1):
            store.create(f"in/{number}", f"{number}\n{-number}\n".encode())
            if number == 2:
                world.wait(lambda: bool(wide_cluster.cluster.executors()), "an executor")
                wide_cluster.cluster.kill_executor(wide_cluster.cluster.executors()[0])
        world.skip(place)
        world.wait(lambda: sum(map(len, world.files("sink").values())) == len(world.good), "reading the records")
        world.wait(lambda: sum(map(len, world.files("files").values())) >= 2 * FILES, "reading the files")
        world.wait(lambda: not world.is_pending(place), "the end of the batch")
    assert sorted(n for numbers in world.files("sink").values() for n in numbers) == world.good
    assert sorted(n for numbers in world.files("files").values() for n in numbers) == sorted([*range(-FILES, 0), *range(1, FILES + 1)])
    assert world.ledger() == {place: "skipped"}
