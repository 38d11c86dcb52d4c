"""QueryDriver: a driver of a query, as Spark runs it. Its tasks spool numbers, and a process beside it commits with the real writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import Encoded
from kstream_kafka.errors import KafkaError
from kstream_kafka.structured.sink_options import SinkOptions
from kstream_kafka.structured.spools import SpooledPartition
from kstream_kafka.structured.writers import KafkaStreamWriter
from pyspark.sql.types import StringType, StructField, StructType

from kstream.errors import OutputChangedError
from tests.kstream_kafka.sink.simulation.clients import SimulatedKafka
from tests.kstream_kafka.sink.simulation.turns import SimulatedProcess, Turns
from tests.simulator.strands import Killed

from .checkpoint import QueryCheckpoint, QueryPlace

QUERY, TARGET, PREFIX = "q", "totals", "k"
PARAMS = KafkaParams.parse({"bootstrap.servers": "simulated:9092"})
SCHEMA = StructType([StructField("value", StringType())])


@dataclass(frozen=True)
class Code:
    """What the user gives a driver.

    Attributes:
        tag: what the code adds to each value.
        keeps: whether what is written stands, whatever the batch has now.
    """

    tag: str = ""
    keeps: bool = False


class QueryEndedError(Exception):
    """Spark ends the query: its logs have another driver, or the process of the commits has died."""


@dataclass
class SimulatedSpool(SpooledPartition):
    """What a task has of a batch, without files and without Arrow."""

    records: list[Encoded] = field(default_factory=list[Encoded])

    def read(self, place: Any) -> Iterator[Any]:
        return iter(self.records)


class QueryDriver:
    """One driver, from its start to its end."""

    def __init__(
        self,
        turns: Turns,
        kafka: SimulatedKafka,
        checkpoint: QueryCheckpoint,
        code: Code,
        number: int,
        judge: Callable[[QueryDriver, int, Exception, bool], None],
    ) -> None:
        """
        Args:
            turns, kafka, checkpoint, code: what it runs on.
            number: tells it from other drivers.
            judge: judge(driver, batch, error, is_stale) hears of each error, and whether a leader of yesterday has answered before it.
        """
        self._turns, self._kafka, self._judge = turns, kafka, judge
        self.checkpoint, self.code = checkpoint, code
        self.is_left = False
        """Whether the user has started another driver because this one seemed dead."""
        self.ended_by: Exception | None = None
        """The error that has ended this driver."""
        self.spooled: dict[int, list[SimulatedSpool]] = {}
        """batch → all that tasks have spooled, also attempts that failed."""
        self.numbers: dict[int, list[int]] = {}
        """batch → what its tasks had at the last try."""
        self.process = turns.process(f"driver {number}", self._live)
        self.process.on_death = self._orphan
        self.commits = turns.process(f"commits {number}", lambda: None)
        options = SinkOptions(PARAMS, TARGET, keeps=code.keeps, prefix=PREFIX, checkpoint=QueryPlace(checkpoint, checkpoint.name))  # pyright: ignore
        self._writer = KafkaStreamWriter(options, SCHEMA)
        self._is_committed = False
        self._error: Exception | None = None

    @property
    def is_over(self) -> bool:
        return self.process.is_dead or not self._turns.is_alive(self.process)

    @property
    def was_refused(self) -> bool:
        return isinstance(self.ended_by, OutputChangedError)

    @property
    def processes(self) -> tuple[SimulatedProcess, SimulatedProcess]:
        return self.process, self.commits

    def _orphan(self) -> None:
        """The process of the commits ends soon after its driver, and not at once."""
        if self._turns.rng.random() < 0.5:
            self._turns.kill(self.commits, "dies with its driver")

    # -- its life

    def _live(self) -> None:
        try:
            self._run()
            self._turns.note("has written everything")
        except (OutputChangedError, KafkaError, QueryEndedError) as e:
            self.ended_by = e
            self._turns.note(f"ends: {type(e).__name__}: {str(e)[:200]}")

    def _run(self) -> None:
        checkpoint = self.checkpoint
        self._turns.point(f"reads {checkpoint.name}")
        batch = checkpoint.newest
        if batch in checkpoint.commits or batch < 0:
            batch += 1
        while batch in checkpoint.ends or max(checkpoint.ends.values(), default=0) < checkpoint.numbers:
            if batch not in checkpoint.ends or batch in checkpoint.commits:
                self._plan(batch)
            self._commit(batch, self._tasks(batch))
            self._turns.point(f"stores the commit of batch {batch}")
            if batch in checkpoint.commits:
                raise QueryEndedError("another driver has committed the batch")
            checkpoint.commits.add(batch)
            batch += 1

    def _plan(self, batch: int) -> None:
        self._turns.point("plans")
        begin = max(self.checkpoint.ends.values(), default=0)
        end = min(self.checkpoint.numbers, begin + self._turns.rng.choice([0, 1, 2, 3, 5]))
        if not self.checkpoint.add(batch, end):
            raise QueryEndedError("another driver has planned the batch")
        self._turns.note(f"batch {batch} has numbers {begin}..{end}")

    def _tasks(self, batch: int) -> list[SimulatedSpool]:
        """Return what the tasks have spooled: each try divides the numbers anew. A task that fails has spooled, too."""
        rng, numbers = self._turns.rng, list(self.checkpoint.range_of(batch))
        self.numbers[batch] = list(numbers)
        rng.shuffle(numbers)
        count = rng.randint(1, 3)
        spools, kept = self.spooled.setdefault(batch, []), list[SimulatedSpool]()
        for task in range(count):
            records: list[Encoded] = [(TARGET, None, b"%d %s" % (n, self.code.tag.encode()), (), n % 2, None) for n in numbers[task::count]]
            for attempt in range(2 if rng.random() < 0.2 else 1):
                spools.append(SimulatedSpool(QUERY, batch, len(records), 20 * len(records), records=records))
                kept = [*kept[:task], spools[-1]]
                self._turns.point(f"task {task}.{attempt} of batch {batch} spools {len(records)}")
        return kept

    # -- the process of the commits

    def _commit(self, batch: int, messages: list[SimulatedSpool]) -> None:
        """Let the process of the commits commit a batch, and wait for it."""
        self._is_committed, self._error = False, None
        stale = self._kafka.stale_answers
        if self.commits.is_dead:
            raise QueryEndedError("the process of the commits is gone")
        self._turns.strands.spawn("commits", self.commits.number, lambda: self._committing(batch, messages))
        self._turns.wait(lambda: self._is_committed or self._error is not None or self.commits.is_dead)
        if self._error is not None:
            self._judge(self, batch, self._error, self._kafka.stale_answers > stale)
            raise self._error
        if not self._is_committed:
            raise QueryEndedError("the process of the commits has died")

    def _committing(self, batch: int, messages: list[SimulatedSpool]) -> None:
        self._turns.point(f"commits batch {batch} in {len(messages)} spools")
        try:
            self._writer.commit(messages, batch)
            self._is_committed = True
        except Killed:
            raise
        except (OutputChangedError, KafkaError) as e:
            self._turns.note(f"commit of batch {batch}: {type(e).__name__}: {str(e)[:200]}")
            self._error = e
