"""A program: a KafkaPlanner plans, is restored, and survives a downtime. Run where there is no pyspark, it prints what it has planned."""

from __future__ import annotations

import json
import sys
from typing import Any

from kstream.batch_time import Time
from tests.kstream_kafka.planner import Planner

T = ("t", 0)


def planned_and_restored() -> tuple[list[Any], dict[str, Any]]:
    """The ranges of a first driver's batch and of the next driver's; and the newest plan."""
    first = Planner({T: (0, 3)}, auto_offset_reset="earliest").start()
    stored = first.store()
    second = Planner({T: (0, 5), ("t", 1): (0, 2)}).restore(stored).start()
    newest = second.store()
    return [stored["ranges"], newest["ranges"]], newest


def after_a_downtime(stored: dict[str, Any]) -> list[Any]:
    """The missed times with records, and the ranges of a driver that was away for three batches."""
    third = Planner({T: (0, 8), ("t", 1): (0, 2)}, by_timestamp=True).restore(stored)
    third.client.times = {T: [(0, 0), (500, 5), (1500, 6), (2500, 7)]}
    third.clock.advance(3050)
    missed = third.start().planner.missed([Time(1000), Time(2000), Time(3000)])
    return [[time.milliseconds for time in missed or ()], *(third.batch()[0] for _ in range(3))]


if __name__ == "__main__":
    ranges, newest = planned_and_restored()
    loaded = sorted({name.partition(".")[0] for name in sys.modules} & {"pyspark", "py4j", "confluent_kafka", "fsspec"})
    print(json.dumps({"planned": ranges, "downtime": after_a_downtime(newest), "loaded": loaded}))
