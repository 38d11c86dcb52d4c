"""KafkaEpochOutput: each epoch of a continuous task in one transaction, with its receipts. And AtLeastOnceEpochOutput, without either.

The outputs of an epoch wait in a spool until it ends, so that the transaction is as short as Kafka needs. A receipt is written for each
partition of the input that has moved, also where the epoch has no outputs.

The producer goes on from epoch to epoch. After a lost connection it does not: it is closed after the commit, and the task must take its id
anew. That takes the id also from a successor. So the task then asks the driver again, as it does at first, before it ends an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kstream.errors import FencedError
from kstream.offsets.offset_range import Partition
from kstream_kafka.client.ports import Encoded, Settings
from kstream_kafka.client.record_sending import IdempotentProducer
from kstream_kafka.client.transaction import Transaction
from kstream_kafka.continuous.epoch_receipt import KafkaEpochReceipt, encode_epoch_receipt, epoch_key, epoch_place
from kstream_kafka.errors import KafkaError, ProducerFencedError
from kstream_kafka.sink.spool import DigestSum, Spool


@dataclass(frozen=True, slots=True)
class EpochPlace:
    """Where the epochs of a task have their receipts, and under which id they are written. Pickled into the tasks.

    Attributes:
        topic: the topic of the receipts.
        num_places: how many partitions of it may have receipts.
        prefix: begins the transactional ids.
        job: identifies the job.
        output: the name of the output.
    """

    topic: str
    num_places: int
    prefix: str
    job: str
    output: str

    def transactional_id(self, task: int) -> str:
        """Return the transactional id of a task. It is the same for all runs, generations and drivers."""
        return f"{self.prefix}-{self.job}-{self.output}-continuous-{task}"

    def place(self, partition: Partition) -> int:
        """Return the partition of the topic that has the receipts of a partition of the input."""
        return epoch_place(self.output, partition, self.num_places)


@dataclass(frozen=True, slots=True)
class EpochWriter:
    """By which assignment a task writes.

    Attributes:
        task: the number of the task.
        generation: of the assignment.
        driver_epoch: of the driver that has made it.
    """

    task: int
    generation: int
    driver_epoch: int


class KafkaEpochOutput:
    """An EpochOutput that writes exactly once. In a worker; one thread."""

    def __init__(
        self, place: EpochPlace, writer: EpochWriter, settings: Settings, encode: Callable[[Any], Encoded], timeout_ms: int
    ) -> None:
        """
        Args:
            place: where the receipts are.
            writer: by which assignment the task writes.
            settings: complete producer properties.
            encode: makes what is written of a record.
            timeout_ms: the time-out of a transaction. It must be enough for the largest epoch.
        """
        self._place = place
        self._writer = writer
        self._settings = settings
        self._encode = encode
        self._timeout_ms = timeout_ms
        self._transaction: Transaction | None = None
        self._spool = Spool()

    @property
    def is_open(self) -> bool:
        """Whether an epoch can end under the id as it was taken. If not: `open`, and ask the driver again, before the next `end`."""
        return self._transaction is not None

    def open(self) -> None:
        """Take the id: earlier runs of the task can write nothing more, and what they had open is aborted. Blocks. What was added stays.

        Raises:
            KafkaError: the brokers do not answer, or refuse this client.
        """
        self._close_transaction()
        identity = self._place.transactional_id(self._writer.task)
        transaction = Transaction(self._settings, identity, self._timeout_ms, self._place.topic, is_kept=True)
        try:
            transaction.open()
        except BaseException:
            transaction.close()
            raise
        self._transaction = transaction

    def add(self, made: Iterable[Any]) -> None:
        """Add records to this epoch. Errors as those of `encode`, and of whoever makes the records."""
        for record in made:
            self._spool.add(self._encode(record))

    @property
    def num_bytes(self) -> int:
        """The bytes of keys and values that were added to this epoch."""
        return sum(digest.bytes for digest in self._spool.digests.values())

    def end(self, positions: Mapping[Partition, int]) -> None:
        """Write what was added, and the receipts, in one transaction. Blocks.

        Raises:
            FencedError: another run has taken the id. If it was taken during the commit, the epoch may be stored.
            CommitUnknownError: the brokers have not answered: the epoch may be stored or not.
            KafkaError: the epoch is not stored, or the output is not open.
        """
        if self._transaction is None:
            raise KafkaError(f"output {self._place.output}: the transactional id of task {self._writer.task} is not taken. Take it first")
        try:
            self._write(self._transaction, positions)
        except ProducerFencedError as e:
            raise FencedError(
                f"output {self._place.output}: another run of task {self._writer.task} writes ({e.facts['reason']})",
                path=self._place.topic,
                epoch=self._writer.driver_epoch,
                newer_epoch=None,
            ) from e
        self._spool.close()
        self._spool = Spool()
        if not self._transaction.can_go_on:
            self._close_transaction()

    def close(self) -> None:
        """Abort what is not committed. Blocks for some seconds at most."""
        self._close_transaction()
        self._spool.close()

    def _close_transaction(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.close()

    def _write(self, transaction: Transaction, positions: Mapping[Partition, int]) -> None:
        transaction.begin()
        transaction.send_all(self._spool.records())
        transaction.send_all(self._receipts(positions))
        transaction.flush()
        transaction.commit()

    def _receipts(self, positions: Mapping[Partition, int]) -> list[Encoded]:
        place, writer, digests = self._place, self._writer, self._spool.digests
        return [
            (
                place.topic,
                epoch_key(place.job, place.output, partition),
                encode_epoch_receipt(KafkaEpochReceipt(position, writer.generation, writer.task, writer.driver_epoch, digests)),
                (),
                place.place(partition),
                None,
            )
            for partition, position in positions.items()
        ]


class AtLeastOnceEpochOutput:
    """An EpochOutput that sends at once, and has no receipts: positions are in the driver's log. In a worker; one thread."""

    def __init__(self, settings: Settings, encode: Callable[[Any], Encoded]) -> None:
        """
        Args:
            settings: complete producer properties.
            encode: makes what is written of a record.
        """
        self._settings = settings
        self._encode = encode
        self._producer: IdempotentProducer | None = None
        self._sum = DigestSum()

    @property
    def is_open(self) -> bool:
        return self._producer is not None

    def open(self) -> None:
        """Make the producer. There is no identity: an earlier run that is still alive writes its records, too. Sends nothing.

        Raises:
            KafkaConfigError: librdkafka refuses a property.
        """
        self._producer = IdempotentProducer(self._settings)

    def add(self, made: Iterable[Any]) -> None:
        """Send records. Blocks while the queue of the producer is full. KafkaError if the producer cannot take one."""
        self._opened.send_all(self._sum.passing(map(self._encode, made)))

    @property
    def num_bytes(self) -> int:
        """The bytes of keys and values that were sent since the epoch began."""
        return sum(digest.bytes for digest in self._sum.digests.values())

    def end(self, positions: Mapping[Partition, int]) -> None:
        """Wait until each record is stored. KafkaError if one is not."""
        self._opened.flush()
        self._sum = DigestSum()

    def close(self) -> None:
        """Let go of the producer. What it has not sent yet may still be written: `end` says what is."""
        self._producer = None

    @property
    def _opened(self) -> IdempotentProducer:
        if self._producer is None:
            raise KafkaError("the output of a continuous task is not open")
        return self._producer
