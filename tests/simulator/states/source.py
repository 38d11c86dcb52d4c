"""StatesSource: numbers that a job keeps in states and windows, on executors that are lost, with writes and jobs that are slow or fail.

Each schedule draws the shape of its job: which streams it has, how long windows and checkpoint intervals are, how long lineage may be.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kstream.batch_time import Duration, Time
from kstream.clock import Clock
from kstream.dstream import DStream
from kstream.dstream.input_dstream import InputDStream
from kstream.dstream.node import DStreamNode
from kstream.dstream.state_spec import StateSpec
from kstream.dstream.stateful_dstream import StatefulDStream
from kstream.dstream.transformed_dstreams import ForEachDStream
from kstream.errors import StorageError
from kstream.storage import FileStore
from tests.simulator.faults import Faults
from tests.simulator.history import History
from tests.simulator.host import SimulatedHost
from tests.simulator.source import JobSurroundings, NumberInput, NumberSource, Surroundings
from tests.simulator.states.application import Application
from tests.simulator.states.checks import KEYS, Reading, Shape, TaskError, violations
from tests.simulator.states.files import SimulatedStateFiles
from tests.simulator.states.rdds import SimulatedRDD
from tests.simulator.states.state_rdds import SimulatedStateRDDs

if TYPE_CHECKING:
    from kstream.dstream.ports import StreamHost

INTERVAL_MS = 1000
LONGEST_LINEAGES = (4, 6, 10)
"""In batches. The thirty of the product are longer than most schedules."""


class StatesSource(NumberSource):
    """See the module. `readings`: what the outputs have read; `task_errors`: the errors of tasks; `hindered`: how often
    the write of a state failed, or an output: its batch writes none until a later try."""

    def __init__(self, rng: random.Random, clock: Clock) -> None:
        super().__init__(rng, clock)
        self._rng = rng
        self.intervals = range(8, 45)
        self.shape = Shape.drawn(rng)
        self._longest_lineage = rng.choice(LONGEST_LINEAGES)
        self._interval_of_states = rng.choice([2, 3, 4])
        self._partitions, self._executors = rng.choice([2, 3]), rng.choice([2, 3])
        self._slow_writes = self._slow_jobs = self._failing_writes = False
        self._sparks: list[tuple[Application, JobSurroundings]] = []
        self.readings: list[Reading] = []
        self.task_errors: list[TaskError] = []
        self.hindered = 0

    def faults(self, drawn: Faults, rng: random.Random) -> Faults:
        """More happens to executors, writes and jobs, and less to drivers: a backlog takes time to grow."""
        calm = rng.random() < 0.5
        return replace(
            drawn,
            outside=rng.choice([0.0, 0.3, 0.6, 0.9]),
            crash=drawn.crash * (0.1 if calm else 0.5),
            second=0.0 if calm else drawn.second,
            write=drawn.write * rng.choice([0.0, 0.3, 1.0]),
        )

    # -- a driver

    def make_input(self, host: StreamHost, surroundings: Surroundings) -> InputDStream:
        return _Input(host, self, surroundings)

    def make_job(self, host: SimulatedHost, stream: InputDStream, surroundings: JobSurroundings) -> Callable[[FileStore, int], Any]:
        spark = Application(
            self._rng, self._partitions, self._executors, surroundings.pause, lambda error: self._task_failed(surroundings, error)
        )
        self._sparks.append((spark, surroundings))
        host.use_spark(spark, SimulatedStateRDDs(spark))
        for name, node in self._streams(stream):
            host.graph.add_output_stream(ForEachDStream(node, self._output(name, spark, surroundings)))
        for state in host.graph.active_states():
            self._shorten(state)
        return lambda _store, epoch: SimulatedStateFiles(
            spark, surroundings.store(), epoch, lambda: self._before_write(surroundings), self._hinder, self._nonce
        )

    def _nonce(self) -> str:
        return f"{self._rng.getrandbits(64):016x}"

    def _hinder(self) -> None:
        self.hindered += 1

    def _streams(self, numbers: DStream[int]) -> list[tuple[str, DStreamNode]]:
        """The streams of the shape, by name."""
        shape, step = self.shape, Duration(INTERVAL_MS)
        pairs = numbers.map(lambda n: (n % KEYS, n))
        states = pairs.updateStateByKey(lambda new, old: (old or ()) + tuple(new))
        made: list[tuple[str, DStream[Any]]] = [("state", states)]
        if shape.states_window:
            made.append(("states in a window", states.window(step * shape.states_window)))
        if shape.totals_window:
            lists = pairs.mapValues(lambda n: (n,))
            made.append(("totals", lists.reduceByKeyAndWindow(_added, _taken_out, step * shape.totals_window, filterFunc=_has_any)))
        if shape.window:
            made.append(("window", numbers.window(step * shape.window)))
        if shape.mapped:
            mapped = pairs.mapWithState(StateSpec.function(_counted))
            made += [("mapped", mapped), ("snapshots", mapped.stateSnapshots())]
        return [(name, stream._node) for name, stream in made]

    def _shorten(self, state: StatefulDStream) -> None:
        state.longest_lineage = self._longest_lineage
        state.checkpoint_duration = state.slide_duration * self._interval_of_states

    def _output(self, name: str, spark: Application, surroundings: JobSurroundings) -> Callable[[Time, Any], None]:
        def read(time: Time, rdd: SimulatedRDD) -> None:
            """The user's function: reads all partitions, or the first, or none."""
            partitions = self._rng.choice([range(rdd.partitions), range(rdd.partitions), range(1), range(0)])
            surroundings.point(f"{name} of {time.milliseconds} is read, {len(partitions)} of {rdd.partitions} partitions")
            found = rdd.glom_collect(partitions)
            is_whole = len(partitions) == rdd.partitions
            self.readings.append(Reading(surroundings.number, time.milliseconds, name, [r for part in found for r in part], is_whole))
            if self._slow_jobs:
                surroundings.sleep(self._rng.randrange(INTERVAL_MS // 2, 2 * INTERVAL_MS))
            try:
                surroundings.work()
            except Exception:
                self._hinder()
                raise

        return read

    def _before_write(self, surroundings: JobSurroundings) -> None:
        if self._slow_writes:
            surroundings.sleep(self._rng.randrange(1, INTERVAL_MS))
        if self._failing_writes:
            raise StorageError("the simulated store refuses states", path="simulated://checkpoint/state")

    def _task_failed(self, surroundings: JobSurroundings, error: Exception) -> None:
        surroundings.note(f"a task fails: {type(error).__name__}: {str(error)[:120]}")
        if not surroundings.is_succeeded():
            self.task_errors.append(TaskError(surroundings.number, error))

    def records(self, rdd: Any, surroundings: Surroundings) -> Sequence[Hashable]:
        return rdd.collect()

    # -- what happens

    def act(self, rng: random.Random, bad: bool) -> str:
        sparks = [spark for spark, surroundings in self._sparks if not surroundings.over]
        if not bad or not sparks:
            return super().act(rng, bad)
        spark = sparks[rng.randrange(len(sparks))]
        what = rng.choice(["lose", "lose", "lose two", "push out", "slow writes", "failing writes", "slow jobs", "slow jobs"])
        if what == "lose":
            return spark.lose_executor()
        if what == "lose two":
            return f"{spark.lose_executor()}, {spark.lose_executor()}"
        if what == "push out":
            return spark.push_out()
        flag = "_" + what.replace(" ", "_")
        setattr(self, flag, not getattr(self, flag))
        return f"{what}: {'from now on' if getattr(self, flag) else 'no more'}"

    def heal(self) -> None:
        self._slow_writes = self._failing_writes = self._slow_jobs = False

    # -- what must hold

    def check(self, history: History) -> list[str]:
        hindered = self.hindered + sum(attempt.error is not None for attempt in history.attempts)
        cuts = sum(spark.local_checkpoints for spark, _ in self._sparks)
        return super().check(history) + violations(history, self.shape, self.readings, self.task_errors, cuts, hindered)


class _Input(NumberInput):
    """Its RDDs are those of the driver's Application."""

    def rdd(self, time: Time, plan: Any) -> Any:
        return self.ssc.sparkContext.parallelize(range(plan["from"], plan["until"]))


def _added(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return one + other


def _taken_out(total: tuple[int, ...], gone: tuple[int, ...]) -> tuple[int, ...]:
    """What is not there cannot be taken out: it is shown as its negative."""
    left = list(total)
    for n in gone:
        if n in left:
            left.remove(n)
        else:
            left.append(-n)
    return tuple(left)


def _has_any(pair: tuple[int, tuple[int, ...]]) -> bool:
    return bool(pair[1])


def _counted(key: int, n: int, state: Any) -> tuple[int, int, int]:
    count = (state.getOption() or 0) + 1
    state.update(count)
    return key, n, count
