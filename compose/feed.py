"""Prints orders as lines of JSON at a steady rate, without end: `python feed.py 50 | kstream produce orders --bootstrap kafka:19092`."""

from __future__ import annotations

import random
import sys
import time

from kstream_kafka.demo.order_feed import orders


def main(rate: float) -> None:
    now = time.time()
    seed = random.randrange(2**32)  # each start has orders of its own
    for number, order in enumerate(orders(seed, int(now * 1000), rate), 1):
        print(order.to_json().decode(), flush=True)
        time.sleep(max(0.0, now + number / rate - time.time()))


if __name__ == "__main__":
    main(float(sys.argv[1]))
