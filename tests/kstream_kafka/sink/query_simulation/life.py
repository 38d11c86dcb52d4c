"""QueryLife: one seed's story of a query, from the first driver to the last, and the verdict on it."""

from __future__ import annotations

from collections.abc import Iterable

from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.sink.audit import entry_of
from kstream_kafka.sink.query_receipt import QueryReceipt, decode_query_receipt, query_key
from kstream_kafka.sink.spool import digests_of
from kstream_kafka.tools.audit_check import TopicCheck, batches_of, input_findings

from kstream.errors import OutputChangedError
from tests.kstream_kafka.sink.simulation.broker import SimulatedTransaction, StoredRecord
from tests.kstream_kafka.sink.simulation.report import LifeOutcome, LivesReport, report_of
from tests.kstream_kafka.sink.simulation.story import RECEIPTS, Story
from tests.kstream_kafka.sink.simulation.turns import Chances, SimulatedProcess

from .checkpoint import QueryCheckpoint
from .driver import QUERY, TARGET, Code, QueryDriver
from .kinds import KINDS, Kind
from .stage import STAGE, set_up

AUDIT = "k-audit"


def run_life(seed: int, kind: type[Kind] | None = None, chances: Chances | None = None) -> LifeOutcome:
    """Run one life from its start to its end. One at a time in a process.

    Args:
        seed: decides everything.
        kind: the kind of life; None: the seed takes one.
        chances: how often things happen; None: drawn by the seed.
    """
    with set_up():
        return QueryLife(seed, kind, chances).run()


def run_lives(seeds: range, kind: type[Kind] | None = None) -> LivesReport:
    """Run a life for each seed. SimulationFailedError for the first that breaks what must hold."""
    with set_up():
        return report_of(QueryLife(seed, kind).run() for seed in seeds)


class QueryLife(Story[QueryDriver, QueryCheckpoint]):
    """Made for one run, on a stage that is set up."""

    def __init__(self, seed: int, kind: type[Kind] | None = None, chances: Chances | None = None) -> None:
        super().__init__("query", seed, chances)
        STAGE.enter(self.turns, self.kafka, self.rng.choice([1, 3, 16]))
        self.checkpoint = self._kept(QueryCheckpoint("the checkpoint", self.rng.choice([2, 4, 7])))
        self.code = Code()
        self.kind: Kind = (KINDS[seed % len(KINDS)] if kind is None else kind)(self)
        self.kafka.broker.create(TARGET, 2)

    def _kept(self, checkpoint: QueryCheckpoint) -> QueryCheckpoint:
        """Let the sink find a checkpoint. Returns it."""
        STAGE.checkpoints[checkpoint.name] = checkpoint
        return checkpoint

    def copy_of_checkpoint(self) -> QueryCheckpoint:
        return self._kept(self.checkpoint.copy("the copy"))

    def knows_receipts(self) -> bool:
        """Whether the checkpoint knows the topic, and no process of an earlier driver lives."""
        return bool(self.checkpoint.files) and not self.has_zombies(self.drivers[:-1])

    def has_zombies(self, drivers: Iterable[QueryDriver]) -> bool:
        return any(self.turns.is_alive(process) for driver in drivers for process in driver.processes)

    def _driver(self, number: int) -> QueryDriver:
        driver = QueryDriver(self.turns, self.kafka, self.checkpoint, self.code, number, self._judge)
        self.turns.note(f"starts driver {number} on {self.checkpoint.name}, {self.code}", "user")
        return driver

    # -- what happens

    def _happens(self, process: SimulatedProcess) -> None:
        turns, rng = self.turns, self.rng
        driver = next(driver for driver in self.drivers if process in driver.processes)
        choice = rng.randrange(20)
        if choice < 4:
            turns.kill(process, "dies")
        elif choice < 6:
            turns.freeze(process)
        elif choice < 9:
            turns.kill(driver.process, "dies")
        elif choice < 13:
            self._leave(driver, process)
        elif choice < 15 and (transactions := self.kafka.broker.open_transactions()):
            self._time_out(transactions)
        elif choice < 17:
            self._compact()
        elif not self.kind.at_step():
            self._leave(driver, process)

    # -- the verdict

    def _held_up(self, transaction: SimulatedTransaction) -> None:
        process = self.turns.current
        epoch = self.kafka.taken.get((process.number, transaction.id), 0)
        if transaction.epoch < epoch or epoch == 0:
            self.broken.append(f"{process.name} waits for {transaction.id} epoch {transaction.epoch}, which it should have ended")

    def has_otherwise(self, driver: QueryDriver, batch: int) -> bool:
        """Whether Kafka has a later batch than this one of a driver, this one with other records, or one that has other sources."""
        mine = digests_of((TARGET, None, b"%d %s" % (n, driver.code.tag.encode()), (), n % 2, None) for n in driver.numbers[batch])
        for _, receipt in self._receipts():
            ends = {at for topics in receipt.sources.values() for places in topics.values() for at in places.values()}
            if receipt.batch > batch or ends != {driver.checkpoint.ends[receipt.batch]}:
                return True
            if receipt.batch == batch and receipt.digests != mine:
                return True
        return False

    def _receipts(self) -> list[tuple[SimulatedTransaction | None, QueryReceipt]]:
        """The committed receipts that there have ever been in the topic, and their transactions."""
        topic = self.kafka.broker.topics.get(RECEIPTS)
        found = [record for log in ([] if topic is None else topic.logs) for record in log.ever if record.is_committed]
        return [(r.of, decode_query_receipt(QUERY, r.its_value or b"", "")) for r in found if r.its_key == query_key(QUERY)]

    def _judge(self, driver: QueryDriver, batch: int, error: Exception, is_after_stale: bool) -> None:
        if isinstance(error, OutputChangedError | KafkaConfigError):
            super()._judge(driver, batch, error, is_after_stale)

    def _violations(self) -> list[str]:
        found, broken = dict[int, list[StoredRecord]](), list[str]()
        for record in self.kafka.broker.committed(TARGET):
            found.setdefault(int((record.its_value or b"").split()[0]), []).append(record)
        broken += [f"{number} is there {len(records)} times" for number, records in sorted(found.items()) if len(records) > 1]
        for checkpoint in [self.checkpoint] if self.other is None else [self.checkpoint, self.other]:
            for batch in checkpoint.commits:
                if missing := [number for number in checkpoint.range_of(batch) if number not in found]:
                    broken.append(f"{missing} of batch {batch} are missing, and {checkpoint.name} has it committed")
        return broken + self._parts(found) + self._audited()

    def _parts(self, found: dict[int, list[StoredRecord]]) -> list[str]:
        """Each transaction has one batch, as a whole, and its receipt."""
        if RECEIPTS not in self.kafka.broker.topics or self.kind.may_end_refused():
            return []
        by_transaction = dict[SimulatedTransaction | None, list[int]]()
        for number, records in found.items():
            for record in records:
                by_transaction.setdefault(record.of, []).append(number)
        receipts = dict(self._receipts())
        broken = list[str]()
        for transaction, numbers in by_transaction.items():
            receipt = receipts.get(transaction)
            if receipt is None or receipt.num_records != len(numbers):
                broken.append(f"{sorted(numbers)} are written in a transaction whose receipt is {receipt}")
        return broken

    def _audited(self) -> list[str]:
        """What the audit finds. An entry is in the transaction of its batch, so nothing is ever left out."""
        if AUDIT not in self.kafka.broker.topics:
            return []
        found = [entry_of(record.its_key, record.its_value or b"", "") for record in self.kafka.broker.committed(AUDIT)]
        entries = [entry for entry in found if entry is not None]
        batches, findings = batches_of(entries)
        check = TopicCheck(TARGET, batches)
        ranges = check.ranges()
        for record in self.kafka.broker.committed(TARGET):
            begin, end = ranges.get(record.partition(), (0, 0))
            if begin <= record.at < end:
                check.add(record.partition(), record.at, record.its_key, record.its_value)
        return [f"audit: {finding.words}" for finding in (*findings, *input_findings(batches), *check.findings())]
