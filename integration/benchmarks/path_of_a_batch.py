"""How long the path of a batch is: the files, classes, functions and calls of the product that one batch passes.

    python -m integration.benchmarks.path_of_a_batch [--list] [--json FILE] [--compare FILE]

    one tick              of a direct Kafka stream on local[1], with a checkpoint on disk: from the tick to the end of its clean-up
    one received block    of one receiver on local[2], with a checkpoint on disk and no write-ahead log of what is received: from
                          `Receiver.store` through the batch that reads the block to the end of the clean-up

Both come after `--batches` others, so that nothing is counted that a stream does once. Plans are not kept for replays, so that each
clean-up removes one, and none packs many into the history. The Kafka is librdkafka's mock cluster.

Every thread of the driver counts, and every Python process that Spark starts: workers, the receiver's task, the block store. Files are
those of kstream and kstream_kafka, less kstream.testing. A file counts if a function in its text ran, a class if a method in its text did;
a file of dataclasses without methods does not count. A generator that goes on counts as a call, as Python's profiler has it, and so do
calls of threads that look now and then.

`--json` stores what was found. `--compare` takes such a file of earlier code, and ends with status 1 if a path passes more than 0.60 of the
files that it passed then.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kstream_kafka import KafkaUtils

from integration.benchmarks.harness import parser_of
from integration.benchmarks.recorded_calls import Passed, Recording
from integration.benchmarks.ticked import Ticked
from integration.reading import wait_until
from kstream import DStream, Receiver

LIMIT = 0.60
TICK = "one tick"
BLOCK = "one received block"
PARTITIONS = 2
CONF = {"spark.streaming.kstream.history": "0"}


class Lines(Receiver):
    """Stores the lines that the benchmark sends to its one connection."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def onStart(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def onStop(self) -> None: ...

    def _read(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port)) as connection, connection.makefile("r") as lines:
            for line in lines:
                self.store(line)


class Counted:
    """An output that collects each batch. `seen` is how many records the last one had."""

    def __init__(self, stream: DStream) -> None:
        self.seen = -1
        stream.foreachRDD(self._count)

    def _count(self, rdd: Any) -> None:
        self.seen = len(rdd.collect())

    def check(self, expected: int) -> None:
        if self.seen != expected:
            raise SystemExit(f"the batch had {self.seen} records, not {expected}")
        self.seen = -1


def one_tick(recording: Recording, directory: Path, batches: int) -> Passed:
    """Trace a batch of one record from each partition, after so many others."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "replaced", "log_level": 0})
    brokers = producer.list_topics(timeout=10).brokers.values()

    def produce() -> None:
        for partition in range(PARTITIONS):
            producer.produce("records", b"value", partition=partition)
        if producer.flush(30):
            raise SystemExit("the mock cluster does not take records")

    produce()
    ticked = Ticked("one tick", directory, cores=1, conf=CONF)
    servers = {"bootstrap.servers": ",".join(f"{broker.host}:{broker.port}" for broker in brokers)}
    counted = Counted(KafkaUtils.createDirectStream(ticked.ssc, ["records"], servers))
    ticked.ssc.start()

    def batch(tick: Callable[[], float]) -> None:
        produce()
        tick()
        counted.check(PARTITIONS)

    for _ in range(batches):
        batch(ticked.batch)
    recording.begin()
    batch(ticked.tick)
    passed = recording.end()
    ticked.ssc.stop()
    return passed


def one_received_block(recording: Recording, directory: Path, batches: int) -> Passed:
    """Trace a block of one record, and the batch that reads it, after so many others."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ticked = Ticked("one received block", directory, cores=2, conf=CONF)
        counted = Counted(ticked.ssc.receiverStream(Lines(server.getsockname()[1])))
        ticked.ssc.start()
        server.settimeout(60)
        connection, _ = server.accept()
        with connection:
            for _ in range(batches):
                connection.sendall(b"line\n")
                wait_until(ticked.waiting_blocks, "a block")
                ticked.batch()
                counted.check(1)
            recording.begin()
            connection.sendall(b"line\n")
            recording.wait_until_quiet()  # to ask for waiting blocks would be recorded, too
            ticked.tick()
            counted.check(1)
            passed = recording.end()
            ticked.ssc.stop()
            return passed


def table(paths: dict[str, Passed]) -> str:
    lines = [f"{'path':18} | files | classes | functions | calls"]
    for name, passed in paths.items():
        lines.append(f"{name:18} | {len(passed.files):5} | {len(passed.classes):7} | {len(passed.functions):9} | {passed.calls:5}")
    return "\n".join(lines)


def listed(paths: dict[str, Passed]) -> str:
    """The files of each path, and who passes them."""
    lines: list[str] = []
    for name, passed in paths.items():
        lines += ["", f"{name}:", *(f"  {file}  ({', '.join(where)})" for file, where in passed.files.items())]
    return "\n".join(lines)


def compared(paths: dict[str, Passed], earlier: dict[str, Any]) -> bool:
    """Print the ratios of files; whether all are within the limit."""
    good = True
    for name, passed in paths.items():
        now, before = len(passed.files), len(earlier[name]["files"])
        met = now <= LIMIT * before
        good = good and met
        print(f"{name}: {now} files against {before}, {now / before:.2f} (bar: <= {LIMIT:.2f}): {'met' if met else 'MISSED'}")
    return good


def main() -> int:
    parser = parser_of(__doc__, batches=10)
    parser.add_argument("--list", action="store_true", help="print the files of each path")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store what was found")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="what --json stored of earlier code")
    options = parser.parse_args()
    earlier = None if options.compare is None else json.loads(options.compare.read_text())
    with tempfile.TemporaryDirectory() as work:
        recorded = Path(work) / "recorded"
        recorded.mkdir()
        recording = Recording(recorded)
        paths = {
            TICK: one_tick(recording, Path(work) / "tick", options.batches),
            BLOCK: one_received_block(recording, Path(work) / "block", options.batches),
        }
    print(table(paths))
    if options.list:
        print(listed(paths))
    if options.json is not None:
        options.json.write_text(json.dumps({name: asdict(passed) for name, passed in paths.items()}, indent=1))
    return 0 if earlier is None or compared(paths, earlier) else 1


if __name__ == "__main__":
    sys.exit(main())
