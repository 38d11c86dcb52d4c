"""State on Spark with the checkpoint directory of the SparkContext alone: short lineages, few files, little memory, the same results."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD, SparkContext

from kstream import DStream, State, StateSpec
from tests.streams import Stream, numbers, total

pytestmark = pytest.mark.timeout(900)
BATCHES = 45
INTERVAL = 3
"""Batches from one checkpoint to the next."""


def count(_key: int, value: int | None, state: State) -> int:
    state.update((value or 0) + (state.get() if state.exists() else 0))
    return state.get()


def chained(stream: DStream) -> DStream:
    """A state under a state, both checkpointed in every batch: Spark by itself would checkpoint the upper one only, ever again."""
    return stream.updateStateByKey(total, 1).checkpoint(1).updateStateByKey(total, 1).checkpoint(1)


STATES: dict[str, tuple[Callable[[DStream], DStream], list[Any]]] = {
    "updateStateByKey": (lambda s: s.updateStateByKey(total, 1).checkpoint(INTERVAL), [(0, BATCHES)]),
    "a state under a state": (chained, [(0, BATCHES * (BATCHES + 1) // 2)]),
    "mapWithState": (lambda s: s.mapWithState(StateSpec.function(count).numPartitions(1)).checkpoint(INTERVAL), [BATCHES]),
    "an inverse window": (lambda s: s.reduceByKeyAndWindow(operator.add, operator.sub, 4, 1, 1).checkpoint(INTERVAL), [(0, 4)]),
    "countByWindow": (lambda s: s.countByWindow(4, 1), [4]),
    "a window over a state": (
        lambda s: s.updateStateByKey(total, 1).checkpoint(INTERVAL).window(3, 1).map(operator.itemgetter(1)),
        [BATCHES - 2, BATCHES - 1, BATCHES],
    ),
}


class Seen:
    """What an output was handed, and how long its lineage was after its job."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.depths: list[int] = []

    def __call__(self, rdd: RDD[Any]) -> None:
        self.records = sorted(rdd.collect())
        text = rdd.toDebugString()
        assert text is not None
        self.depths.append(len(text.splitlines()))


def test_the_lineage_of_states_is_cut_and_old_files_and_blocks_are_removed(sc: SparkContext, tmp_path: Path) -> None:
    sc.setCheckpointDir(str(tmp_path))
    stream = Stream(sc)
    ones = numbers(stream.ssc, 1, lambda _number: (0, 1))
    seen = {name: Seen() for name in STATES}
    for name, (build, _) in STATES.items():
        build(ones).foreachRDD(seen[name])
    stream.start()
    files: list[int] = []
    blocks: list[int] = []
    for _ in range(BATCHES):
        stream.tick()
        stream.ssc._engine._generator._cleaner.drain(60)  # pyright: ignore
        files.append(sum(1 for _ in tmp_path.glob("*/rdd-*")))
        blocks.append(len(sc._jsc.getPersistentRDDs()))  # pyright: ignore
    stream.stop()
    stream.ssc.awaitTermination(1)
    for name, (_, expected) in STATES.items():
        assert seen[name].records == expected, name
    for name in set(STATES) - {"countByWindow"}:  # which is checkpointed every ten batches
        assert max(seen[name].depths[-15:]) <= max(seen[name].depths[:15]), name
    depths = seen["countByWindow"].depths
    assert max(depths[30:]) <= max(depths[:30])
    for numbers_of in (files, blocks):  # clean-up is in the background and may come a batch late
        assert 0 < max(numbers_of[-10:]) <= max(numbers_of[15:30]) + 2 * len(STATES)


def test_the_lineage_of_states_is_cut_though_every_output_fails(sc: SparkContext, tmp_path: Path) -> None:
    """In the driver before it reads the state, and in the tasks. The checkpoint interval is longer than the test."""
    stream = Stream(sc)
    stream.ssc.checkpoint(str(tmp_path))
    ones = numbers(stream.ssc, 1, lambda _number: (0, 1))
    names = ("updateStateByKey", "mapWithState")
    states = {name: STATES[name][0](ones).checkpoint(1000) for name in names}
    depths: dict[str, list[int]] = {name: [] for name in names}
    records: dict[str, list[Any]] = {}
    away = True

    def output(name: str, rdd: RDD[Any]) -> None:
        text = rdd.toDebugString()
        assert text is not None
        depths[name].append(len(text.splitlines()))
        if away:
            raise ValueError("the sink is away")
        records[name] = rdd.collect()

    for name, state in states.items():
        state.foreachRDD(lambda rdd, name=name: output(name, rdd))
    stream.start()
    for number in range(BATCHES):
        away = number < BATCHES - 2
        stream.tick()
    stream.stop()
    assert records == {name: STATES[name][1] for name in names}
    assert all(max(found[-15:]) <= max(found[:32]) for found in depths.values()), depths
