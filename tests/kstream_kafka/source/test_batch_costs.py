"""The costs of a batch of a direct stream, counted: a real SparkContext, librdkafka's mock cluster of two brokers, a checkpoint on disk.

Counts show growth that seconds on a busy machine hide. A change that makes a batch do more changes a number here, and says what the
number is for.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kstream_kafka import KafkaUtils, OffsetRange
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.demo.embedded_broker import EmbeddedBroker
from kstream_kafka.source import direct_input_dstream
from kstream_kafka.source.direct_input_dstream import DirectKafkaInputDStream
from py4j.clientserver import ClientServerConnection
from pyspark import SparkContext

from kstream.dstream import graph
from kstream.loop import EventLoop, WorkerPool
from kstream.spark import checkpoint_store
from kstream.storage import LocalFileStore
from tests.stores import CountingStore
from tests.streams import Stream

BATCHES = 10
Counts = dict[str, dict[str, float]]

EACH_BATCH: Counts = {
    "store requests": {
        "create plans": 1,  # the plan, before anything of the batch runs
        "exists epoch": 1,  # the look for a newer writer, between the plan and the submission
        "create done": 1,  # the end of the batch
        "delete plans": 1,  # in the background: the plan of a batch that no restart needs
        "delete done": 1,  # and its end
    },
    "fsyncs": {
        "file": 2,  # the plan's and the completion's temporary file
        "directory": 2,  # the name that each is linked to
    },
    "JSON": {
        "encoded": 6,  # plan and completion twice each, without and with their checksum; the scopes of the input and of the output
        # Nothing is decoded: the driver that has made a plan does not read it.
    },
    "plans decoded": {},  # the driver that has made a plan keeps it as an object
    "walks": {},  # of the graph: the start makes them, a batch makes none
    "Kafka requests to each leader": {
        "ListOffsets": 1,  # the ends of all logs that the broker leads, in one request
        # No Metadata and no DescribeTopics: they belong to the start, and to the look for new partitions (metadata.max.age.ms).
    },
    "JVM, JobGenerator": {
        "clone": 2,  # local properties for the generation, and within it for the input's place
        "getLocalProperties": 1,  # those that hold again after the input's place
        "setLocalProperties": 3,  # for the generation, for the input's place, and back
        "setProperty": 1,  # the input's scope
        "value_$eq": 1,  # output into existing directories is allowed in this thread
        "rdd": 1,  # PySpark asks whether the RDD before is a barrier, in two calls
        "isBarrier": 1,
    },
    "JVM, streaming-job-executor": {
        "clone": 1,  # local properties for the job
        "setProperty": 4,  # its description, batch time, output and scope
        "setLocalProperties": 1,
        "value_$eq": 1,
    },
    "hand-overs": {
        "JobGenerator": 2,  # the tick, the end of the batch
        "streaming-job-executor": 1,  # the job
        "JobScheduler": 2,  # the job's start and end
        "StreamingListenerBus": 5,  # submitted, started, output started, output completed, completed
        "PlanLogCleaner": 1,  # how far plans may go
        # No thread is started.
    },
}


class Counting:
    """Counts calls in this process, by kind and name. Any thread may call."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {kind: Counter() for kind in EACH_BATCH}

    def count(self, kind: str, name: str) -> None:
        with self._lock:
            self._counts.setdefault(kind, Counter())[name] += 1

    def taken(self) -> Counts:
        """What was counted since the last call."""
        with self._lock:
            counts, self._counts = self._counts, {kind: Counter() for kind in EACH_BATCH}
        return {kind: dict(names) for kind, names in counts.items()}

    def calls(self, owner: Any, attribute: str, kind: str, name: Callable[..., str | None]) -> None:
        """From now on counts calls of `owner.attribute`. `name(*arguments)` is the name of a call; a call with None does not count."""
        known = getattr(owner, attribute)

        def counted(*arguments: Any, **named: Any) -> Any:
            if (found := name(*arguments)) is not None:
                self.count(kind, found)
            return known(*arguments, **named)

        self._patch.setattr(owner, attribute, staticmethod(counted) if owner is OffsetRange else counted)

    def jvm_calls(self) -> None:
        """From now on counts the py4j commands of all threads but the test's own, by thread and Java method. Releases of Java objects do
        not count: Python's garbage collector decides when they come."""
        known = ClientServerConnection.send_command

        def counted(connection: Any, command: str) -> str:
            thread = threading.current_thread().name.rstrip("-0123456789")
            parts = command.split("\n")
            if thread != "MainThread" and parts[0] != "m":
                self.count(f"JVM, {thread}", parts[2] if parts[0] == "c" else command)
            return known(connection, command)

        self._patch.setattr(ClientServerConnection, "send_command", counted)


def kind_of_file(descriptor: int) -> str:
    return "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"


class Costs:
    """Counts the batches of a direct stream of 4 partitions on 2 brokers. The output operation runs no Spark job."""

    def __init__(self, sc: SparkContext, bootstrap: str, leaders: int, folder: Path, patch: pytest.MonkeyPatch) -> None:
        """`leaders`: how many brokers lead a partition."""
        self._leaders = leaders
        self._counting = counting = Counting(patch)
        self._store = CountingStore(LocalFileStore(folder))
        patch.setattr(checkpoint_store, "open_checkpoint_to_write", lambda *_: self._store)
        patch.setattr(direct_input_dstream, "renewing_driver_client", self._client)
        self._clients: list[KafkaDriverClient] = []
        self._stream = Stream(sc)
        self._stream.ssc.checkpoint(str(folder))
        parameters = {"bootstrap.servers": bootstrap, "group.id": "shop", "metadata.max.age.ms": "1800000"}  # no look for partitions
        KafkaUtils.createDirectStream(self._stream.ssc, ["orders"], parameters).foreachRDD(lambda rdd: None)
        counting.calls(os, "fsync", "fsyncs", kind_of_file)
        counting.calls(json, "dumps", "JSON", lambda *_: "encoded")
        counting.calls(json, "loads", "JSON", lambda text: None if text.startswith('{ "name"') else "decoded")
        counting.calls(OffsetRange, "from_json", "plans decoded", lambda _: "OffsetRange")
        counting.calls(DirectKafkaInputDStream, "decode", "plans decoded", lambda *_: "KafkaPlan")
        counting.calls(graph, "in_order", "walks", lambda _: "of the graph")
        counting.calls(threading.Thread, "start", "hand-overs", lambda thread: f"thread {thread.name}")
        counting.calls(EventLoop, "post", "hand-overs", lambda loop, _event: loop._thread.name)
        counting.calls(WorkerPool, "submit", "hand-overs", lambda pool, _task: pool._threads[0].name.rstrip("-0"))
        counting.jvm_calls()
        self._stream.start()

    def _client(self, params: Any, retries: int) -> KafkaDriverClient:
        client = KafkaDriverClient(params, retries, statistics_ms=20)
        self._clients.append(client)
        return client

    def run(self, batches: int) -> None:
        for _ in range(batches):
            self._stream.tick()

    def of_batches(self) -> Counts:
        """Runs `BATCHES` batches. Returns each count divided by `BATCHES`."""
        self._settle()
        requests = self._requests()
        self._counting.taken()
        self._store.take()
        self.run(BATCHES)
        self._settle()
        counts = self._counting.taken()
        for verb, name, _ in self._store.take():
            kind = f"{verb} {name.split('/')[0].split('-')[0]}"
            counts["store requests"][kind] = counts["store requests"].get(kind, 0) + 1
        sent = {name: n - requests.get(name, 0) for name, n in self._requests().items()}
        counts["Kafka requests to each leader"] = {name: n / self._leaders for name, n in sent.items()}
        return {kind: {name: n / BATCHES for name, n in names.items() if n} for kind, names in counts.items()}

    def _settle(self) -> None:
        """Waits until the batches have ended and the plans that they no longer need are removed."""
        engine: Any = self._stream.ssc._engine
        assert engine.wait_idle(60) and engine._generator._cleaner.drain(60)

    def _requests(self) -> dict[str, int]:
        (client,) = self._clients
        client.requests_sent("")
        totals: Counter[str] = Counter()
        for counts in client._sent.values():
            totals.update(counts)
        return dict(totals)

    def stop(self) -> None:
        self._stream.stop()


@pytest.fixture
def costs(sc: SparkContext, setting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Costs]:
    setting("spark.streaming.kstream.history", "0")  # else plans are removed 50 at a time
    with EmbeddedBroker(brokers=2) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for partition in range(4):
            producer.produce("orders", b"1", partition=partition)
        assert producer.flush(20) == 0
        partitions = producer.list_topics("orders", timeout=20).topics["orders"].partitions.values()
        leaders = {partition.leader for partition in partitions}  # the mock cluster draws lots
        costs = Costs(sc, broker.bootstrap, len(leaders), tmp_path, monkeypatch)
        yield costs
        costs.stop()


def test_a_batch_costs_what_is_counted_here_and_no_more_after_50_batches(costs: Costs) -> None:
    costs.run(5)  # the first batches fill the caches of call sites and empty RDDs, and have no old plan to remove
    assert costs.of_batches() == EACH_BATCH
    costs.run(30)
    assert costs.of_batches() == EACH_BATCH
