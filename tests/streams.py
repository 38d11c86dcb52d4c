"""Running a StreamingContext on a real SparkContext, batch by batch, with a clock moved by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from pyspark import RDD, SparkContext

from kstream import DStream, StreamingContext, StreamingListener
from kstream.batch import JsonPlan
from kstream.batch_time import Time
from kstream.dstream import InputDStream
from kstream.dstream.recipe import Recipe
from kstream.testing import ManualClock
from tests.harness import INTERVAL, START

Build = Callable[[StreamingContext, DStream], DStream]
PATIENCE = 60.0


class BatchCounter(StreamingListener):
    """Counts completed batches and lets a test wait for them."""

    def __init__(self) -> None:
        self.completed: list[int] = []
        self.infos: list[Any] = []
        self._changed = threading.Condition()

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        with self._changed:
            self.infos.append(batchCompleted.batchInfo())
            self.completed.append(batchCompleted.batchInfo().batchTime().milliseconds())
            self._changed.notify_all()

    def wait(self, count: int, patience: float = PATIENCE) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.completed) >= count, patience), f"{self.completed}"


class Stream:
    """A context on a ManualClock with a counter of its batches."""

    def __init__(self, sc: SparkContext, clock: ManualClock | None = None, context: StreamingContext | None = None) -> None:
        self.clock = clock or ManualClock(START)
        self.ssc = context or StreamingContext(sc, 1, clock=self.clock)
        self.counter = BatchCounter()
        self.ssc.addStreamingListener(self.counter)

    def start(self) -> Stream:
        self.ssc.start()
        return self

    def tick(self, wait: bool = True) -> None:
        before = len(self.counter.completed)
        self.clock.wait_for_waiters()
        self.clock.advance(INTERVAL)
        if wait:
            self.counter.wait(before + 1)

    def stop(self, graceful: bool = True) -> None:
        self.ssc.stop(stopSparkContext=False, stopGraceFully=graceful)


def run(sc: SparkContext, batches: Sequence[Any], build: Build, *, partitions: int = 2, checkpoint: object = None) -> list[list[Any]]:
    """What `build`'s stream had in each of its batches. The first error of the stream is raised."""
    return run_all(sc, batches, {"": build}, partitions=partitions, checkpoint=checkpoint)[""]


def run_all(
    sc: SparkContext, batches: Sequence[Any], builds: Mapping[str, Build], *, partitions: int = 2, checkpoint: object = None
) -> dict[str, list[list[Any]]]:
    """The same for several streams over one input, in one context: name → its batches. Streams with state need a `checkpoint` directory."""
    stream = Stream(sc)
    if checkpoint is not None:
        stream.ssc.checkpoint(str(checkpoint))
    rdds = [batch if isinstance(batch, RDD) else sc.parallelize(batch, partitions) for batch in batches]
    source = stream.ssc.queueStream(rdds)
    collected: dict[str, list[list[Any]]] = {name: [] for name in builds}
    for name, build in builds.items():
        build(stream.ssc, source).foreachRDD(lambda rdd, name=name: collected[name].append(rdd.collect()))
    stream.start()
    for _ in batches:
        stream.tick(wait=False)
    stream.clock.wait_for_waiters()
    stream.stop()
    stream.ssc.awaitTermination(1)
    return collected


class NumbersInput(InputDStream[JsonPlan]):
    """A restorable input: batch after batch the next `size` numbers, each through the user's function."""

    made: ClassVar[int] = 0

    def __init__(self, ssc: Any, size: int, f: Callable[[int], Any]) -> None:
        super().__init__(ssc)
        NumbersInput.made += 1
        self.size, self.f, self.cursor = size, f, 0

    def plan(self, time: Time) -> JsonPlan:
        return JsonPlan({"from": self.cursor, "until": self.cursor + self.size}, self.size)

    def planned(self, time: Time, plan: JsonPlan) -> None:
        self.cursor = plan["until"]

    def rdd(self, time: Time, plan: JsonPlan) -> Any:
        return self.ssc.sparkContext.parallelize(range(plan["from"], plan["until"]), 2).map(self.f)

    def recipe(self) -> Recipe:
        return Recipe("numbers-input", {"size": self.size}, {"f": self.f})


def numbers(ssc: StreamingContext, size: int = 2, f: Callable[[int], Any] = lambda x: x) -> DStream:
    stream = NumbersInput(ssc, size, f)
    stream.register_recipe()
    return stream


def refusing_to_start(ssc: StreamingContext) -> DStream:
    """Numbers of a source whose start fails with an OSError."""

    def refuse(services: Any) -> None:
        raise OSError("no source")

    stream = numbers(ssc)
    node: Any = stream._node
    node.start = refuse
    return stream


def numbers_connector(_name: str) -> Any:
    """In place of `connectors.load`: restores NumbersInput only."""
    return SimpleNamespace(restore_input=lambda ssc, recipe: numbers(ssc, recipe.args["size"], recipe.functions["f"]))


def total(values: list[int], state: int | None) -> int:
    return sum(values) + (state or 0)


def life(clock: ManualClock, path: str, setup_func: Callable[[], StreamingContext], ticks: int) -> StreamingContext:
    ssc = StreamingContext.getOrCreate(path, setup_func)
    stream = Stream(ssc.sparkContext, clock, ssc).start()
    for _ in range(ticks):
        stream.tick()
    stream.stop()
    return ssc
