"""How far back a window that goes by an inverse function looks. No JVM."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from kstream.batch_time import Duration, Time
from kstream.dstream import ForEachDStream
from kstream.dstream.base import node_of
from kstream.dstream.node import in_order
from kstream.dstream.stateful_dstream import oldest_required_batches
from kstream.dstream.windowed_dstreams import ReducedWindowedDStream
from tests.fakes import FakeHost, FakeRDD
from tests.harness import LogInput

ZERO = Time(0)
NOW = Time(60_000)


def windowed(window: int, slide: int) -> ReducedWindowedDStream:
    host = FakeHost({})
    stream = node_of(LogInput(host, []).reduceByKeyAndWindow(operator.add, operator.sub, window, slide, 1))
    assert isinstance(stream, ReducedWindowedDStream)
    host.graph.add_output_stream(ForEachDStream(stream, lambda _time, _rdd: None))
    host.graph.initialize(ZERO)
    return stream


@pytest.mark.parametrize(("window", "slide"), [(3, 1), (4, 2), (2, 2), (9, 3)])
def test_the_oldest_batch_that_is_subtracted_is_as_far_back_as_the_stream_says_it_looks(
    monkeypatch: pytest.MonkeyPatch, window: int, slide: int
) -> None:
    """What is said here decides which plans a clean-up leaves: were one batch less said, it would be gone at a restart."""
    stream = windowed(window, slide)
    before, asked = NOW - Duration(slide * 1000), list[Time]()
    monkeypatch.setattr(stream, "previous", lambda _time: FakeRDD([]))
    monkeypatch.setattr(stream, "previous_time", lambda _time: before)
    monkeypatch.setattr(stream, "placed", lambda _time, make: None)
    monkeypatch.setattr(type(stream.ssc), "sparkContext", Spark(), raising=False)
    parent = stream.dependencies[0]
    monkeypatch.setattr(parent, "slice_rdds", lambda begin, end: asked.append(begin) or [])
    stream.compute(NOW)
    assert min(asked) == stream.reaches_back_to(NOW)
    assert oldest_required_batches(in_order([stream]), NOW, lambda _stream, time: before)[parent] == min(asked)


class Spark:
    def emptyRDD(self) -> Any:
        return FakeRDD([])


def test_the_reach_is_the_window_and_the_slide_less_one_batch() -> None:
    stream = windowed(4, 2)
    assert stream.reaches_back_to(NOW) == NOW - Duration(5000)  # (T-6, T-4] is subtracted at T: the batches T-5 and T-4
