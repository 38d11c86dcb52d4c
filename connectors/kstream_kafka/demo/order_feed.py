"""A plausible stream of orders, and a process that sends it to Kafka at a steady rate.

`orders(seed)` is pure and endless; a seed gives one sequence. The process `python -m kstream_kafka.demo.order_feed` sends it, and prints
the number of acknowledged orders as JSON lines. When its standard input closes, it writes the acknowledged orders to a file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kstream_kafka.demo.embedded_broker import AcknowledgedProducer

REGIONS = ("north", "south", "coast", "plains", "centre", "hills", "valley", "highlands")
"""librdkafka's default partitioner assigns two of these keys to each of four partitions."""

PRODUCTS = (
    ("espresso machine", 24_900),
    ("kettle", 3_490),
    ("toaster", 4_250),
    ("frying pan", 2_995),
    ("chef's knife", 5_900),
    ("cutting board", 1_890),
    ("teapot", 2_450),
    ("mug", 890),
    ("wine glass", 1_190),
    ("table lamp", 6_490),
    ("desk chair", 18_900),
    ("bookshelf", 12_900),
    ("blanket", 4_990),
    ("cushion", 1_690),
    ("picture frame", 1_250),
)
"""Names of products, with their usual prices in cents."""

CUSTOMERS = 20_000
LATE_MS = 2_000
REPORT_SECONDS = 0.25
FLUSH_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Order:
    """One order. `price_cents` is the price of one piece. `event_time_ms` is the time of the order, in ms since the epoch."""

    order_id: int
    customer: int
    product: str
    region: str
    quantity: int
    price_cents: int
    event_time_ms: int

    @property
    def total_cents(self) -> int:
        return self.quantity * self.price_cents

    def to_json(self) -> bytes:
        """Return the value of the record, about 150 bytes."""
        fields: dict[str, Any] = {
            "order_id": self.order_id,
            "customer": f"C{self.customer:05d}",
            "product": self.product,
            "region": self.region,
            "quantity": self.quantity,
            "price_cents": self.price_cents,
            "event_time": self.event_time_ms,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def orders(seed: int, begin_ms: int = 1_750_000_000_000, rate: float = 400.0) -> Iterator[Order]:
    """Yield orders without end. The same arguments give the same orders.

    Ids count from 1 without a gap. Some products and customers are far more common than others, and prices vary a little. One order in
    ten has an event time up to two seconds before its turn.

    Args:
        seed: the seed of the random numbers.
        begin_ms: the event time at which the orders begin.
        rate: orders per second of event time.
    """
    chance = random.Random(seed)
    weights = [1 / (rank + 2) for rank in range(len(PRODUCTS))]
    number = 0
    while True:
        number += 1
        product, usual = chance.choices(PRODUCTS, weights)[0]
        late = chance.randrange(LATE_MS) if chance.random() < 0.1 else 0
        yield Order(
            order_id=number,
            customer=int(CUSTOMERS * chance.random() ** 3) + 1,
            product=product,
            region=chance.choice(REGIONS),
            quantity=chance.choices((1, 2, 3, 4, 6, 12), (60, 20, 8, 6, 4, 2))[0],
            price_cents=round(usual * chance.uniform(0.9, 1.1)),
            event_time_ms=begin_ms + round(number * 1000 / rate) - late,
        )


class Acknowledged(NamedTuple):
    """An order that Kafka has, with its partition and offset."""

    order_id: int
    region: str
    total_cents: int
    partition: int
    offset: int


class OrderFeed:
    """Sends orders to a topic at a steady rate. After a delay it sends faster until it has caught up.

    Attributes:
        acknowledged: the orders that Kafka has, in the order of the acknowledgements.
        unanswered: the number of orders without an answer in time.
    """

    def __init__(self, bootstrap: str, topic: str, seed: int = 1, rate: float = 400.0, limit: int = 60_000) -> None:
        """Create the feed with its producer. Sends nothing.

        Args:
            bootstrap: the address of the broker.
            topic: the topic.
            seed: the seed of the orders.
            rate: orders per second.
            limit: the most orders in all, because the embedded broker drops the oldest records when it is full.
        """
        self._producer = AcknowledgedProducer(bootstrap)
        self._topic = topic
        self._seed, self._rate, self._limit = seed, rate, limit
        self.acknowledged: list[Acknowledged] = []
        self.unanswered = 0

    def run(self, stop: threading.Event) -> None:
        """Send until `stop` is set, then wait for the last answers, for FLUSH_SECONDS at most. Blocks.

        The answers are handled in this thread.
        """
        began = time.monotonic()
        upcoming = orders(self._seed, int(time.time() * 1000), self._rate)
        sent = 0
        while not stop.wait(0.01):
            due = min(self._limit, int((time.monotonic() - began) * self._rate))
            for _ in range(due - sent):
                self._send(next(upcoming))
            sent = max(sent, due)
            self._producer.serve()
        self.unanswered = self._producer.flush(FLUSH_SECONDS)

    def _send(self, order: Order) -> None:
        """Queue an order. Blocks while the queue is full.

        `acknowledged` gets the order later, in this thread. A refused order counts in `lost`.
        """

        def on_acknowledged(partition: int, offset: int) -> None:
            row = Acknowledged(order.order_id, order.region, order.total_cents, partition, offset)
            self.acknowledged.append(row)

        self._producer.send(self._topic, order.region.encode(), order.to_json(), on_acknowledged)

    @property
    def lost(self) -> int:
        """The number of orders that Kafka refused or did not answer. Kafka may have the latter."""
        return len(self._producer.refused) + self.unanswered


def main() -> None:
    """Run as the process of the feed: send until standard input closes, then write the acknowledged orders to the file. Blocks."""
    parser = argparse.ArgumentParser(prog="python -m kstream_kafka.demo.order_feed", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=400.0, help="orders a second")
    parser.add_argument("--limit", type=int, default=60_000, help="most orders in all")
    parser.add_argument("--truth", type=Path, required=True, help="file that gets every acknowledged order")
    given = parser.parse_args()
    feed = OrderFeed(given.bootstrap, given.topic, given.seed, given.rate, given.limit)
    stop, ended = threading.Event(), threading.Event()
    threading.Thread(target=_set_when_stdin_closes, args=(stop,), daemon=True).start()
    threading.Thread(target=_report, args=(feed, ended), daemon=True).start()
    feed.run(stop)
    ended.set()
    temporary = given.truth.with_suffix(".tmp")
    temporary.write_text(json.dumps(sorted(feed.acknowledged)))
    os.replace(temporary, given.truth)
    _print_line({"acknowledged": len(feed.acknowledged), "lost": feed.lost, "ended": True})


def _set_when_stdin_closes(stop: threading.Event) -> None:
    """Block until standard input closes, then set `stop`."""
    sys.stdin.read()
    stop.set()


def _report(feed: OrderFeed, ended: threading.Event) -> None:
    """Print the number of acknowledged orders every quarter of a second, until `ended` is set."""
    while not ended.wait(REPORT_SECONDS):
        _print_line({"acknowledged": len(feed.acknowledged)})


def _print_line(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
