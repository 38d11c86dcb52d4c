"""What happens to a job, and what is wrong afterwards. Each scenario is one job, on a broker of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from integration.exactness import kafka_sink
from integration.exactness.campaign import Campaign
from integration.exactness.hooks import ALONE, ARMED, BATCH, GO, HELD, HOLD, HOOKS, PLANTED
from integration.exactness.kafka_sink import ORDER, OUTPUTS, SINK_PARTITIONS, TWIN, Code
from integration.exactness.sinks import KAFKA, TOPICS, breaches_of, places, rows, running_sink
from integration.exactness.verdict import read_lines
from integration.kafka_broker import running_broker
from kstream.checkpoint import names

RECEIPTS, RECEIPT_PARTITIONS = "kstream-receipts", range(1, 17)
NARROW = 8
"""So many partitions has a batch without a shuffle: two workers that are killed in their second commit leave it half-written."""
FOREIGN_S = 25.0
"""So long another job holds up readers of the receipts, if nobody passes it."""
SETTLED_S = 12.0
WAITING = 8
"""So many batches are planned when a backup is made. Not all of them are written before it is used."""


@dataclass(frozen=True)
class Scenario:
    """A story of a job.

    Attributes:
        words: the story, and the bug that it is for.
        bug: the bug, a key of BUGS.
        tell: tell(run) returns what is wrong afterwards.
        code: what is in front of the output.
        conf: settings of the drivers.
    """

    words: str
    bug: str
    tell: Callable[[Run], list[str]]
    code: Code = field(default_factory=Code)
    conf: dict[str, str] = field(default_factory=dict)


@contextmanager
def running(scenario: Scenario, directory: Path, is_planted: bool) -> Iterator[Run]:
    """A run of a scenario, with or without its bug, on a broker of its own."""
    with running_broker(directory / "broker") as broker, running_sink(TOPICS, directory, broker) as sink:
        broker.create_topic("fed", NARROW)
        broker.create_topic(TWIN, SINK_PARTITIONS)
        environment = {HOOKS: str(directory / "run")}
        if is_planted:
            environment[PLANTED] = scenario.bug
        run = Run(broker.bootstrap, "fed", directory / "run", broker.produce, dict(scenario.conf), environment=environment, sink=sink)
        run.code, run.partitions, run.broker, run.window = scenario.code, NARROW, broker, 2
        yield run


class Run(Campaign):
    """One job, whose drivers a scenario starts one after the other."""

    broker: Any = None

    def half_written(self, **environment: str) -> None:
        """A driver completes two batches, and is killed in the middle of a later one."""
        driver = self._started(in_write=2, **environment)
        self._wait_completed(driver, 2)
        self._file(ARMED).touch()
        self.dead(driver)

    def tried(self, **environment: str) -> str:
        """Let a driver run until it ends, or has completed three batches and is killed. Return the error that it ends with, or ""."""
        driver, said = self._started(**environment), len(self.log())
        try:
            self._wait_completed_anew(driver, 3)
        except AssertionError:
            return next((name for name in ("ReceiptsLostError", "OutputChangedError") if name in self.log()[said:]), "another error")
        finally:
            driver.kill()
            driver.wait()
        return ""

    def dead(self, driver: subprocess.Popen[bytes], seconds: float = 120) -> None:
        """Wait until a driver has been killed by its worker."""
        try:
            status = driver.wait(seconds)
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait()
            raise AssertionError(f"the driver came to no commit:\n{self._log_tail()}") from None
        if status != -signal.SIGKILL:
            raise AssertionError(f"the driver was to die in a commit and ended with {status}:\n{self._log_tail()}")

    def ended(self, fed: dict[int, int], **environment: str) -> list[str]:
        """Let a last driver read everything, and return what is wrong with the output then."""
        self._file(ARMED).unlink(missing_ok=True)
        self.environment = {**self.environment, **environment}
        try:
            self._drain(fed)
        except AssertionError as e:
            return [f"the last driver has not written everything: {self._error() or str(e).splitlines()[0]}", *self.repeats()]
        return breaches_of(self.sink, places(fed))

    def repeats(self) -> list[str]:
        found = rows(self.sink, kafka_sink.ONCE)
        return [f"{found.total() - len(found)} rows are there a second time"] if found.total() > len(found) else []

    def log(self) -> str:
        return (self.directory / "driver.log").read_text(errors="replace")

    def hold(self, place: str) -> Path:
        """Let the next that comes to a place wait. Return the file that is there when one waits."""
        self._file(f"{HOLD}-{place}").touch()
        return self._file(f"{HELD}-{place}")

    def go(self, place: str) -> None:
        self._file(f"{GO}-{place}").touch()

    def _started(self, in_write: int = 0, **environment: str) -> subprocess.Popen[bytes]:
        self.directory.mkdir(exist_ok=True)
        before, self.environment = self.environment, {**self.environment, **environment}
        try:
            return self._start_driver(None, in_write)
        finally:
            self.environment = before

    def _wait_completed_anew(self, driver: subprocess.Popen[bytes], batches: int) -> None:
        newest = self._newest_ms()
        self._wait(driver, lambda: self._newest_ms() >= newest + round(batches * self.interval * 1000), f"complete {batches} batches")

    def _error(self) -> str:
        lines = [line for line in self.log().splitlines() if "Error: output" in line]
        return lines[-1][:300] if lines else ""

    def _file(self, name: str) -> Path:
        return self.directory / name

    # -- the stories

    def other_hash_seed(self) -> list[str]:
        with self._feeding() as fed:
            self.half_written(PYTHONHASHSEED="1")
            refusal = self.tried(PYTHONHASHSEED="2")
        return _not_refused("OutputChangedError", refusal) + self.ended(fed, PYTHONHASHSEED="1")

    def task_again_in_its_job(self) -> list[str]:
        with self._feeding() as fed:
            driver = self._started()
            try:
                self._wait_completed(driver, 2)
                self._file(ALONE).touch()
                self._wait(driver, lambda: not self._file(ALONE).exists(), "lose a worker")
                self._wait_completed_anew(driver, 2)
            finally:
                driver.kill()
                driver.wait()
        return self.ended(fed)

    def another_order(self) -> list[str]:
        with self._feeding() as fed:
            self.half_written()
        return self.ended(fed)

    def receipts_are_gone(self) -> list[str]:
        with self._feeding():
            self.half_written()
            self.broker.delete_topic(RECEIPTS)
            refusal = self.tried()
        return _not_refused("ReceiptsLostError", refusal) + self.repeats()

    def checkpoint_is_restored(self) -> list[str]:
        checkpoint, backup = Path(self._checkpoint), self.directory / "backup"
        with self._feeding() as fed:
            driver = self._started()
            try:
                self._wait_completed(driver, 2)
                with suppress(shutil.Error):  # a file was removed meanwhile
                    shutil.copytree(checkpoint, backup)
                self._wait_completed_anew(driver, 8)
            finally:
                driver.kill()
                driver.wait()
            newest = checkpoint.rename(self.directory / "newest")
            backup.rename(checkpoint)
            refusal = self.tried()
            if refusal:
                shutil.rmtree(checkpoint)
                newest.rename(checkpoint)
        return _not_refused("OutputChangedError", refusal) + self.ended(fed)

    def outputs_change_places(self) -> list[str]:
        with self._feeding() as fed:
            self.half_written()
        found = self.ended(fed)
        return found + [f"of the other output: {words}" for words in self._breaches_of_twin(places(fed))]

    def completions_are_gone(self) -> list[str]:
        """Batches wait with their plans, and a backup is made. They are written. Then the backup takes the place of the checkpoint."""
        checkpoint, backup = Path(self._checkpoint), self.directory / "backup"
        with self._feeding() as fed:
            driver = self._started()
            try:
                self._wait_completed(driver, 2)
                held, done = self.hold(BATCH), len(list((checkpoint / names.DONE).iterdir()))
                self._wait(driver, held.exists, "begin a batch")
                self._wait(driver, lambda: len(list((checkpoint / names.PLANS).iterdir())) >= done + WAITING, "plan batches")
                with suppress(shutil.Error):
                    shutil.copytree(checkpoint, backup)
                self.go(BATCH)
                self._wait_completed_anew(driver, 3)
            finally:
                driver.kill()
                driver.wait()
            shutil.rmtree(checkpoint)
            backup.rename(checkpoint)
        return self.ended(fed)

    def another_job_is_open(self) -> list[str]:
        """Another job of the same prefix has a transaction open in the receipts while a batch is written, and while it is tried again."""
        with self._feeding() as fed:
            driver = self._started(in_write=2)
            self._wait_completed(driver, 2)
            held = self.hold(BATCH)
            self._wait(driver, held.exists, "begin a batch")
            foreign = self._open_transaction()
            self._file(ARMED).touch()
            self.go(BATCH)
            try:
                driver.wait(FOREIGN_S)
            except subprocess.TimeoutExpired:  # it waits for the other job
                foreign.abort_transaction(30)
                self.dead(driver)
                foreign = self._open_transaction()
            self._file(ARMED).unlink()
            tries = len(read_lines(self.directory / "attempts.jsonl"))
            driver = self._started()
            try:
                self._wait(driver, lambda: len(read_lines(self.directory / "attempts.jsonl")) > tries, "try the batch again")
                time.sleep(SETTLED_S)
                foreign.abort_transaction(30)
                self._wait_completed_anew(driver, 2)
            finally:
                driver.kill()
                driver.wait()
        return self.ended(fed)

    def _open_transaction(self) -> Any:
        """Return a producer with a transaction that has a record in each partition of the receipts."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": "another job", "transaction.timeout.ms": 120_000})
        producer.init_transactions(30)
        producer.begin_transaction()
        for partition in RECEIPT_PARTITIONS:
            producer.produce(RECEIPTS, b"{}", b'["receipt","another job","its output",0]', partition)
        assert producer.flush(30) == 0
        return producer

    def _breaches_of_twin(self, wanted: set[str]) -> list[str]:
        found = kafka_sink.rows(kafka_sink.written(self.sink.removeprefix(KAFKA), TWIN))
        counts = {"places are missing": len(wanted - found.keys()), "rows are there a second time": found.total() - len(found)}
        return [f"{count} {words}" for words, count in counts.items() if count]


def _not_refused(wanted: str, found: str) -> list[str]:
    return [] if found == wanted else [f"the driver was to be refused by {wanted}, and {f'ends with {found}' if found else 'goes on'}"]


SCENARIOS = [
    Scenario(
        "hash checked too late: the workers of the next driver have another hash seed, and what is written is kept",
        "hash_is_checked_too_late",
        Run.other_hash_seed,
        Code(is_reduced=True, keeps=True),
    ),
    Scenario(
        "recomputation inside one job: a worker dies behind its commit, and Spark runs its task again",
        "no_task_looks",
        Run.task_again_in_its_job,
        conf={"spark.master": "local[2,4]"},
    ),
    Scenario(
        "ordered digest behind a shuffle: the next driver gets the records in another order",
        "digests_depend_on_the_order",
        Run.another_order,
        Code(is_reduced=True, changes=ORDER),
    ),
    Scenario(
        "receipts topic anew: it is deleted behind a half-written batch",
        "a_topic_that_was_made_anew_is_taken_for_the_first_one",
        Run.receipts_are_gone,
    ),
    Scenario(
        "restored checkpoint: a backup takes the place of the newest one",
        "older_checkpoint_is_as_good_as_the_newest",
        Run.checkpoint_is_restored,
    ),
    Scenario(
        "output by position: the next driver has its two outputs in another order",
        "receipts_belong_to_the_position",
        Run.outputs_change_places,
        Code(changes=OUTPUTS),
    ),
    Scenario(
        "later receipt: a backup has the plans of batches that are written since, and not their completions",
        "the_receipt_of_a_later_batch_is_ignored",
        Run.completions_are_gone,
    ),
    Scenario(
        "drain that stops early: another job has a transaction open among the receipts",
        "a_read_of_receipts_ends_at_an_open_transaction",
        Run.another_job_is_open,
    ),
]
