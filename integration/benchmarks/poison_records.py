"""The price of poison records: a KafkaRDD of records of which one of a hundred cannot be decoded, against the same without them.

    python -m integration.benchmarks.poison_records [--bootstrap HOST:PORT] [--records N] [--rounds N]

Without an address it starts a broker of its own. All sides decode JSON and filter in one task and count what is left: `clean` without an
errors policy, `clean, policy` under dead-letter, `poison, skip` with the poison records under skip, and `poison` under dead-letter, which
writes them to their topic.
The sides take turns, and medians are compared. Ends with status 1 when a bar is missed.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from kstream_kafka import KafkaRDD, OffsetRange, value_only
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.reader.dead_letter_writer import KafkaDeadLetters
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_reads import BatchReadContext, RangeReads

from integration.benchmarks.harness import add_bootstrap, make_topic, parser_of, running_kafka, running_spark, seconds_in_turns
from integration.kafka_handle import KafkaHandle
from kstream.worker.record_errors import ErrorLimit, ErrorsPolicy
from kstream.worker.record_failure import TRANSFORMATION, RecordStep
from kstream.worker.tolerant_operators import filter_records

BAR = 0.8
WARM_UP = 1
"""Rounds not counted: worker, consumer and producer start."""
SIDES = ("clean", "clean, policy", "poison, skip", "poison")
ORDER = json.dumps({"item": "tea", "total": 12, "note": "x" * 60}).encode()


def loads(raw: bytes) -> Any:
    return json.loads(raw)


def is_large(order: Any) -> bool:
    return order["total"] > 10


def plain_filter(records: Iterable[Any]) -> Iterator[Any]:
    return filter(is_large, records)


class Sides:
    """The sides, each a count of what is left."""

    def __init__(self, sc: Any, kafka: KafkaHandle, records: int) -> None:
        self._sc, self._records = sc, records
        self._clean = make_topic(kafka, ((None, ORDER) for _ in range(records)))
        self._poison = make_topic(kafka, ((None, ORDER if i % 100 else ORDER[:-2]) for i in range(records)))
        params = KafkaParams.parse({"bootstrap.servers": kafka.bootstrap})
        self._executor = params.executor()
        dead = KafkaDeadLetters(params.producer(), make_topic(kafka, []), "bench", 0)
        limit = ErrorLimit(0.1, records)
        skip, dead_letter = ErrorsPolicy(limit), ErrorsPolicy(limit, dead)
        self._policies = {"clean": None, "clean, policy": dead_letter, "poison, skip": skip, "poison": dead_letter}

    def count(self, side: str) -> None:
        topic = self._poison if "poison" in side else self._clean
        policy = self._policies[side]
        whole = OffsetRange(topic, 0, 0, self._records)
        reads = RangeReads.of([RangeSplit(whole)], self._executor, 120_000, read_context=BatchReadContext(errors=policy))
        rdd = KafkaRDD(self._sc, [whole], reads, Decoding(None, loads, value_only), exact_counts=False)
        large: Any = partial(filter_records, is_large, RecordStep(TRANSFORMATION, "filter", "is_large"))
        found, poison = rdd.mapPartitions(plain_filter if policy is None else large).count(), "poison" in side
        assert found == (self._records - self._records // 100 if poison else self._records), (side, found)


def main() -> int:
    parser = parser_of(__doc__, records=300_000, rounds=7)
    add_bootstrap(parser)
    options = parser.parse_args()
    with running_kafka(options.bootstrap) as (kafka, _), running_spark("poison", {"spark.master": "local[1]"}) as sc:
        sides = Sides(sc, kafka, options.records)
        seconds = seconds_in_turns({name: partial(sides.count, name) for name in SIDES}, options.rounds, WARM_UP)
    for side, times in seconds.items():
        print(f"{side:>14}: {options.records / statistics.median(times) / 1e6:.3f} M/s")
    missed = False
    for side in SIDES[1:]:
        ratio = statistics.median(a / b for a, b in zip(seconds["clean"], seconds[side], strict=True))
        missed = missed or ratio < BAR
        print(f"{side} / clean: {ratio:.2f} (bar: at least {BAR}) {'met' if ratio >= BAR else 'MISSED'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
