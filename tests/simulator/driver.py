"""SimulatedDriver: one life of one driver – the real Engine on strands – from its start to its stop or death."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kstream.batch import Job, PlannedInput
from kstream.batch.plan import with_kind
from kstream.batch_time import Duration, Time
from kstream.checkpoint import names
from kstream.checkpoint.reader import PlanKey
from kstream.context.engine import Engine, EngineCallbacks, EngineServices, SparkServices
from kstream.context.engine_opener import EngineOpener
from kstream.dstream.input_dstream import InputDStream
from kstream.dstream.state_files import StateFiles
from kstream.dstream.transformed_dstreams import ForEachDStream
from kstream.errors import FencedError, KStreamError
from kstream.listener import StreamingListenerBus
from tests.simulator.agreement import of_views, plans_of, with_the_log
from tests.simulator.history import Attempt, Moved
from tests.simulator.host import SimulatedEnvironment, SimulatedHost
from tests.simulator.runtime import SimulatedClock, SimulatedRuntime
from tests.simulator.source import JobSource
from tests.simulator.store import StoreView
from tests.simulator.strands import Strand

if TYPE_CHECKING:
    from tests.simulator.schedule import Schedule


def no_state_files(_store: object, _epoch: int) -> StateFiles:
    raise AssertionError("the graph has no state")


class JobFault(Exception):
    """The user's function failed, by the seed."""


class SimulatedDriver:
    """`state`: starting, running, stopping, stopped, dead. Frozen drivers take no step, whatever their state."""

    def __init__(self, schedule: Schedule, number: int, conf: Mapping[str, str], interval_ms: int, remember_ms: int, skew_ms: int) -> None:
        self.schedule = schedule
        self.number = number
        self.state = "starting"
        self.frozen = False
        self.fenced = False
        self.refused = False
        self.has_reported = False
        """Whether it has reported an error, such as that of a batch without retries left."""
        self._graceful = False
        self._data: dict[Time, Mapping[str, Any]] = {}
        self._let_in_at: dict[Time, tuple[int, int]] = {}
        self._known: set[PlanKey] = set()
        """The plans of the batches of which its lifecycle has had a record."""
        self.clock = SimulatedClock(schedule.steps, skew_ms)
        self._runtime = SimulatedRuntime(schedule.steps, number)
        self._stop = self._runtime.event()
        host = SimulatedHost(conf, interval_ms)
        self.input = schedule.source.make_input(host, self)
        self._watch(self.input)
        host.graph.add_output_stream(ForEachDStream(self.input, self._output))
        source = schedule.source
        states = source.make_job(host, self.input, self) if isinstance(source, JobSource) else no_state_files
        if remember_ms:
            host.graph.remember(Duration(remember_ms))
        store = self.store()
        self._opener = EngineOpener(EngineServices(
            host.settings, host.graph, self.clock, StreamingListenerBus(self._runtime), schedule.wrap_store(store),
            SparkServices(SimulatedEnvironment(self._let_in), states), EngineCallbacks(self._on_error, self._on_fenced), self._runtime,
        ))  # fmt: skip
        self.engine: Engine | None = None
        """None until its checkpoint is open."""

    @property
    def over(self) -> bool:
        return self.state in ("stopped", "dead")

    @property
    def name(self) -> str:
        return f"driver {self.number}"

    # -- its main thread

    def start(self) -> None:
        self.schedule.steps.strands.spawn("main", self.number, self._live)

    def _live(self) -> None:
        graceful = False
        try:
            self.engine = self._opener.open()
            self.engine.start()
            self.note("started")
            self.state = "running"
            self._stop.wait()
            graceful = self._graceful
        except Exception as e:
            self.refused = self.schedule.source.refuses(e)
            self.schedule.history.trouble.append(f"could not start: {self.said(e)}")
            self.note(f"could not start: {self.said(e)}")
        self.state = "stopping"
        if self.engine is not None:
            self.engine.stop(graceful, 20.0 if graceful else 1.0)
        self.state = "stopped"
        self.note("stopped")

    def ask_to_stop(self, graceful: bool) -> None:
        self._graceful = graceful
        self._stop.set()

    def die(self) -> None:
        """From here on it takes no step; what it sent may still arrive."""
        self.state = "dead"
        self.frozen = False
        self.schedule.steps.strands.kill(self.number)

    # -- what the engine calls

    def _on_error(self, message: str, error: BaseException) -> None:
        if isinstance(error, FencedError):
            self._fenced()
        self.has_reported = True
        if not self.over:
            text = f"{message}: {self.said(error)}"
            self.schedule.history.trouble.append(text)
            self.note(text)

    def _on_fenced(self, error: BaseException) -> None:
        self._fenced()
        self.note("is fenced")

    def _fenced(self) -> None:
        self.fenced = True
        self.schedule.history.fenced.setdefault(self.number, self.schedule.history.next_step())

    def _let_in(self, job: Job) -> None:
        """The job's thread has looked, where it must, and goes on to run it. Only the jobs of the first output are noted."""
        if job.output_op_id:
            return
        self._let_in_at[job.time] = (self.schedule.history.next_step(), self.schedule.steps.monotonic)

    def _output(self, time: Time, rdd: Any) -> None:
        """The user's function: reads all records, may fail, may take long."""
        history = self.schedule.history
        data = self._data.get(time, {})
        attempt = Attempt(history.next_step(), self.number, time.milliseconds, data, *self._let_in_at[time])
        history.attempts.append(attempt)
        self.point(f"job of {time.milliseconds} begins")
        try:
            attempt.read = tuple(self.schedule.source.records(rdd, self))
            self.work()
        except Exception as e:
            attempt.error = self.said(e)
            raise
        attempt.finished_step = history.next_step()
        self.point(f"job of {time.milliseconds} ends, {len(attempt.read)} records")

    def _watch(self, stream: InputDStream) -> None:
        """Notes every move of the cursors, and which data each batch has."""
        planned, remember_plan = stream.planned, stream.remember_plan

        def watched(time: Time, plan: PlannedInput) -> None:
            history = self.schedule.history
            history.moves.append(Moved(history.next_step(), self.number, time.milliseconds, dict(with_kind(plan.encode()))))
            planned(time, plan)

        def remember(time: Time, plan: PlannedInput) -> None:
            self._data[time] = with_kind(plan.encode())
            remember_plan(time, plan)

        stream.planned, stream.remember_plan = watched, remember

    # -- for inputs and jobs (JobSurroundings)

    def pause(self) -> None:
        self.schedule.steps.point()

    def work(self) -> None:
        schedule = self.schedule
        if schedule.chance(schedule.faults.slow_job):
            self.sleep(schedule.rng.randrange(1, 4 * schedule.interval_ms))
        if schedule.chance(schedule.faults.job):
            raise JobFault("the user's function failed")

    def store(self) -> StoreView:
        return StoreView(self.schedule.store, self.number, self.schedule.steps.point, self.note)

    def is_succeeded(self) -> bool:
        own = 0 if self.engine is None else self.engine.epoch
        epochs = [epoch for name in self.schedule.store.files if (epoch := names.parse_epoch(name)) is not None]
        return self.over or self.fenced or own < max(epochs, default=0)

    def check_agreement(self) -> None:
        """Note where the lifecycle, its views and the log disagree. Of a driver that has a successor the log says nothing."""
        if self.engine is None:  # it has no batch yet
            return
        history, store, lifecycle = self.schedule.history, self.schedule.store, self.engine.lifecycle
        wrong = of_views(lifecycle)
        unfinished = plans_of(lifecycle)
        self._known |= unfinished.keys()
        if not self.is_succeeded():
            completed = {done.time for done in history.done if done.driver == self.number}
            wrong += with_the_log(unfinished, self._known - unfinished.keys(), store.files, completed, history.given_up)
        history.disagreements += [f"{self.name}, step {history.steps}: {line}" for line in wrong if len(history.disagreements) < 10]

    def point(self, what: str) -> None:
        self.note(what)
        self.schedule.steps.point()

    def sleep(self, milliseconds: int) -> None:
        self.schedule.steps.sleep(milliseconds)

    def note(self, what: str) -> None:
        strand: Strand = self.schedule.steps.strands.current
        where = f" {strand.name}" if strand.owner == self.number else ""
        self.schedule.note(f"{self.name}{where}: {what}")

    @staticmethod
    def said(error: BaseException) -> str:
        """An error's class and first sentence."""
        message = error.message if isinstance(error, KStreamError) else str(error)
        return f"{type(error).__name__}: {message[:200]}"
