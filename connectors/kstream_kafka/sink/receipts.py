"""Receipts: where the receipts of an output are, and which driver may write. The driver and the tasks read them with it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from kstream.batch import OutputFigures
from kstream.errors import OutputChangedError
from kstream.sinks.receipt import check_fence
from kstream.worker.process import drop, once
from kstream_kafka.client.ports import Settings
from kstream_kafka.client.topic_reader import TopicReader
from kstream_kafka.reader.consumer_cache import settings_key
from kstream_kafka.sink.receipt import (
    FENCES,
    Fence,
    KafkaReceipt,
    acceptance_key,
    decode_acceptance,
    decode_fence,
    decode_given_up,
    decode_receipt,
    is_fence,
    is_given_up,
    partition_of,
    place_of,
)

T = TypeVar("T")
READ_S = 30.0
"""Seconds in which the receipts must be read."""


@dataclass(frozen=True, slots=True)
class FoundReceipt:
    """A receipt in the log: its partition of the topic and its offset. `figures`: what the task that returns it has measured."""

    receipt: KafkaReceipt
    place: int
    offset: int
    figures: OutputFigures = field(default_factory=OutputFigures, compare=False)


class FoundReceipts(NamedTuple):
    """What a look has found.

    Attributes:
        receipts: the receipts, oldest first.
        ends: partition of the topic → the offset up to which it was read.
        accepted: the batches, in ms, that `kstream sink accept` names.
    """

    receipts: list[FoundReceipt]
    ends: dict[int, int]
    accepted: frozenset[int]


class Control(NamedTuple):
    """What the partition of the fences has of an output.

    Attributes:
        fences: the fences, oldest first.
        accepted: the batches, in ms, that `kstream sink accept` names.
        given_up: the batches, in ms, that a driver has noted as given up.
    """

    fences: list[Fence]
    accepted: frozenset[int]
    given_up: frozenset[int]


def is_control(key: bytes | None, job: str, output: str) -> bool:
    """Return whether a record of this key is a fence or an acceptance of this output, or a batch of it that was given up."""
    return key == acceptance_key(job, output) or is_fence(key, job, output) or is_given_up(key, job, output)


def control_of(messages: Iterable[Any], job: str, output: str) -> Control:
    """Return what messages have of this output. Deleted ones do not count."""
    acceptance, fences, accepted, given_up = acceptance_key(job, output), list[Fence](), set[int](), set[int]()
    for message in messages:
        key, value = message.key(), message.value()
        if value is None:
            continue
        if is_fence(key, job, output):
            fences.append(decode_fence(value, where(message)))
        elif key == acceptance:
            accepted.add(decode_acceptance(value, where(message)))
        elif is_given_up(key, job, output):
            given_up.add(decode_given_up(value, where(message)).time_ms)
    return Control(fences, frozenset(accepted), frozenset(given_up))


@dataclass(frozen=True, slots=True)
class Receipts:
    """The receipts of one output of one job in Kafka, and the driver that may write. Pickled into the tasks.

    Attributes:
        topic: the topic.
        job: identifies the job.
        output: the name of the output.
        fence: that of the driver.
        fences_end: the end of the partition of the fences behind this fence.
        prefix: begins the transactional ids.
    """

    topic: str
    job: str
    output: str
    fence: Fence
    fences_end: int
    prefix: str

    def transactional_id(self, partition: int) -> str:
        """Return the transactional id of a partition of the RDD. It is the same for all batches and drivers."""
        return transactional_id(self.prefix, self.job, self.output, partition)

    def place(self, partition: int) -> int:
        """Return the partition of the topic that has the receipts of a partition of the RDD."""
        return place_of(self.output, partition, self.fence.num_partitions)

    def look(
        self,
        reader: TopicReader,
        begins: Mapping[int, int],
        seconds: float,
        until: Mapping[int, int] | None = None,
        waits: bool = True,
        least: Mapping[int, int] | None = None,
    ) -> FoundReceipts:
        """Return the receipts of this output from these offsets on. Blocks.

        Args:
            reader: reads the topic.
            begins: partition of the topic → offset.
            seconds: how long to wait.
            until, waits, least: as for `TopicReader.read`.

        Raises:
            FencedError: a later driver may write.
            OutputChangedError: a driver of another copy of the checkpoint may write.
            KafkaError: the ends of the partitions were not reached.
        """

        def is_mine(key: bytes | None) -> bool:
            return is_control(key, self.job, self.output) or partition_of(key, self.job, self.output) is not None

        log = reader.read(self.topic, {**begins, FENCES: self.fences_end}, seconds, is_mine, until, waits, least)
        control = control_of(log.messages, self.job, self.output)
        for fence in control.fences:
            self.check_driver(fence)
        found = list[FoundReceipt]()
        for message in log.messages:
            partition, value = partition_of(message.key(), self.job, self.output), message.value()
            if partition is not None and value is not None:
                receipt = decode_receipt(partition, value, where(message))
                found.append(FoundReceipt(receipt, message.partition(), message.offset()))
        return FoundReceipts(found, log.ends, control.accepted)

    def judged(self, reader: TopicReader, check: Callable[[], T]) -> T:
        """Return what a check of receipts returns. An earlier driver hears that it is one, and not that receipts are strange. May block.

        Args:
            reader: reads the topic.
            check: check() raises OutputChangedError for receipts that this driver cannot understand.

        Raises:
            FencedError: a later driver may write. The receipts may be its own.
            OutputChangedError: as `check`.
            KafkaError: the fences could not be read.
        """
        try:
            return check()
        except OutputChangedError:
            self.look(reader, {}, READ_S)
            raise

    def check_driver(self, found: Fence) -> None:
        """Raise an error if a fence that was written after this driver's names another driver. Errors as `look`. Pure."""
        if found.epoch < self.fence.epoch:  # its driver was late with it, and has seen this driver's since
            return
        check_fence(self.output, self.topic, (self.fence.epoch, self.fence.writer), (found.epoch, found.writer))


@contextmanager
def kept_reader(consumer: Settings) -> Generator[TopicReader]:
    """Give the reader of receipts of this process. It is kept for later tasks and batches, unless the block fails.

    Args:
        consumer: complete consumer properties.
    """
    key = ("receipts", settings_key(consumer))
    reader = once(key, lambda: TopicReader(consumer))
    try:
        yield reader
    except Exception:
        drop(key)
        with suppress(Exception):
            reader.close()
        raise


def transactional_id(prefix: str, job: str, output: str, partition: int) -> str:
    return f"{prefix}-{job}-{output}-{partition}"


def where(message: Any) -> str:
    """Return topic, partition and offset of a message, for an error."""
    return f"{message.topic()}-{message.partition()} offset {message.offset()}"
