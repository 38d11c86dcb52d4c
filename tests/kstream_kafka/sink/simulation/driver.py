"""SinkDriver: a driver with the real KafkaOutput. It plans batches, runs them in order, and stores their completions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import KafkaConfigError, KafkaError
from kstream_kafka.sink.kafka_output import KafkaOutput
from kstream_kafka.sink.producer_record import Encoded

from kstream.batch import Json
from kstream.errors import FencedError, OutputChangedError
from kstream.output import OutputBatch

from .checkpoint import LogAtStart, PlannedBatch, SimulatedCheckpoint
from .clients import SimulatedKafka
from .tasks import SimulatedPartitions, TaskScheduler, UsersError
from .turns import Turns

TRIES = 3
"""So often a driver tries a batch before its user ends it."""
PARAMS = KafkaParams.parse({"bootstrap.servers": "simulated:9092"})


@dataclass(frozen=True)
class Application:
    """What the user gives a driver.

    Attributes:
        outputs: the names of the outputs, in their order.
        most_partitions: how many partitions a batch may have.
        other_partitions: so many more partitions batches have than planned: the code is another one.
        hashing: the hash seed.
        tag: what the code adds to each value.
        is_shuffled: whether the batches come from a shuffle.
        reports: whether an input reports on all records of a batch: then all partitions are computed.
    """

    outputs: tuple[str, ...]
    most_partitions: int
    other_partitions: int = 0
    hashing: int = 0
    tag: str = ""
    is_shuffled: bool = False
    reports: bool = False


class SinkDriver:
    """One driver, from its start to its end."""

    def __init__(
        self,
        turns: Turns,
        kafka: SimulatedKafka,
        checkpoint: SimulatedCheckpoint,
        application: Application,
        names: Sequence[str],
        number: int,
        judge: Callable[[SinkDriver, PlannedBatch, Exception, bool], None],
    ) -> None:
        """
        Args:
            turns, kafka, checkpoint, application: what it runs on.
            names: the outputs, in their order.
            number: tells it from other drivers.
            judge: judge(driver, plan, error, is_stale) hears of each refusal, and whether a leader of yesterday has answered before it.
        """
        self._turns, self._kafka = turns, kafka
        self.checkpoint, self.application = checkpoint, application
        self.names, self._judge = names, judge
        self.epoch = 0
        self.is_left = False
        """Whether the user has started another driver because this one seemed dead."""
        self.ended_by: Exception | None = None
        """The error that has ended this driver."""
        self.refusals = 0
        self.ids: set[str] = set()
        """The transactional ids of the batch that it tries."""
        self.outputs: list[KafkaOutput] = []
        self._late: list[tuple[PlannedBatch, dict[str, Json]]] = []
        """Completions that are not stored yet."""
        self.process = turns.process(f"driver {number}", self._live, hashing=application.hashing)
        self.process.on_death = self._orphan
        self.tasks = TaskScheduler(turns, self.process)

    @property
    def is_over(self) -> bool:
        return self.process.is_dead or not self._turns.is_alive(self.process)

    @property
    def was_refused(self) -> bool:
        return self.refusals > 0

    @property
    def knows_topic(self) -> bool:
        """Whether each output knows the id of the topic, or learns it when it reads the log."""
        return self.epoch == 0 or all(output._topic_id is not None for output in self.outputs)

    def _orphan(self) -> None:
        """Executors end soon after their driver, and not at once."""
        for process in self.tasks.running:
            if self._turns.rng.random() < 0.5:
                self._turns.kill(process, "dies with its driver")

    # -- its life

    def _live(self) -> None:
        try:
            self._run()
            self._turns.note("has written everything")
        except (FencedError, OutputChangedError, KafkaError, UsersError) as e:
            self.ended_by = e
            self._turns.note(f"ends: {type(e).__name__}")

    def _run(self) -> None:
        turns, checkpoint = self._turns, self.checkpoint
        turns.point(f"takes an epoch of {checkpoint.name}")
        self.epoch = checkpoint.take_epoch()
        turns.point(f"has epoch {self.epoch}, reads the log")
        log = checkpoint.read(self.epoch)
        self._restore(log)
        pending = log.pending
        turns.note(f"pending: {[plan.time.milliseconds for plan in pending]}")
        for plan in pending:
            self._batch(plan)
        while (plan := self._planned()) is not None:
            self._batch(plan)
        self._store_late()
        if self._late:
            raise UsersError("completions could not be stored")

    def _restore(self, log: LogAtStart) -> None:
        for name in self.names:
            output = KafkaOutput(name, PARAMS, "k", audit=False)
            output.restore(self.checkpoint.writer(self.epoch, log), log.outcomes.get(name))
            self.outputs.append(output)

    def _planned(self) -> PlannedBatch | None:
        """Plan the next batch, as far as there is one."""
        self._store_late()
        self._turns.point("plans")
        self._probe()
        plan = self.checkpoint.plan(self.epoch, self._turns.rng, self.application.most_partitions, self.application.is_shuffled)
        if plan is not None:
            self._turns.note(f"batch {plan.time.milliseconds} has numbers {plan.begin}..{plan.until} in {plan.num_partitions} partitions")
        return plan

    def _probe(self) -> None:
        """Look for a later driver. What comes after may come much later."""
        newest = self.checkpoint.epoch
        if newest > self.epoch:
            raise FencedError("another driver has started", path=self.checkpoint.name, epoch=self.epoch, newer_epoch=newest)

    def _batch(self, plan: PlannedBatch) -> None:
        """Try a batch until it is written. The last error ends the driver."""
        self._turns.point("probes")
        self._probe()
        for number in range(1, TRIES + 1):
            stale = self._kafka.stale_answers
            try:
                self._try(plan, number)
                break
            except (FencedError, OutputChangedError, KafkaError, UsersError) as e:
                if isinstance(e, (FencedError, OutputChangedError, KafkaConfigError)):
                    self.refusals += 1
                    self._judge(self, plan, e, self._kafka.stale_answers > stale)
                if isinstance(e, FencedError):
                    raise
                self._turns.note(f"batch {plan.time.milliseconds} fails: {type(e).__name__}: {str(e)[:200]}")
                if number == TRIES:
                    raise
                self._turns.sleep(1)
        self._complete(plan)

    def _try(self, plan: PlannedBatch, number: int) -> None:
        is_first = plan.epoch == self.epoch and number == 1
        batch = OutputBatch(plan.time, plan.nonce, is_first)
        num_partitions = max(1, plan.num_partitions + self.application.other_partitions)
        for output in self.outputs:
            rdd: Any = SimulatedPartitions(
                self.tasks,
                num_partitions,
                lambda partition, output=output: self._records(plan, output.name, partition, num_partitions),
                f"{output.name} {plan.time.milliseconds}",
                plan.is_shuffled,
            )
            self.ids = {f"k-{self.checkpoint.job}-{output.name}-{partition}" for partition in range(num_partitions)}
            self._kafka.taken = {key: epoch for key, epoch in self._kafka.taken.items() if key[0] != self.process.number}
            self._turns.note(f"try {number} of batch {plan.time.milliseconds} for {output.name}")
            missing: Sequence[int] | None = output.prepare(batch, rdd)
            if missing is not None:
                self._turns.note(f"partitions {list(missing)} are to be written")
            output.run(batch, rdd, None if self.application.reports else missing)

    def _records(self, plan: PlannedBatch, output: str, partition: int, num_partitions: int) -> Iterator[Encoded]:
        """Compute a partition, in a task."""
        turns, application = self._turns, self.application
        numbers = plan.numbers(partition, num_partitions, application.hashing)
        if plan.is_shuffled:
            turns.rng.shuffle(numbers)
        for number in numbers[:1]:
            yield (output, b"%d" % number, b"%d %s" % (number, application.tag.encode()), (), number % 2, None)
        if numbers:
            turns.point(f"computes {numbers}")
            if turns.fails(0.5):
                raise UsersError("of the user's code")
        for number in numbers[1:]:
            yield (output, b"%d" % number, b"%d %s" % (number, application.tag.encode()), (), number % 2, None)

    # -- completions

    def _complete(self, plan: PlannedBatch) -> None:
        self._late.append((plan, {output.name: output.outcome(plan.time) for output in self.outputs}))
        self._store_late()

    def _store_late(self) -> None:
        """Store what is not stored yet. A store that fails lets the next batch begin."""
        for plan, outcomes in list(self._late):
            self._turns.point(f"stores the completion of {plan.time.milliseconds}")
            if self._turns.fails(1.0):
                self._turns.note("the store has failed")
                continue
            self.checkpoint.complete(plan, outcomes)
            self._late.remove((plan, outcomes))
            for output in self.outputs:
                output.committed(plan.time)
        if self._turns.rng.random() < 0.3:
            self.checkpoint.clean()
