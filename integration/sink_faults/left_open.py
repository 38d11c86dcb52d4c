"""How long the transactions of a process that was killed hold up readers of committed records: until a new driver comes, or alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition
from kstream_kafka.client.transaction import Transaction
from kstream_kafka.sink.partition_writer import KafkaPartitionWriter
from kstream_kafka.sink.producer_record import Encoded

from integration.kafka_handle import KafkaHandle
from integration.sink_faults.batches import (
    TIMEOUT_MS,
    TOPIC_PARTITIONS,
    Attempt,
    AttemptFailedError,
    AttemptProcess,
    SinkJob,
    SuspendedAt,
    new_job,
    suspend,
)
from integration.sink_faults.verdict import breaches_of

PARTITIONS = 64
LONG_MS = 60_000
"""A time-out of transactions that ends none of them while a new driver comes."""
TAKEN_OVER_BAR_S = 2.0
"""From the moment on at which a new driver begins to prepare its first batch."""
NEXT_ATTEMPT_BAR_S = 2.0
"""From the begin of the next attempt on."""
ALONE_BAR_S = TIMEOUT_MS / 1000 + 2
"""From the kill on."""
PASSES_S = 90.0


class HeldUp(NamedTuple):
    """How long readers were held up, and what is wrong then."""

    seconds: float
    breaches: list[str]


def until_a_new_driver_comes(kafka: KafkaHandle) -> HeldUp:
    """Kill the process that has a transaction open for each partition, and let a new driver come at once. The seconds begin with it."""
    job = new_job(kafka, kafka.bootstrap, PARTITIONS, LONG_MS)
    with ThreadPoolExecutor(1) as threads:
        _leave_open(job)
        passing = threads.submit(_when_passed, kafka, job.topic, _ends(kafka, job.topic))
        driver, began = job.driver(), time.monotonic()
        job.write(driver, 1, is_first_try=False)
        seconds = passing.result() - began
    return HeldUp(seconds, breaches_of(kafka, job))


def until_the_time_out(kafka: KafkaHandle) -> HeldUp:
    """Kill the process that has a transaction open for each partition, and let nobody come. The seconds begin with the kill."""
    job = new_job(kafka, kafka.bootstrap, PARTITIONS, TIMEOUT_MS)
    _leave_open(job)
    killed = time.monotonic()
    seconds = _when_passed(kafka, job.topic, _ends(kafka, job.topic)) - killed
    return HeldUp(seconds, breaches_of(kafka, job))


def until_the_next_attempt_has_written(kafka: KafkaHandle) -> HeldUp:
    """Kill an attempt before its commit, and let the same driver make another one, as Spark does. The seconds begin with that."""
    job = new_job(kafka, kafka.bootstrap, 1, LONG_MS)
    seconds = 0.0

    def run(attempt: Attempt) -> list[Any]:
        nonlocal seconds
        dies = AttemptProcess(replace(attempt, suspended_at=SuspendedAt.COMMIT))
        dies.wait_suspended()
        dies.kill()
        began = time.monotonic()
        found = attempt.again().run()
        seconds = time.monotonic() - began
        return found

    job.write(job.driver(), 1, run)
    return HeldUp(seconds, breaches_of(kafka, job))


def _leave_open(job: SinkJob) -> None:
    """Let a driver begin a batch, in a process that is killed once a transaction is open for each partition."""

    def run(attempt: Attempt) -> list[Any]:
        assert isinstance(attempt.function, KafkaPartitionWriter)
        process = AttemptProcess(Attempt(partial(open_all, attempt.function, job.topic), (), []))
        process.wait_suspended()
        process.kill()
        raise AttemptFailedError("the process was killed")

    try:
        job.write(job.driver(), 1, run)
    except AttemptFailedError as e:
        if "was killed" not in str(e):
            raise


def open_all(writer: KafkaPartitionWriter, topic: str, _records: Iterator[Encoded]) -> None:
    """Begin the transaction of each partition as the sink does, write to it, and suspend this process once all are open."""

    def opened(partition: int) -> Transaction:
        transaction = Transaction(writer.producer, writer.receipts.transactional_id(partition), writer.timeout_ms, topic)
        transaction.open()
        return transaction

    def written(transaction: Transaction, place: int) -> None:
        transaction.begin()
        transaction.send((topic, None, b"of a process that is killed", (), place, None))
        transaction.flush()

    with ThreadPoolExecutor(PARTITIONS) as threads:
        transactions = list(threads.map(opened, range(PARTITIONS)))
        list(threads.map(written, transactions, (partition % TOPIC_PARTITIONS for partition in range(PARTITIONS))))
    suspend()


def _ends(kafka: KafkaHandle, topic: str) -> dict[int, int]:
    """Return the high watermarks of a topic."""
    return {place: kafka.log_range(topic, place)[1] for place in range(TOPIC_PARTITIONS)}


def _when_passed(kafka: KafkaHandle, topic: str, ends: Mapping[int, int]) -> float:
    """Return when a reader of committed records has passed these offsets, as `time.monotonic` tells it. Blocks."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "held up", "enable.partition.eof": True, "fetch.wait.max.ms": 50}
    reader: Any = Consumer({**settings, "isolation.level": "read_committed"})
    reader.assign([TopicPartition(topic, place, 0) for place in ends])
    left, until = dict(ends), time.monotonic() + PASSES_S
    try:
        while left:
            assert time.monotonic() < until, f"{topic}: a reader of committed records is held up for ever at {left}"
            message = reader.poll(0.1)
            if message is not None and message.offset() >= left.get(message.partition(), message.offset() + 1):
                del left[message.partition()]
        return time.monotonic()
    finally:
        reader.close()
