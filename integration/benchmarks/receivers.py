"""The bars on receivers: a socket's lines, and Kafka's records, into blocks against bare loops that read them.

    python -m integration.benchmarks.receivers [--records N] [--rounds N] [--source socket|kafka]

A server in a process of its own sends the same lines to whoever connects, as fast as they are taken. The bare loop reads and counts them
in a process of its own. The receiver runs on local[2] as users run it: in a Spark task, its blocks in the store of its executor, with a
log in a checkpoint on the local disk, too; nothing is computed meanwhile. Each is timed from its connection to the last line: of the
receiver until the driver knows the block. They take turns; the bars are on medians.

Kafka's receiver is createStream's, which writes its offsets to ZooKeeper; the bare loop consumes the same four partitions. Both are timed
from the first records that came.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from kstream_kafka import KafkaUtils
from kstream_kafka.client.params import bulk

from integration.benchmarks.harness import parser_of, running_spark
from integration.kafka_broker import KafkaBroker, running_broker
from integration.zookeeper_server import ZooKeeper, running_zookeeper
from kstream import StreamingContext
from kstream.dstream import ReceiverInputDStream
from kstream.receiver import lines_of
from kstream.wal.settings import WRITE_AHEAD_LOG

LINE = "x" * 99 + "\n"
CHUNK_LINES = 10_000
BARE = "bare loop"
PARTITIONS = 4
FRESH = multiprocessing.get_context("spawn")  # a fork would take along, and one day destroy, servers whose threads it has not
BARS = {"receiver": 0.5, "receiver, logged": 0.25}


def serve(server: socket.socket, records: int, connected: Any) -> None:
    """Each connection gets all records; `connected` says when the last one came."""
    chunk = (LINE * CHUNK_LINES).encode()
    while True:
        connection, _ = server.accept()
        connected.value = time.monotonic()
        with connection:
            try:
                for _ in range(records // CHUNK_LINES):
                    connection.sendall(chunk)
                connection.recv(1)  # until the reader hangs up
            except OSError:
                pass


def bare(port: int, records: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as file:
        for count, _line in enumerate(lines_of(file), 1):
            if count == records:
                return


class SocketSides:
    def __init__(self, records: int) -> None:
        self.records = records
        self.connected = FRESH.Value("d", 0.0)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._process = FRESH.Process(target=serve, args=(self._server, records, self.connected), daemon=True)
        self._process.start()

    def bare(self) -> float:
        reader = FRESH.Process(target=bare, args=(self.port, self.records))
        reader.start()
        reader.join()
        return time.monotonic() - self.connected.value

    def receiver(self, sc: Any, logged: bool) -> float:
        with streaming(sc, logged) as ssc:
            stream: Any = ssc.socketTextStream("127.0.0.1", self.port)
            stream.foreachRDD(lambda _rdd: None)
            before = self.connected.value
            ssc.start()
            wait(lambda: self.connected.value > before)
            wait(lambda: count_of(stream) >= self.records)
            return time.monotonic() - self.connected.value

    def close(self) -> None:
        self._process.kill()


def bare_consumer(bootstrap: str, topic: str, records: int, seconds: Any) -> None:
    config = bulk({"bootstrap.servers": bootstrap, "group.id": "bare", "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen, began = len(consumer.consume(1, 30)), time.monotonic()
    while seen < records:
        seen += len([(m.key(), m.value()) for m in consumer.consume(10_000, 1.0)])
    seconds.value = time.monotonic() - began
    consumer.close()


class KafkaSides:
    def __init__(self, kafka: KafkaBroker, zookeeper: ZooKeeper, records: int) -> None:
        self.kafka, self.zookeeper, self.records = kafka, zookeeper, records
        kafka.create_topic("numbers", PARTITIONS)
        kafka.produce("numbers", ((None, b"x" * 100, n % PARTITIONS) for n in range(records)))

    def bare(self) -> float:
        seconds = FRESH.Value("d", 0.0)
        reader = FRESH.Process(target=bare_consumer, args=(self.kafka.bootstrap, "numbers", self.records, seconds))
        reader.start()
        reader.join()
        return seconds.value

    def receiver(self, sc: Any, logged: bool) -> float:
        """Of all records, as long as those after the first block took."""
        with streaming(sc, logged) as ssc:
            params = {"bootstrap.servers": self.kafka.bootstrap, "auto.offset.reset": "smallest"}
            group = f"g-{uuid.uuid4().hex[:8]}"
            stream: Any = KafkaUtils.createStream(ssc, self.zookeeper.hosts, group, {"numbers": 1}, params)
            stream.foreachRDD(lambda _rdd: None)
            received = next(s for s in ssc._graph.input_streams if isinstance(s, ReceiverInputDStream))
            ssc.start()
            wait(lambda: count_of(received) > 0)
            first, began = count_of(received), time.monotonic()
            wait(lambda: count_of(received) >= self.records)
            return (time.monotonic() - began) * self.records / max(1, self.records - first)


@contextmanager
def sides_of(source: str, records: int) -> Generator[SocketSides | KafkaSides]:
    if source == "socket":
        sides = SocketSides(records)
        yield sides
        sides.close()
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with running_broker(place / "kafka") as kafka, running_zookeeper(place / "zookeeper") as zookeeper:
            yield KafkaSides(kafka, zookeeper, records // 2)


def count_of(stream: Any) -> int:
    return sum(block.num_records for block in stream.services.received_blocks.unallocated(stream.id))


@contextmanager
def streaming(sc: Any, logged: bool) -> Generator[StreamingContext]:
    """A context whose first batch is far off."""
    with tempfile.TemporaryDirectory() as folder:
        ssc = StreamingContext(sc, 3600)
        ssc._settings.override(WRITE_AHEAD_LOG, str(logged).lower())
        if logged:
            ssc.checkpoint(folder)
        try:
            yield ssc
        finally:
            ssc.stop(stopSparkContext=False)


def wait(reached: Callable[[], bool]) -> None:
    while not reached():
        time.sleep(0.005)


def measured(sides: SocketSides | KafkaSides, sc: Any, rounds: int) -> dict[str, float]:
    """Millions of records a second."""
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        seconds.setdefault(BARE, []).append(sides.bare())
        for name, logged in (("receiver", False), ("receiver, logged", True)):
            seconds.setdefault(name, []).append(sides.receiver(sc, logged))
    return {name: sides.records / statistics.median(times) / 1e6 for name, times in seconds.items()}


def told(source: str, speeds: dict[str, float]) -> int:
    """Prints the ratios; how many bars are missed."""
    missed = 0
    for name, speed in speeds.items():
        ratio, bar = speed / speeds[BARE], BARS.get(name)
        missed += bar is not None and ratio < bar
        print(f"{source} {name:>17}: {speed:.2f} M/s" + ("" if bar is None else f", {ratio:.2f} x the bare loop (bar {bar})"), flush=True)
    return missed


def main() -> int:
    parser = parser_of(__doc__, records=3_000_000, rounds=5)
    parser.add_argument("--source", choices=["socket", "kafka"], action="append")
    arguments = parser.parse_args()
    missed = 0
    with running_spark("receivers", {"spark.streaming.kstream.blockStore.memory": "2g"}) as sc:
        for source in arguments.source or ["socket", "kafka"]:
            with sides_of(source, arguments.records) as sides:
                missed += told(source, measured(sides, sc, arguments.rounds))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
