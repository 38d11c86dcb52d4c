"""updateStateByKey: what keys hold after each batch, and after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark import SparkContext

from kstream import StreamingContext
from kstream.storage import LocalFileStore
from kstream.testing import ManualClock
from tests.streams import Stream, numbers


def count(values: list[int], state: int | None) -> int:
    return sum(values) + (state or 0)


def life(sc: SparkContext, path: Path, clock: ManualClock, ticks: int, interval: int | None = 2) -> tuple[list[Any], Stream]:
    seen: list[Any] = []
    context = StreamingContext(sc, 1, clock=clock)
    context.checkpoint(str(path))
    state = numbers(context, 1).map(lambda _: ("a", 1)).updateStateByKey(count)
    if interval is not None:
        state.checkpoint(interval)
    state.foreachRDD(lambda rdd: seen.append(rdd.collect()))
    stream = Stream(sc, clock, context).start()
    for _ in range(ticks):
        stream.tick()
    return seen, stream


def test_a_state_goes_on_after_a_restart(sc: SparkContext, tmp_path: Path) -> None:
    """CP5: updateStateByKey counts 1..10 over a restart after 7."""
    clock = ManualClock(1_000_000)
    seen, stream = life(sc, tmp_path, clock, 7)
    stream.stop()
    assert seen == [[("a", n)] for n in range(1, 8)]
    assert LocalFileStore(tmp_path).list("state")
    seen, stream = life(sc, tmp_path, clock, 3)
    stream.stop()
    assert seen == [[("a", n)] for n in range(8, 11)]
