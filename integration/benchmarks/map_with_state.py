"""The bars on mapWithState: 10,000 keys of a million against a full scan of the million, and against 10,000 keys of 100,000.

    python -m integration.benchmarks.map_with_state [--batches N] [--keys N] [--touched N]

One context on local[2] runs two streams of states, one with ten times the keys of the other. A manual clock asks for one batch at a
time; in each both streams have records of as many random keys, and some batches are done by full scans, too. What is timed is the
Spark job of each, from the output operation's call of `count` to its answer; generating the batch is the same for both streams.

The full scan is updateStateByKey as pyspark has it: states and data are partitioned alike and cogrouped, and the function is called for
every key. Without a bar another one is measured, the barest that can be written: one pass over (key, (state, time)) pairs that only looks
at the time of keys without data, calls the function for the others, and gives all of them out.

The last bar compares the last batches with the first: what a batch costs must not grow. The states are written every ten batches, as
they are unless told otherwise, in the thread that ends the batch: not in what is timed, but in the way of the next one.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from pyspark import RDD
from pyspark.serializers import BatchedSerializer, CPickleSerializer

from integration.benchmarks import stopwatch
from integration.benchmarks.harness import parser_of
from integration.benchmarks.ticked import Ticked
from kstream import State, StateSpec, StreamingContext
from kstream.batch import JsonPlan
from kstream.batch_time import Time
from kstream.dstream import InputDStream
from kstream.rdd.stable_hash import partition_of
from kstream.spark.worker_rdd import WorkerRDD

CORES = 2
WARM_UP = 5
BARE_EVERY, SCAN_EVERY = 4, 10
"""How often the batch is done by the barest pass, and by updateStateByKey, which takes long."""


def key_of(number: int) -> str:
    return f"user-{number:08d}"


def records(keys: int, touched: int, batch: int, index: int) -> Iterator[tuple[str, float]]:
    """One of CORES partitions of a batch: random keys, the same whenever it is computed."""
    chance = random.Random(batch * CORES + index)
    return ((key_of(chance.randrange(keys)), 1.0) for _ in range(touched // CORES))


def count_and_sum(key: str, value: float | None, state: State) -> tuple[str, int]:
    """Every record updates its key's state."""
    count, total = state.getOption() or (0, 0.0)
    state.update((count + 1, total + (value or 0.0)))
    return key, count + 1


class RandomKeys(InputDStream[JsonPlan]):
    """Records of so many random keys a batch, made by the workers."""

    no_recipe_reason = "a benchmark is not restored"

    def __init__(self, ssc: StreamingContext, keys: int, touched: int) -> None:
        super().__init__(ssc)
        self._keys, self._touched, self._batches = keys, touched, 0

    def plan(self, time: Time) -> JsonPlan:
        return JsonPlan({"batch": self._batches + 1}, self._touched)

    def planned(self, time: Time, plan: JsonPlan) -> None:
        self._batches = plan["batch"]

    def rdd(self, time: Time, plan: JsonPlan) -> RDD[Any]:
        return WorkerRDD(self.ssc.sparkContext, CORES, partial(records, self._keys, self._touched, plan["batch"]))


class FullScan:
    """The same batches by updateStateByKey."""

    def __init__(self, pairs: RDD[Any]) -> None:
        self._batches = 0
        self._states: Any = pairs.partitionBy(CORES).persist()
        self._states.localCheckpoint()
        self._states.count()

    def batch(self, data: RDD[Any]) -> None:
        """Every SCAN_EVERY-th call does the batch."""
        self._batches += 1
        if self._batches % SCAN_EVERY:
            return
        grouped: Any = self._states.cogroup(data.partitionBy(CORES), CORES)
        assert grouped.getNumPartitions() == CORES
        old, self._states = self._states, grouped.mapValues(updated).persist()
        self._states.localCheckpoint()
        self._states.count()
        old.unpersist()


def updated(both: tuple[Iterable[Any], Iterable[float]]) -> tuple[int, float]:
    states, values = list(both[0]), list(both[1])
    count, total = states[0] if states else (0, 0.0)
    return count + len(values), total + sum(values)


class BarePass:
    """The same batches by one pass over an ordinary RDD of pairs."""

    def __init__(self, pairs: RDD[Any]) -> None:
        self._batches = 0
        self._states: Any = pairs.mapValues(lambda state: (state, 0)).partitionBy(CORES, partition_of).persist()
        self._states.localCheckpoint()
        self._states.count()

    def batch(self, data: RDD[Any]) -> None:
        """Every BARE_EVERY-th call does the batch: data and states go through one worker, the data first."""
        self._batches += 1
        if self._batches % BARE_EVERY:
            return
        keyed: Any = data.partitionBy(CORES, partition_of)
        both: RDD[Any] = RDD(keyed._jrdd.union(self._states._jrdd), data.ctx, BatchedSerializer(CPickleSerializer()))
        assert both.getNumPartitions() == CORES
        old, self._states = self._states, both.mapPartitions(partial(scan, self._batches), preservesPartitioning=True).persist()
        self._states.localCheckpoint()
        self._states.count()
        old.unpersist()


def scan(now: int, records: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    values: dict[Any, list[float]] = {}
    idle_before = now - 1_000_000_000
    for key, value in records:
        if type(value) is float:
            values.setdefault(key, []).append(value)
        elif key in values:
            state = State(value[0])
            for new in values[key]:
                count_and_sum(key, new, state)
            yield key, (state.get(), now)
        elif value[1] >= idle_before:
            yield key, value


class Bench:
    """The two streams: `few` keys, and `many`, whose batches are also done by a full scan."""

    def __init__(self, directory: str, keys: int, touched: int) -> None:
        self.ticked = Ticked("map_with_state", directory, CORES, {"spark.driver.memory": "3g"})
        self.ssc = self.ticked.ssc
        self._touched = touched
        self._stream("few", keys // 10)
        many = self._stream("many", keys)
        stopwatch.jobs["scan"] = FullScan(self._initial(keys)).batch
        stopwatch.jobs["bare"] = BarePass(self._initial(keys)).batch
        many.foreachRDD(partial(stopwatch.run, "scan"))
        many.foreachRDD(partial(stopwatch.run, "bare"))

    def _initial(self, keys: int) -> RDD[Any]:
        return self.ssc.sparkContext.range(keys, numSlices=8).map(lambda number: (key_of(number), (0, 0.0)))

    def _stream(self, side: str, keys: int) -> InputDStream:
        source = RandomKeys(self.ssc, keys, self._touched)
        spec = StateSpec.function(count_and_sum).initialState(self._initial(keys)).timeout(1_000_000).numPartitions(CORES)
        mapped = source.mapWithState(spec)
        stopwatch.jobs[side] = partial(counted, self._touched)
        mapped.foreachRDD(partial(stopwatch.run, side))
        return source

    def run(self, batches: int) -> None:
        """The first batch makes the states of all keys; then WARM_UP more; none of them counts."""
        self.ticked.run(1 + WARM_UP + batches, timeout=900)


def counted(expected: int, rdd: RDD[Any]) -> None:
    found = rdd.count()
    assert found == expected, f"{found} records instead of {expected}"


def report() -> bool:
    """Prints the ratios of the medians; whether all bars are met."""
    all_many, all_few = stopwatch.seconds["many"][1 + WARM_UP :], stopwatch.seconds["few"][1 + WARM_UP :]
    many, few = statistics.median(all_many), statistics.median(all_few)
    scan_ = statistics.median(stopwatch.seconds["scan"][SCAN_EVERY - 1 :: SCAN_EVERY])
    bare = statistics.median(stopwatch.seconds["bare"][BARE_EVERY - 1 :: BARE_EVERY])
    part = max(1, len(all_many) // 4)
    first, last = statistics.median(all_many[:part]), statistics.median(all_many[-part:])
    bars = (
        ("touched keys of many / a full scan of many", many, scan_, 0.2),
        ("touched keys of many / as many of a tenth", many, few, 2.0),
        ("last quarter of the batches / first quarter", last, first, 1.3),
    )
    for name, ours, other, limit in bars:
        verdict = "ok  " if ours / other <= limit else "MISS"
        print(f"{verdict} {name:46} {ours / other:5.2f} (bar ≤ {limit})   {ours * 1000:.0f} ms against {other * 1000:.0f}")
    print(f"     touched keys of many / the barest pass {many / bare:14.2f}   {many * 1000:.0f} ms against {bare * 1000:.0f}")
    return all(ours / other <= limit for _, ours, other, limit in bars)


def main() -> int:
    options = parser_of(__doc__, batches=100, keys=1_000_000, touched=10_000).parse_args()
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(directory, options.keys, options.touched)
        bench.run(options.batches)
    return 0 if report() else 1


if __name__ == "__main__":
    sys.exit(main())
