"""KafkaPartitionWriter: writes the partitions of a batch in tasks, each in one transaction with its receipt.

A task runs the user's code to its end, and keeps what is to be written. Only then it begins the transaction. So a transaction is as long as
Kafka needs, and an error of the user's code writes nothing.

The task takes the transactional id first. From then on no earlier producer of the id can commit. Then the task looks whether this driver
may write, and whether the partition is written already. A new driver writes its fence first and takes the ids then. So a task of an earlier
driver sees the fence, or is fenced itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any

from kstream.sinks.receipt import hashing
from kstream.worker.process import begin_task, drop, once
from kstream_kafka.client.topic_reader import TopicReader
from kstream_kafka.client.transaction import Transaction
from kstream_kafka.reader.consumer_cache import settings_key
from kstream_kafka.sink.producer_record import RecordEncoder
from kstream_kafka.sink.receipt import Digest, KafkaReceipt, encode_receipt, receipt_key
from kstream_kafka.sink.receipts import Receipts
from kstream_kafka.sink.spool import Spool


@dataclass(frozen=True, slots=True)
class Written:
    """A partition that is written.

    Attributes:
        digest: what is written.
        offset: that of the receipt.
    """

    digest: Digest
    offset: int


@dataclass(frozen=True)
class KafkaPartitionWriter:
    """Writes partitions. Pickled into the tasks.

    Attributes:
        receipts: where the receipts are.
        encoder: makes what is written of a record.
        producer: complete producer properties.
        consumer: complete consumer properties, for the receipts.
        time_ms: the batch.
        nonce: of its plan.
        num_partitions: how many it has.
        begins: where to look for receipts of this batch: partition of the topic → offset.
        timeout_ms: the time-out of a transaction.
        wanted: the partitions that are to be written; None for all. The others are only computed.
        is_first_try: whether a task of this batch whose attempt is the first can be sure that no other has written.
    """

    receipts: Receipts
    encoder: RecordEncoder
    producer: Mapping[str, Any]
    consumer: Mapping[str, Any]
    time_ms: int
    nonce: str
    num_partitions: int
    begins: Mapping[int, int]
    timeout_ms: int
    wanted: frozenset[int] | None
    is_first_try: bool

    def __call__(self, partition: int, records: Iterable[Any]) -> Iterator[Written | None]:
        """Write a partition. Yield what is written; None if it was written before and is only computed."""
        begin_task()
        if self.wanted is not None and partition not in self.wanted:
            for _ in records:  # inputs report on all records of a batch
                pass
            yield None
            return
        yield self._write(partition, records)

    def _write(self, partition: int, records: Iterable[Any]) -> Written:
        from pyspark import TaskContext

        task = TaskContext.get()
        is_first = self.is_first_try and (task is None or task.attemptNumber() == 0)
        transaction = Transaction(self.producer, self.receipts.transactional_id(partition), self.timeout_ms)
        spool = Spool()
        opened = _begun(transaction.open) if is_first else None
        try:
            for record in records:
                spool.add(self.encoder(record))
            transaction.open() if opened is None else opened.result()
            return self._written_already(partition, is_first) or self._commit(transaction, partition, spool)
        finally:
            if opened is None:
                transaction.close()
            else:  # after an error of the user's code it may not be open yet, and nobody waits for it
                opened.add_done_callback(lambda _: transaction.close())
            spool.close()

    def _written_already(self, partition: int, is_first: bool) -> Written | None:
        """Return what another attempt has written; None if none has. The transactional id is taken. Errors as `Receipts.check_fence`."""
        key = ("receipts", settings_key(self.consumer))
        reader = once(key, lambda: TopicReader(self.consumer))
        try:
            self.receipts.check_fence(reader)
            if is_first:
                return None
            place = self.receipts.place(partition)
            found = self.receipts.read(reader, {place: self.begins[place]})
        except Exception:
            drop(key)
            raise
        mine = [(r, offset) for r, offset in found if r.partition == partition and r.time_ms >= self.time_ms]
        return Written(mine[-1][0].digest, mine[-1][1]) if mine else None

    def _commit(self, transaction: Transaction, partition: int, spool: Spool) -> Written:
        """Write the records and the receipt in the transaction, and commit it."""
        receipts, digest = self.receipts, spool.digest
        receipt = KafkaReceipt(
            partition,
            self.num_partitions,
            self.time_ms,
            self.nonce,
            digest.records,
            hashing(),
            receipts.fence.epoch,
            receipts.fence.writer,
            digest,
        )
        offsets: list[int] = []
        transaction.begin()
        for topic, key, value, headers, to, timestamp in spool.records():
            transaction.send(topic, key, value, headers, to, timestamp)
        transaction.flush()
        transaction.send(
            receipts.topic,
            receipt_key(receipts.job, receipts.output, partition),
            encode_receipt(receipt),
            partition=receipts.place(partition),
            on_stored=lambda _, offset: offsets.append(offset),
        )
        transaction.flush()
        transaction.commit()
        return Written(digest, offsets[-1])


def _begun(call: Callable[[], None]) -> Future[None]:
    """Run a call in a thread of its own."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            call()
            future.set_result(None)
        except BaseException as e:
            future.set_exception(e)

    Thread(target=run, name="KafkaTransaction-open", daemon=True).start()
    return future
