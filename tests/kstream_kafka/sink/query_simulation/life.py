"""QueryLife: one seed's story of a query, from the first driver to the last, and the verdict on it."""

from __future__ import annotations

import random
from collections import Counter

from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.sink.audit import entry_of
from kstream_kafka.sink.query_receipt import QueryReceipt, decode_query_receipt, query_key
from kstream_kafka.sink.spool import digests_of
from kstream_kafka.tools.audit_check import TopicCheck, batches_of, input_findings

from kstream.errors import OutputChangedError
from tests.kstream_kafka.sink.simulation.broker import SimulatedTransaction, StoredRecord
from tests.kstream_kafka.sink.simulation.clients import SimulatedKafka
from tests.kstream_kafka.sink.simulation.report import LifeOutcome, LivesReport, report_of
from tests.kstream_kafka.sink.simulation.turns import Chances, SimulatedProcess, Turns
from tests.simulator.errors import SimulationStuckError

from .checkpoint import QueryCheckpoint
from .driver import QUERY, TARGET, Code, QueryDriver
from .kinds import KINDS, RECEIPTS, Kind
from .stage import STAGE, set_up

AUDIT = "k-audit"
CALM_DRIVERS = 8
"""From this driver on nothing happens any more."""
MOST_DRIVERS = 20


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


class QueryLife:
    """Made for one run, on a stage that is set up."""

    def __init__(self, seed: int, kind: type[Kind] | None = None, chances: Chances | None = None) -> None:
        self.rng = rng = random.Random(f"query {seed}")
        self.seed = seed
        chosen = KINDS[seed % len(KINDS)] if kind is None else kind
        self.turns = Turns(rng, Chances.drawn(rng) if chances is None else chances)
        self.kafka = SimulatedKafka(self.turns)
        self.turns.works, self.turns.passes, self.turns.happens = self.kafka.work, self.kafka.pass_time, self._happens
        self.kafka.held_up = self._held_up
        STAGE.enter(self.turns, self.kafka, rng.choice([1, 3, 16]))
        self.checkpoint = self.keep(QueryCheckpoint("the checkpoint", rng.choice([2, 4, 7])))
        self.other: QueryCheckpoint | None = None
        """Another copy of the checkpoint."""
        self.code = Code()
        self.drivers: list[QueryDriver] = []
        self.broken: list[str] = []
        self.refusals = Counter[str]()
        self.kind = chosen(self)
        self.kafka.broker.create(TARGET, 2)

    def keep(self, checkpoint: QueryCheckpoint) -> QueryCheckpoint:
        """Let the sink find a checkpoint. Returns it."""
        STAGE.checkpoints[checkpoint.name] = checkpoint
        return checkpoint

    def run(self) -> LifeOutcome:
        try:
            self._live()
            self._settle()
            self.broken += self._violations()
        except SimulationStuckError as e:
            self.broken.append(f"stuck: {e}")
        finally:
            self.turns.end_all()
        trace = [f"{at / 1000:7.1f} s  {who}: {what}" for at, who, what in self.turns.trace]
        return LifeOutcome(self.seed, self.kind.name, self.broken, trace, self.refusals, len(self.drivers))

    # -- the story

    def _live(self) -> None:
        """Start one driver after the other until all numbers are written, or the user has to give up."""
        while True:
            driver = self._start()
            self.turns.wait(lambda driver=driver: driver.is_over or driver.is_left)
            error = driver.ended_by
            if self.checkpoint.is_complete:
                return
            if isinstance(error, OutputChangedError) and not self.kind.after_refusal(error):
                return
            if len(self.drivers) >= CALM_DRIVERS:
                self.turns.chances.faults = 0
            if len(self.drivers) >= MOST_DRIVERS:
                if not self.kind.may_end_refused():
                    self.broken.append(f"{MOST_DRIVERS} drivers have not written everything, the last one ended by {error!r}")
                return

    def _start(self) -> QueryDriver:
        self.kind.before_driver()
        driver = QueryDriver(self.turns, self.kafka, self.checkpoint, self.code, len(self.drivers) + 1, self._judge)
        self.drivers.append(driver)
        self.turns.note(f"starts driver {len(self.drivers)} on {self.checkpoint.name}, {self.code}", "user")
        return driver

    def _settle(self) -> None:
        """Let all processes end, all requests arrive and all transactions end."""
        self.turns.chances.faults = 0
        self.turns.wait(lambda: len(self.turns.strands.living) == 1)
        while self.kafka.broker.late:
            self.kafka.arrive()
        while self.kafka.broker.open_transactions():
            self.kafka.pass_time(None)
        while self.kafka.work(True):
            pass

    # -- what happens

    def _happens(self, process: SimulatedProcess) -> None:
        """Let one thing happen at a step of a process."""
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
            transaction = rng.choice(transactions)
            turns.note(f"the transaction of {transaction.id} epoch {transaction.epoch} has timed out", "brokers")
            turns.now_ms = max(turns.now_ms, transaction.deadline_ms)
            self.kafka.broker.time_out(transaction)
        elif choice < 17:
            self._compact()
        elif not self.kind.at_step():
            self._leave(driver, process)

    def _leave(self, driver: QueryDriver, process: SimulatedProcess) -> None:
        """Take a driver for dead. It stands still, or the process of its commits does, and goes on when another driver has started."""
        if not driver.is_over and not driver.is_left:
            self.turns.note(f"takes {driver.process.name} for dead", "user")
            driver.is_left = True
            if self.rng.random() < 0.7:
                self.turns.freeze(driver.process)
        self.turns.freeze(process)

    def _compact(self) -> None:
        topic = self.kafka.broker.topics.get(RECEIPTS)
        removed = 0 if topic is None else sum(log.compact() for log in topic.logs)
        self.turns.note(f"the topic of the receipts is compacted, {removed} records are gone", "brokers")

    # -- the verdict

    def _held_up(self, transaction: SimulatedTransaction) -> None:
        """Note a commit that waits for a transaction that was open before. It must have taken the id, which ends it."""
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
        """Note a refusal, and whether it is right. One that a leader of yesterday has caused may be wrong, once."""
        if not isinstance(error, OutputChangedError | KafkaConfigError):
            return
        self.refusals[type(error).__name__] += 1
        if not self.kind.allows(driver, batch, error) and not is_after_stale:
            self.broken.append(f"{driver.process.name} was refused without a reason: {type(error).__name__}: {error}")

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
