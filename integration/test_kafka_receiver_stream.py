"""createStream in a whole job: it goes on from the checkpoint, and no password gets there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka import KafkaUtils
from pyspark import SparkContext

from integration.kafka_broker import Broker
from integration.zookeeper_server import ZooKeeper
from kstream import StreamingContext
from kstream.context.settings import RECOVERY

PLANTED = "pl4nt3d-s3cr3t"


class Job:
    """Reads a topic by a receiver into a list, one life after the other."""

    def __init__(self, sc: SparkContext, checkpoint: Path, arguments: tuple[Any, ...], recovery: str) -> None:
        self.recovery = recovery
        self.sc, self.checkpoint, self.arguments = sc, checkpoint, arguments
        self.setups = 0

    def setup(self) -> StreamingContext:
        self.setups += 1
        ssc = StreamingContext(self.sc, 0.5)
        ssc._settings.override(RECOVERY, self.recovery)
        SEEN.append(set[Any]())
        KafkaUtils.createStream(ssc, *self.arguments).foreachRDD(note)
        return ssc

    def live(self, until: Callable[[set[Any]], bool]) -> set[Any]:
        """One life, until what it has seen is enough; what that is."""
        SEEN.clear()
        ssc = StreamingContext.getOrCreate(str(self.checkpoint), self.setup)
        SEEN[:] = [set()]
        ssc.start()
        end = time.monotonic() + 60
        while not until(SEEN[0]) and time.monotonic() < end:
            time.sleep(0.05)
        ssc.stop(stopSparkContext=False, stopGraceFully=True)
        return SEEN[0]


SEEN: list[set[Any]] = []


def note(rdd: Any) -> None:
    SEEN[0].update(rdd.collect())


@pytest.mark.parametrize(
    ("secret", "recovery"), [({}, "setup"), ({"sasl.password": PLANTED}, "setup"), ({}, "graph")], ids=["setup", "a secret", "graph"]
)
def test_a_job_reads_on_after_a_restart_and_its_graph_is_restored_only_on_request(
    secret: dict[str, str], recovery: str, sc: SparkContext, zookeeper: ZooKeeper, kafka: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(2)
    params = {"bootstrap.servers": kafka.bootstrap, "auto.offset.reset": "smallest", **secret}
    job = Job(sc, tmp_path, (zookeeper.hosts, f"g-{uuid.uuid4().hex[:8]}", {name: 1}, params), recovery)
    kafka.produce(name, [(str(n), f"value {n}", n % 2) for n in range(40)])
    assert job.live(lambda seen: len(seen) == 40) == {(str(n), f"value {n}") for n in range(40)}
    kafka.produce(name, [(str(n), f"value {n}", n % 2) for n in range(40, 60)])
    assert job.live(lambda seen: len(seen) == 20) == {(str(n), f"value {n}") for n in range(40, 60)}
    assert job.setups == (1 if recovery == "graph" else 2)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert ("graph" in {path.name for path in files}) is (recovery == "graph")
    assert [path for path in files if PLANTED.encode() in path.read_bytes()] == []
