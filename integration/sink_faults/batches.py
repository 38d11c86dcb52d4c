"""Drivers of one job and their batches, without a StreamingContext; and attempts at partitions, in this process or in one of their own."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.transaction import Transaction
from kstream_kafka.sink.kafka_output import AT_LEAST_ONCE, FAIL, KafkaOutput, kafka_output
from kstream_kafka.sink.producer_record import Encoded

from integration.kafka_handle import KafkaHandle
from integration.kafka_node import die_with_parent
from kstream.batch import Json
from kstream.batch_time import Time
from kstream.errors import KStreamError
from kstream.output import OutputBatch, Writer

TOPIC_PARTITIONS = 2
RECORDS = 5
"""How many records a partition of a batch has."""
TIMEOUT_MS = 3_000
"""The time-out of a transaction. An attempt that is cut off gives up after it."""
ATTEMPT_S = 60.0


class SuspendedAt(Enum):
    """Where an attempt suspends its own process, by SIGSTOP."""

    NOWHERE = "nowhere"
    BEGIN = "before its first record"
    RECORDS = "behind its first record, with its id taken"
    COMMIT = "before its commit"


@dataclass(frozen=True)
class Attempt:
    """An attempt at a partition of a batch, as a task has it: the function of the output, and the records. Pickled into a process."""

    function: Any
    arguments: tuple[int, ...]
    records: list[Encoded]
    suspended_at: SuspendedAt = SuspendedAt.NOWHERE

    def run(self) -> list[Any]:
        """Run it. Return what the task returns. Errors as the function."""
        if self.suspended_at is SuspendedAt.COMMIT:
            _suspend_in_commit()
        return list(self.function(*self.arguments, self._records()) or ())

    def again(self) -> Attempt:
        """Return another attempt at the partition, as Spark makes it of a task that has failed or is slow."""
        return replace(self, function=replace(self.function, is_first_try=False))

    def _records(self) -> Iterator[Encoded]:
        if self.suspended_at is SuspendedAt.BEGIN:
            suspend()
        for number, record in enumerate(self.records):
            yield record
            if number == 0 and self.suspended_at is SuspendedAt.RECORDS:
                suspend()


def suspend() -> None:
    """Suspend this process. The thread does not pass this line before SIGCONT."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _suspend_in_commit() -> None:
    commit = Transaction.commit

    def suspended(self: Transaction) -> None:
        suspend()
        commit(self)

    Transaction.commit = suspended


class AttemptFailedError(KStreamError):
    """An attempt in a process of its own has failed, or was killed. Its text is that of the error."""


class AttemptProcess:
    """An attempt in a process of its own. It ends with the thread that starts it."""

    def __init__(self, attempt: Attempt) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "integration.sink_faults.attempt"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent,
        )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(pickle.dumps(attempt))
        self._process.stdin.flush()

    def is_over(self) -> bool:
        return self._process.poll() is not None

    def wait_suspended(self) -> None:
        """Return when the process is suspended. AttemptFailedError if it ends before."""
        found = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if found is None or found.si_code != os.CLD_STOPPED:
            raise AttemptFailedError("the attempt was not suspended")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it by SIGKILL. Return when it is gone."""
        self._process.kill()
        self._process.wait()

    def result(self) -> list[Any]:
        """Wait for its end, and return what the task returns. AttemptFailedError if it has failed."""
        said, _ = self._process.communicate(timeout=ATTEMPT_S)
        if not said:
            raise AttemptFailedError(f"the process of the attempt ended with {self._process.returncode}")
        found = pickle.loads(said)
        if isinstance(found, str):
            raise AttemptFailedError(found)
        return found


Run = Callable[[Attempt], "list[Any]"]
"""Runs an attempt, and returns what the task returns."""


def in_this_process(attempt: Attempt) -> list[Any]:
    return attempt.run()


def in_its_own_process(attempt: Attempt) -> list[Any]:
    return AttemptProcess(attempt).result()


class RecordsOfBatch:
    """Stands for the RDD of a batch: encoded records whose values are batch, partition and number."""

    def __init__(self, topic: str, batch: int, num_partitions: int, run: Run) -> None:
        self._topic = topic
        self._batch = batch
        self._num_partitions = num_partitions
        self._run = run
        self.context = self._jrdd = self

    def getNumPartitions(self) -> int:
        return self._num_partitions

    def rdd(self) -> Any:
        return self

    def outputDeterministicLevel(self) -> Any:
        return self

    def toString(self) -> str:
        return "DETERMINATE"

    def id(self) -> int:
        return 0

    def getClass(self) -> Any:
        return self

    def getName(self) -> str:
        """Of its class in the JVM: that of a list of records, for one."""
        return "org.apache.spark.rdd.ParallelCollectionRDD"

    def dependencies(self) -> Any:
        return self

    def size(self) -> int:
        """Of its dependencies: it has none."""
        return 0

    def mapPartitionsWithIndex(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def runJob(self, function: Callable[..., Any], _collect: object, chosen: Sequence[int]) -> list[Any]:
        return [found for number in chosen for found in self._run(Attempt(function, (number,), self._records(number)))]

    def foreachPartition(self, function: Callable[..., Any]) -> None:
        for number in range(self._num_partitions):
            self._run(Attempt(function, (), self._records(number)))

    def _records(self, partition: int) -> list[Encoded]:
        place = partition % TOPIC_PARTITIONS
        return [(self._topic, None, value.encode(), (), place, None) for value in values_of(self._batch, partition)]


def values_of(batch: int, partition: int) -> list[str]:
    """Return the values of the records of a partition."""
    return [f"{batch}:{partition}:{number}" for number in range(RECORDS)]


@dataclass
class SinkJob:
    """A job that writes batches to a topic, and its drivers. The topic begins the names of what belongs to the job.

    Attributes:
        bootstrap: the broker, or the proxy before it.
        topic: the topic.
        num_partitions: how many partitions a batch has.
        timeout_ms: the time-out of its transactions.
        written: the batches that have been written, by number.
    """

    bootstrap: str
    topic: str
    num_partitions: int
    timeout_ms: int
    written: set[int] = field(default_factory=set[int])
    _nonces: dict[int, str] = field(default_factory=dict[int, str])
    _stored: Json = None

    @property
    def receipts(self) -> str:
        """The topic of the receipts."""
        return f"{self.topic}-receipts"

    def driver(self) -> KafkaOutput:
        """Return the output of the next driver. It has what the newest completion stores."""
        epoch = len(self._nonces) + 1
        self._nonces[epoch] = nonce = f"nonce {epoch}"
        output = KafkaOutput("totals", KafkaParams.parse(self._params()), self.topic, audit=False)
        output.restore(Writer("job", epoch, nonce, self._nonces.get, lambda time, plan: plan == _plan(time)), self._stored)
        return output

    def write(
        self,
        output: KafkaOutput,
        number: int,
        run: Run = in_this_process,
        is_first_try: bool = True,
        on_prepared: Callable[[], object] = lambda: None,
    ) -> None:
        """Try a batch. Errors as the output.

        Args:
            output: that of a driver.
            number: of the batch.
            run: runs the attempts at its partitions.
            is_first_try: as in OutputBatch.
            on_prepared: called between `prepare` and `run`.
        """
        time = Time(number * 1000)
        batch = OutputBatch(time, _plan(time), is_first_try)
        rdd: Any = RecordsOfBatch(self.topic, number, self.num_partitions, run)
        missing = output.prepare(batch, rdd)
        on_prepared()
        output.run(batch, rdd, missing)
        self.written.add(number)

    def complete(self, output: KafkaOutput, number: int) -> None:
        """Store the completion of a batch."""
        self._stored = output.outcome(Time(number * 1000))
        output.committed(Time(number * 1000))

    def write_at_least_once(self, number: int, run: Run = in_this_process) -> None:
        """Try a batch with `delivery="at-least-once"`. KStreamError if an attempt fails."""
        _, function, _ = kafka_output(self.topic, self._params(), {}, AT_LEAST_ONCE, None, self.topic, FAIL, False)
        assert not isinstance(function, KafkaOutput) and callable(function)
        rdd: Any = RecordsOfBatch(self.topic, number, self.num_partitions, run)
        function(Time(number * 1000), rdd)
        self.written.add(number)

    def wanted(self) -> set[str]:
        """Return the values that are to be in the topic."""
        return {value for batch in self.written for number in range(self.num_partitions) for value in values_of(batch, number)}

    def _params(self) -> dict[str, Any]:
        # Clients of the proxy come back at once when it is mended.
        return {"bootstrap.servers": self.bootstrap, "transaction.timeout.ms": self.timeout_ms, "reconnect.backoff.max.ms": 200}


def new_job(kafka: KafkaHandle, bootstrap: str, num_partitions: int = 3, timeout_ms: int = TIMEOUT_MS) -> SinkJob:
    """Return a job with a topic of its own. `kafka` makes it, and the job writes by way of `bootstrap`."""
    job = SinkJob(bootstrap, f"sink-{uuid.uuid4().hex[:8]}", num_partitions, timeout_ms)
    kafka.create_topic(job.topic, TOPIC_PARTITIONS)
    return job


def _plan(time: Time) -> str:
    return f"plan of {time.milliseconds}"
