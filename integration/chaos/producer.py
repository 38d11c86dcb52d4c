"""The feed of a chaos campaign: so many records a second until SIGTERM, then a line of JSON that says what the brokers have taken.

Arguments: bootstrap, topic, partitions, records a second. Record n of partition p is "p:n" and must lie at offset n: idempotence keeps
each once and in order whatever leaders do, as long as no delivery fails. The line: `acked` per partition, `failed` deliveries in
words, `misplaced` records (acknowledged at another offset), `longest_gap_s` between two acknowledgements.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer

TICK_S = 0.05
_FLUSH_S = 120


@contextmanager
def producing(bootstrap: str, topic: str, partitions: int, rate: int) -> Iterator[dict[str, Any]]:
    """The producer as a process, for the length of the block. Yields what it tells at its end: empty until then."""
    command = [sys.executable, "-m", "integration.chaos.producer", bootstrap, topic, str(partitions), str(rate)]
    told: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as producer:
        try:
            yield told
            producer.terminate()
            told |= json.loads(producer.communicate(timeout=_FLUSH_S + 60)[0])
        finally:
            producer.kill()


def breaches_of(told: dict[str, Any]) -> list[str]:
    """A verdict on a stream is worth something only if the feed was exact: no failed delivery, each record at its offset."""
    return [f"the producer reports errors: {told}"] if told["left"] or told["failed"] or told["misplaced"] else []


@dataclass
class Feed:
    """Counts what it sends and what comes back."""

    topic: str
    sent: list[int]
    acked: list[int]
    failed: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    longest_gap_s: float = 0.0
    heard: float | None = None

    def send(self, producer: Producer, partition: int) -> None:
        number = self.sent[partition]
        self.sent[partition] += 1
        while True:
            try:
                producer.produce(self.topic, f"{partition}:{number}", f"key-{partition}", partition, on_delivery=self.delivered)
                return
            except BufferError:
                producer.poll(0.1)

    def delivered(self, error: Any, message: Any) -> None:
        now = time.monotonic()
        if error is not None:
            self.failed.append(f"{message.value()}: {error}")
            return
        self.longest_gap_s = max(self.longest_gap_s, now - (self.heard or now))
        self.heard = now
        self.acked[message.partition()] += 1
        if message.value() != f"{message.partition()}:{message.offset()}".encode():
            self.misplaced.append(f"{message.value()} at {message.partition()}:{message.offset()}")


def main() -> None:
    bootstrap, topic, partitions, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stop.append(number))
    producer = Producer({
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 10,
        "message.timeout.ms": 300_000, "queue.buffering.max.messages": 2_000_000, "log_level": 0,
    })  # fmt: skip
    feed = Feed(topic, [0] * partitions, [0] * partitions)
    began = time.monotonic()
    while not stop:
        due = int((time.monotonic() - began) * rate / partitions)
        for partition in range(partitions):
            while feed.sent[partition] < due:
                feed.send(producer, partition)
        producer.poll(TICK_S)
    left = producer.flush(_FLUSH_S)
    told = {"acked": feed.acked, "left": left, "failed": feed.failed[:20], "misplaced": feed.misplaced[:20]}
    print(json.dumps({**told, "longest_gap_s": round(feed.longest_gap_s, 1)}), flush=True)


if __name__ == "__main__":
    main()
