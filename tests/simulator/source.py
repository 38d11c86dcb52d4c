"""Source: what a simulated stream reads. Fill it to put an input of your own through the schedules; `NumberSource` is the least of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from kstream.batch import JsonPlan
from kstream.batch_time import Time
from kstream.clock import Clock
from kstream.dstream.input_dstream import InputDStream
from kstream.storage import FileStore
from tests.simulator.faults import Faults
from tests.simulator.history import History
from tests.simulator.host import SimulatedHost

if TYPE_CHECKING:
    from kstream.dstream.ports import StreamHost


class Surroundings(Protocol):
    """What an input of one driver may use. Whatever else it waits for would stop the world."""

    @property
    def clock(self) -> Clock: ...

    def point(self, what: str) -> None:
        """Call it where a real input would ask the outside: others may run here, and the driver may die. Writes a line."""
        ...

    def sleep(self, milliseconds: int) -> None:
        """Lets simulated time pass."""
        ...


class Source(Protocol):
    """The outside of one schedule: made anew for each, outlives every driver. All randomness must come from the `rng` given."""

    @property
    def conf(self) -> Mapping[str, str]:
        """Settings of every driver, besides those that the schedule draws."""
        ...

    def make_input(self, host: StreamHost, surroundings: Surroundings) -> InputDStream:
        """The input of a new driver. Its `rdd` returns what `records` understands."""
        ...

    def records(self, rdd: Any, surroundings: Surroundings) -> Sequence[Hashable]:
        """What a job reads of an RDD: one value a record, equal only for the same record. Raises what a task would."""
        ...

    def act(self, rng: random.Random, bad: bool) -> str:
        """Something happens outside: records come, or, if `bad`, something else. Returns a line that says what."""
        ...

    def heal(self) -> None:
        """From now on nothing bad happens, and what can be mended is."""
        ...

    def refuses(self, error: Exception) -> bool:
        """Whether a driver is right not to start, again and again, with this error: only a person can decide what is to be done."""
        ...

    def check(self, history: History) -> list[str]:
        """What is wrong with the records, at the end, one line each; see `invariants` for what is checked besides."""
        ...


class JobSurroundings(Surroundings, Protocol):
    """What the job of one driver may use besides."""

    number: int
    """The driver's."""

    @property
    def over(self) -> bool:
        """Whether the driver is dead, or has stopped."""
        ...

    def note(self, what: str) -> None:
        """Writes a line."""
        ...

    def pause(self) -> None:
        """As `point`, without a line."""
        ...

    def work(self) -> None:
        """What an output function does besides reading: it may take long, and may fail."""
        ...

    def store(self) -> FileStore:
        """The checkpoint's store, for the tasks of this driver."""
        ...

    def is_succeeded(self) -> bool:
        """Whether a later driver has taken over, or this one is dead: it may miss what its successor has removed."""
        ...


@runtime_checkable
class JobSource(Source, Protocol):
    """A Source whose drivers do more than read their input: streams, outputs and a Spark of its own."""

    intervals: range
    """For how many batch intervals the world acts."""

    def faults(self, drawn: Faults, rng: random.Random) -> Faults:
        """What may go wrong, from what a schedule of another source would have drawn."""
        ...

    def make_job(self, host: SimulatedHost, stream: InputDStream, surroundings: JobSurroundings) -> Callable[[FileStore, int], Any]:
        """Adds the outputs of a new driver. Returns the maker of the writer of state, as `SparkServices.state_files`."""
        ...


MakeSource = Callable[[random.Random, Clock], Source]
"""Made anew for each schedule, of its rng and of the world's wall clock."""


class NumberSource:
    """A growing list of numbers; a plan is the half-open range [from, until) of it."""

    def __init__(self, rng: random.Random, clock: Clock) -> None:
        self.conf: Mapping[str, str] = {}
        self.length = rng.randrange(5)
        self.most = rng.choice([3, 1000])

    def make_input(self, host: StreamHost, surroundings: Surroundings) -> InputDStream:
        return NumberInput(host, self, surroundings)

    def records(self, rdd: Any, surroundings: Surroundings) -> Sequence[Hashable]:
        return rdd

    def act(self, rng: random.Random, bad: bool) -> str:
        count = rng.randint(1, 5)
        self.length += count
        return f"{count} records come, {self.length} in all"

    def heal(self) -> None:
        """Nothing bad ever happens here."""

    def refuses(self, error: Exception) -> bool:
        return False

    def check(self, history: History) -> list[str]:
        """Plans that stand follow one another without a gap. (What was planned and never read is checked for every source.)"""
        ran = sorted({a.time: a.data for a in history.attempts}.items())
        return [f"batch {t} begins at {b['from']}, the one before ends at {a['until']}" for (_, a), (t, b) in pairwise(ran)
                if a["until"] != b["from"]]  # fmt: skip


class NumberInput(InputDStream[JsonPlan]):
    """Reads a NumberSource."""

    def __init__(self, host: StreamHost, source: NumberSource, surroundings: Surroundings) -> None:
        super().__init__(host)
        self._source, self._surroundings = source, surroundings
        self._cursor = 0

    def starting_point(self) -> JsonPlan:
        return JsonPlan({"from": self._cursor, "until": self._cursor})

    def plan(self, time: Time) -> JsonPlan:
        self._surroundings.point("how many are there?")
        until = min(self._source.length, self._cursor + self._source.most)
        return JsonPlan({"from": self._cursor, "until": until}, until - self._cursor)

    def planned(self, time: Time, plan: JsonPlan) -> None:
        self._cursor = plan["until"]

    def skipped_between(self, before: JsonPlan, after: JsonPlan) -> Sequence[str]:
        return [f"[{before['until']}, {after['from']})"] if before["until"] < after["from"] else ()

    def rdd(self, time: Time, plan: JsonPlan) -> Any:
        return range(plan["from"], plan["until"])
