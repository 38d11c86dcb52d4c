"""A Kafka receiver without a stream: in this process, or in one of its own that a test may kill. Blocks go to a list, or to a file.

`python -m integration.group_consumer SETTINGS FILE` runs one until it is killed; each block it stores is a line of FILE: the keys.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kstream_kafka.zookeeper import KafkaReceiver, ReliableKafkaReceiver
from kstream_kafka.zookeeper.receiver_settings import ReceiverSettings

from kstream.clock import SystemClock
from kstream.receiver import Receiver
from kstream.receiver.block_generator import BlockGenerator, BlockGeneratorListener, BlockIds
from kstream.receiver.receiver import ReceiverNews, ReceiverSupervisor

PATIENCE = 30.0


class Blocks:
    """A BlockSink that keeps what it is given, block by block."""

    def __init__(self, keep: Callable[[list[Any]], None], interval_ms: int = 50) -> None:
        self._keep = keep
        self._interval = interval_ms
        self._ids = BlockIds(0)
        self._made: list[BlockGenerator] = []

    def add(self, record: Any, /) -> None:
        raise AssertionError("a Kafka receiver stores no single records")

    def add_all(self, records: Iterable[Any], metadata: Any, /) -> None:
        self._keep(list(records))

    def add_bytes(self, pickled: bytes, metadata: Any, /) -> None:
        raise AssertionError("a Kafka receiver pickles nothing")

    def new_generator(self, listener: BlockGeneratorListener, /) -> BlockGenerator:
        self._made.append(BlockGenerator(listener, self._ids, SystemClock(), self._interval))
        return self._made[-1]

    def close(self) -> None:
        for generator in self._made:
            generator.stop()


class Consumer:
    """A receiver under a real supervisor. `keys` is what has been stored, in order; a test may replace `keep` by what raises."""

    def __init__(self, receiver: Receiver, delay_ms: int = 100) -> None:
        self.keys: list[str] = []
        self.news: list[ReceiverNews] = []
        self.keep: Callable[[list[Any]], None] = lambda records: self.keys.extend(key.decode() for key, _ in records)
        self.receiver = receiver
        self._supervisor = ReceiverSupervisor(receiver, 0, Blocks(lambda r: self.keep(r)), SystemClock(), delay_ms, self.news.append)

    def start(self) -> Consumer:
        self._supervisor.start()
        return self

    def stop(self) -> None:
        assert self._supervisor.stop(PATIENCE)

    def wait_for(self, count: int) -> None:
        """Returns when so many different keys have been stored."""
        wait_until(lambda: len(set(self.keys)) >= count, lambda: f"{len(set(self.keys))} of {count} keys, news: {self.news}")


def wait_until(holds: Callable[[], Any], told: Callable[[], str] = lambda: "") -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, told()
        time.sleep(0.02)


def settings(quorum: str, group: str, topics: dict[str, int], bootstrap: str, **more: Any) -> ReceiverSettings:
    """From the first record on; sessions of a second, claims asked for four times a second."""
    given = {"bootstrap.servers": bootstrap, "auto.offset.reset": "smallest", "zookeeper.session.timeout.ms": 1500,
             "rebalance.backoff.ms": 250, "log_level": 0}  # fmt: skip
    return ReceiverSettings.parse(quorum, group, topics, {**given, **{name.replace("_", "."): value for name, value in more.items()}})


def reliable(*given: Any, **more: Any) -> Consumer:
    return Consumer(ReliableKafkaReceiver(settings(*given, **more)))


def plain(*given: Any, **more: Any) -> Consumer:
    return Consumer(KafkaReceiver(settings(*given, **more)))


def main(given: str, path: Path) -> None:
    consumer = reliable(*json.loads(given))
    with open(path, "a") as file:

        def keep(records: list[Any]) -> None:
            file.write(" ".join(key.decode() for key, _ in records) + "\n")
            file.flush()
            os.fsync(file.fileno())

        consumer.keep = keep
        consumer.start()
        threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
