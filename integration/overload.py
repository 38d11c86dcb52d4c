"""A job that is offered five times what it can process, for a while; then the load ends and the job reads what has waited.

    python -m integration.overload INPUT [--seconds N] [--capacity N] [--first-batch N] [--without] [--bootstrap HOST:PORT]
                                         [--zookeeper HOST:PORT] [--bars]

INPUT is direct (Kafka's direct stream), socket or kafka (receivers). With `backlog` a direct stream without back-pressure finds so many
seconds' worth of records at its first start. With `downtime` it finds them at a restart: a first driver has run for a while. The job sleeps
for each record, so its capacity is the same on every machine: `--capacity` records a second. `backlog --capacity 40000 --seconds 250
--first-batch 100000` is a first start on ten million records.

It prints a line of JSON: the batches, and the memory of driver and JVM. `--without` switches back-pressure off, to show the difference.
Under `--bars` the bars are checked, and a missed one is exit status 1. Without addresses it starts its own servers.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kstream_kafka import KafkaUtils, value_only
from pyspark import SparkConf

from integration.kafka_broker import running_broker
from integration.kafka_handle import KafkaAt
from integration.memory import heap_mb, resident_mb
from integration.zookeeper_server import running_zookeeper
from kstream import StreamingContext
from kstream.listener import StreamingListener, StreamingListenerBatchCompleted

INPUTS = ("direct", "socket", "kafka")
BACKLOG, DOWNTIME = "backlog", "downtime"
WITH_A_BACKLOG = (BACKLOG, DOWNTIME)
"""The inputs that find a backlog at their start. Back-pressure is off."""
NORMAL = 0.5
"""The load of the driver before a downtime, as a share of the capacity. Each second it changes by up to a half."""
NORMAL_S = 15
MOST_IN_THE_FIRST_S = 15
"""How many seconds' worth of records the first batch after a downtime may have: ten seconds and an interval, with room."""
MOST_AFTER_A_START = 2.0
"""The most intervals for which a batch after the first may run, while a backlog is read."""
CAPACITY = 1000
"""The records a second that the job can process by default."""
OVERLOAD = 5
RECORD = b"x" * 100
LOADED = 0.2
"""The share of the time for which records come. As they are five times too many, the job needs the rest of the time for them."""
WARM_S = 10
"""The first batches are slower, because workers start. Bars count from then on."""
PEAK = 3.0
"""The most intervals that a batch may be late, in all, with back-pressure."""
PEAK_AFTER_A_START = 2 * MOST_AFTER_A_START
"""The same while a backlog is read. A batch is planned when one other runs, waits for the end of that one, and runs as long itself."""
USE = 0.8
GROWTH_MB = 16.0


@dataclass
class Batch:
    """A batch that has ended. `time` is when it began to run, in seconds since the start of the job: a missed batch is due before."""

    time: float
    records: int
    processing: float
    delay: float


@dataclass
class Outcome:
    """What a run has shown. Memory is in MB: resident of the driver, and used heap of the JVM after a collection."""

    input: str
    backpressure: bool
    capacity_set: int = CAPACITY
    first_batch: int = CAPACITY // 2
    produced: int = 0
    batches: list[Batch] = field(default_factory=list[Batch])
    driver_mb: list[float] = field(default_factory=list[float])
    heap_mb: list[float] = field(default_factory=list[float])

    @property
    def processed(self) -> int:
        return sum(batch.records for batch in self.batches)

    @property
    def capacity(self) -> float:
        """Records a second: the median speed of the batches."""
        return statistics.median(batch.records / batch.processing for batch in self.batches if batch.records)

    @property
    def throughput(self) -> float:
        """Records a second from the end of the warm-up to the last batch with records."""
        busy = [batch for batch in self.batches if batch.records and batch.time >= WARM_S]
        return sum(batch.records for batch in busy[:-1]) / (busy[-1].time - busy[0].time)

    @property
    def latest(self) -> float:
        """The longest total delay after the warm-up, or after the first batch of a backlog, in seconds. The interval is one second."""
        if self.input in WITH_A_BACKLOG:
            return max((batch.delay for batch in self.after_the_first), default=0.0)
        return max(batch.delay for batch in self.batches if batch.time >= WARM_S)

    @property
    def after_the_first(self) -> list[Batch]:
        """The batches with records after the first one."""
        return [batch for batch in self.batches if batch.records][1:]

    def growth(self, samples: list[float]) -> float:
        """How much memory has grown since the warm-up: the mean of the last third of the samples, less that of the first third."""
        third = max(1, len(samples) // 3)
        return statistics.mean(samples[-third:]) - statistics.mean(samples[:third])

    def missed(self) -> list[str]:
        """The bars that the run has missed."""
        peak = PEAK_AFTER_A_START if self.input in WITH_A_BACKLOG else PEAK
        longest = max((batch.processing for batch in self.after_the_first), default=0.0)
        first, most_in_first = next(batch for batch in self.batches if batch.records), MOST_IN_THE_FIRST_S * self.capacity_set
        figures = [
            (self.latest < peak, f"total delay up to {self.latest:.1f} intervals"),
            (self.input not in WITH_A_BACKLOG or longest <= MOST_AFTER_A_START, f"a batch took {longest:.1f} intervals"),
            (
                self.input != DOWNTIME or first.records <= most_in_first,
                f"the first batch had {first.records} records",
            ),
            (self.processed == self.produced, f"{self.processed} of {self.produced} records"),
            (self.throughput >= USE * self.capacity, f"{self.throughput:.0f} of {self.capacity:.0f} records a second"),
            (self.growth(self.driver_mb) < GROWTH_MB, f"the driver has grown by {self.growth(self.driver_mb):.1f} MB"),
            (self.growth(self.heap_mb) < GROWTH_MB, f"the heap of the JVM has grown by {self.growth(self.heap_mb):.1f} MB"),
        ]
        return [text for holds, text in figures if not holds]


class Watcher(StreamingListener):
    """Notes each batch."""

    def __init__(self, outcome: Outcome, started: float) -> None:
        self.outcome, self.started = outcome, started

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        info = batchCompleted.info
        assert not any(output.failure_reason for output in info.outputs.values()), info
        assert info.processing_start_ms is not None
        at = info.processing_start_ms / 1000 - self.started
        self.outcome.batches.append(Batch(at, info.numRecords(), max(0.001, info.processingDelay() / 1000), info.totalDelay() / 1000))


class Load:
    """A source of records that come at five times the capacity, in steps of 50 ms, for a while.

    Args:
        send: send(n) sends so many records; it may block.
        seconds: how long.
        capacity: of the job, in records a second.
    """

    def __init__(self, send: Any, seconds: float, capacity: int) -> None:
        self._send, self._seconds, self._capacity = send, seconds, capacity
        self.sent = 0
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        if self._seconds:
            self._send(1)  # a socket waits here for the receiver
            self.sent = 1
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < self._seconds:
            due = int(passed * self._capacity * OVERLOAD) - self.sent
            if due > 0:
                self._send(due)
                self.sent += due
            time.sleep(0.05)
        self.ended.set()


def work(capacity: int, records: Iterable[Any]) -> None:
    """Sleep for the records, whatever the machine."""
    time.sleep(sum(1 for _ in records) / capacity)


def process(capacity: int, rdd: Any) -> None:
    rdd.coalesce(1).foreachPartition(partial(work, capacity))


def kafka_topic(bootstrap: str) -> tuple[str, Any]:
    """A new topic of two partitions, and what sends records to it."""
    name = "overload-" + uuid.uuid4().hex[:8]
    kafka = KafkaAt(bootstrap)
    kafka.create_topic(name, 2)
    return name, lambda records: kafka.produce(name, ((None, RECORD, n % 2) for n in range(records)))


@contextmanager
def line_server() -> Iterator[tuple[int, Any]]:
    """A socket on loopback that one receiver connects to, and what sends lines to it: it blocks while the receiver does not read."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        connections: list[socket.socket] = []

        def send(records: int) -> None:
            if not connections:
                connections.append(server.accept()[0])
            connections[0].sendall((RECORD + b"\n") * records)

        yield server.getsockname()[1], send
        for connection in connections:
            connection.close()


def make_context(outcome: Outcome, checkpoint: str | None = None) -> StreamingContext:
    """The context of the job. A run that shows the difference has no limit at all: its first batch may find a backlog by chance."""
    conf = SparkConf().setMaster("local[3]").setAppName("overload")
    conf.set("spark.streaming.backpressure.enabled", str(outcome.backpressure).lower())
    if outcome.backpressure:  # as in Spark, receivers obey the initial rate also without it
        conf.set("spark.streaming.backpressure.initialRate", str(outcome.capacity_set // 2))
    limited = outcome.backpressure or outcome.input in WITH_A_BACKLOG
    conf.set("spark.streaming.kstream.kafka.firstBatchRecords", str(outcome.first_batch if limited else 0))
    conf.set("spark.ui.enabled", "false")
    ssc = StreamingContext(conf, 1)
    if checkpoint is not None:
        ssc.checkpoint(checkpoint)
    return ssc


def make_direct_job(outcome: Outcome, bootstrap: str, topic: str, checkpoint: str | None) -> StreamingContext:
    """The context of a job that reads a topic by the direct stream."""
    ssc = make_context(outcome, checkpoint)
    params = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
    stream = KafkaUtils.createDirectStream(ssc, [topic], params, messageHandler=value_only)
    stream.foreachRDD(partial(process, outcome.capacity_set))
    return ssc


def run_a_first_driver(ssc: StreamingContext, outcome: Outcome, send: Any) -> None:
    """Run a driver at a normal load for a while, until it has read everything, and stop it."""
    before = Outcome(outcome.input, outcome.backpressure)
    ssc.addStreamingListener(Watcher(before, time.time()))
    ssc.start()
    for second in range(NORMAL_S):
        records = int(outcome.capacity_set * NORMAL * (1 + (second % 5 - 2) / 4))
        send(records)
        before.produced += records
        ssc.awaitTerminationOrTimeout(1)
    patience = time.time() + 60
    while before.processed < before.produced:
        assert time.time() < patience, f"the first driver has read {before.processed} of {before.produced} records"
        ssc.awaitTerminationOrTimeout(1)
    ssc.stop(stopGraceFully=False)


def run(outcome: Outcome, seconds: float, bootstrap: str, zookeeper: str) -> Outcome:
    """Run the job, and wait until it has read everything. Its memory is looked at each second after the warm-up."""
    with ExitStack() as resources:
        if outcome.input == "socket":
            ssc = make_context(outcome)
            port, send = resources.enter_context(line_server())
            ssc.socketTextStream("127.0.0.1", port).foreachRDD(partial(process, outcome.capacity_set))
        elif outcome.input == "kafka":
            ssc = make_context(outcome)
            topic, send = kafka_topic(bootstrap)
            params = {"bootstrap.servers": bootstrap, "auto.offset.reset": "smallest"}
            stream = KafkaUtils.createStream(ssc, zookeeper, topic, {topic: 1}, params)
            stream.foreachRDD(partial(process, outcome.capacity_set))
        else:
            topic, send = kafka_topic(bootstrap)
            checkpoint = resources.enter_context(tempfile.TemporaryDirectory()) if outcome.input == DOWNTIME else None
            ssc = make_direct_job(outcome, bootstrap, topic, checkpoint)
            if checkpoint is not None:
                run_a_first_driver(ssc, outcome, send)
                ssc = make_direct_job(outcome, bootstrap, topic, checkpoint)
        started = time.time()
        ssc.addStreamingListener(Watcher(outcome, started))
        load = Load(send, 0 if outcome.input in WITH_A_BACKLOG else seconds * LOADED, outcome.capacity_set)
        if outcome.input in WITH_A_BACKLOG:
            load.sent = int(seconds * outcome.capacity_set)
            send(load.sent)
        ssc.start()
        load.start()
        patience = started + 3 * seconds + 60
        while not load.ended.is_set() or outcome.processed < load.sent:
            if time.time() > patience:
                break
            ssc.awaitTerminationOrTimeout(1)
            if time.time() > started + WARM_S:
                outcome.driver_mb.append(resident_mb())
                outcome.heap_mb.append(heap_mb(ssc))
        outcome.produced = load.sent
        ssc.stop(stopGraceFully=False)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("input", choices=(*INPUTS, *WITH_A_BACKLOG))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--capacity", type=int, default=CAPACITY)
    parser.add_argument("--first-batch", type=int, help="of each of two partitions; by default half a second's worth, after a downtime all")
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--bootstrap", default="")
    parser.add_argument("--zookeeper", default="")
    parser.add_argument("--bars", action="store_true")
    options = parser.parse_args()
    if options.without and options.input in WITH_A_BACKLOG:
        parser.error(f"{options.input} runs without back-pressure in any case")
    first_batch = options.first_batch or (CAPACITY // 2 if options.input != DOWNTIME else int(options.seconds * options.capacity))
    backpressure = not options.without and options.input not in WITH_A_BACKLOG
    outcome = Outcome(options.input, backpressure, options.capacity, first_batch)
    with ExitStack() as servers:
        folder = Path(servers.enter_context(tempfile.TemporaryDirectory()))
        bootstrap, zookeeper = options.bootstrap, options.zookeeper
        if not bootstrap and options.input != "socket":
            bootstrap = servers.enter_context(running_broker(folder / "kafka")).bootstrap
        if not zookeeper and options.input == "kafka":
            zookeeper = servers.enter_context(running_zookeeper(folder / "zookeeper")).hosts
        run(outcome, options.seconds, bootstrap, zookeeper)
    print(json.dumps(asdict(outcome)))
    if not options.bars:
        return 0
    missed = outcome.missed()
    used = f"{outcome.throughput:.0f} of {outcome.capacity:.0f} records a second"
    print(f"{outcome.input}: {'; '.join(missed) or f'total delay up to {outcome.latest:.1f} intervals, {used}'}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
