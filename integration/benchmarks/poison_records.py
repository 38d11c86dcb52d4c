"""The price of poison records: a KafkaRDD of records of which one of a hundred cannot be decoded, against the same without them.

    python -m integration.benchmarks.poison_records [--bootstrap HOST:PORT] [--records N] [--rounds N]

Without an address it starts a broker of its own. All sides decode JSON and filter in one task and count what is left: `clean` without an
errors policy, `clean, policy` under dead-letter, `poison, skip` with the poison records under skip, and `poison` under dead-letter, which
writes them to their topic.
The sides take turns, and medians are compared. Ends with status 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kstream_kafka import KafkaRDD, OffsetRange, value_only
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.reader.dead_letter_writer import KafkaDeadLetters
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_reads import BatchReadContext, RangeReads
from pyspark import SparkConf

from integration.kafka_broker import running_broker
from integration.kafka_handle import KafkaAt
from kstream.spark.spark_context import make_spark_context
from kstream.worker.record_errors import ErrorLimit, ErrorsPolicy
from kstream.worker.record_failure import TRANSFORMATION, RecordStep
from kstream.worker.tolerant_operators import filter_records

BAR = 0.8
SIDES = ("clean", "clean, policy", "poison, skip", "poison")
ORDER = json.dumps({"item": "tea", "total": 12, "note": "x" * 60}).encode()


def loads(raw: bytes) -> Any:
    return json.loads(raw)


def is_large(order: Any) -> bool:
    return order["total"] > 10


def plain_filter(records: Iterable[Any]) -> Iterator[Any]:
    return filter(is_large, records)


def make_topic(bootstrap: str, records: int, poison_each: int) -> str:
    """A topic of so many records, each of which with such a number is poison; 0 for none."""
    topic = "poison-" + uuid.uuid4().hex[:8]
    kafka = KafkaAt(bootstrap)
    kafka.create_topic(topic)
    kafka.produce(topic, ((None, ORDER[:-2] if poison_each and i % poison_each == 0 else ORDER) for i in range(records)))
    return topic


class Sides:
    """The sides, each a count of what is left."""

    def __init__(self, sc: Any, bootstrap: str, records: int) -> None:
        self._sc, self._records = sc, records
        self._clean, self._poison = make_topic(bootstrap, records, 0), make_topic(bootstrap, records, 100)
        params = KafkaParams.parse({"bootstrap.servers": bootstrap})
        self._executor = params.executor()
        dead = KafkaDeadLetters(params.producer(), make_topic(bootstrap, 0, 0), "bench", 0)
        limit = ErrorLimit(0.1, records)
        skip, dead_letter = ErrorsPolicy(limit), ErrorsPolicy(limit, dead)
        self._policies = {"clean": None, "clean, policy": dead_letter, "poison, skip": skip, "poison": dead_letter}

    def count(self, side: str) -> int:
        topic = self._poison if "poison" in side else self._clean
        policy = self._policies[side]
        whole = OffsetRange(topic, 0, 0, self._records)
        reads = RangeReads.of([RangeSplit(whole)], self._executor, 120_000, read_context=BatchReadContext(errors=policy))
        rdd = KafkaRDD(self._sc, [whole], reads, Decoding(None, loads, value_only), exact_counts=False)
        large: Any = partial(filter_records, is_large, RecordStep(TRANSFORMATION, "filter", "is_large"))
        return rdd.mapPartitions(plain_filter if policy is None else large).count()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap")
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if options.bootstrap is not None:
        return run(options.bootstrap, options.records, options.rounds)
    with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory)) as broker:
        return run(broker.bootstrap, options.records, options.rounds)


def run(bootstrap: str, records: int, rounds: int) -> int:
    conf = SparkConf().setMaster("local[1]").setAppName("poison").set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
    sc = make_spark_context(conf.set("spark.ui.showConsoleProgress", "false"))
    sc.setLogLevel("ERROR")
    try:
        sides, seconds = Sides(sc, bootstrap, records), {name: list[float]() for name in SIDES}
        for number in range(rounds + 1):  # the first round warms up worker, consumer and producer
            for side, times in seconds.items():
                began = time.perf_counter()
                found = sides.count(side)
                assert found == (records - records // 100 if "poison" in side else records), (side, found)
                if number:
                    times.append(time.perf_counter() - began)
    finally:
        sc.stop()
    for side, times in seconds.items():
        print(f"{side:>14}: {records / statistics.median(times) / 1e6:.3f} M/s")
    missed = False
    for side in SIDES[1:]:
        ratio = statistics.median(a / b for a, b in zip(seconds["clean"], seconds[side], strict=True))
        missed = missed or ratio < BAR
        print(f"{side} / clean: {ratio:.2f} (bar: at least {BAR}) {'met' if ratio >= BAR else 'MISSED'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
