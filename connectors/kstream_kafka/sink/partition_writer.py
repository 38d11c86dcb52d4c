"""KafkaPartitionWriter: writes the partitions of a batch in tasks, each in one transaction with its receipt.

A task runs the user's code to its end, and keeps what is to be written. Only then it begins the transaction. So a transaction is as long as
Kafka needs, and an error of the user's code writes nothing. An empty partition needs neither a transaction nor a receipt.

The task takes the transactional id, and writes the records and the receipt. Only then it looks whether this driver may write, and whether
another attempt has written the partition. A new driver writes its fence, then takes the ids, then reads the receipts. So a task of an
earlier driver sees the fence, or is fenced itself, or the driver sees its receipt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from kstream.sinks.receipt import check_hashing, hashing
from kstream.worker.process import begin_task, drop, once
from kstream_kafka.client.topic_reader import TopicReader
from kstream_kafka.client.transaction import Transaction, begun
from kstream_kafka.errors import KafkaError, ProducerFencedError
from kstream_kafka.reader.consumer_cache import settings_key
from kstream_kafka.sink.producer_record import Encoded
from kstream_kafka.sink.receipt import KafkaReceipt, encode_receipt, receipt_key
from kstream_kafka.sink.receipts import READ_S, FoundReceipt, Receipts
from kstream_kafka.sink.spool import Spool

WAIT_S = 0.5
"""Seconds between two looks for the receipt of another attempt."""

SLOW = 1_000_000
"""Bytes a second that a slow connection to the brokers writes. The time-out of a transaction allows for it."""


@dataclass(frozen=True)
class KafkaPartitionWriter:
    """Writes partitions. Pickled into the tasks.

    Attributes:
        receipts: where the receipts are.
        producer: complete producer properties.
        consumer: complete consumer properties, for the receipts.
        time_ms: the batch.
        nonce: of its plan.
        num_partitions: how many it has.
        begins: where to look for receipts of this batch: partition of the topic → offset.
        timeout_ms: the time-out of a transaction. One with more bytes has a longer one.
        wanted: the partitions that are to be written; None for all. The others are only computed.
        hashing: that of the receipts of this batch; None without any.
        is_first_try: whether no task of the batch can have run before. Then a first attempt takes its id beside the user's code.
    """

    receipts: Receipts
    producer: Mapping[str, Any]
    consumer: Mapping[str, Any]
    time_ms: int
    nonce: str
    num_partitions: int
    begins: Mapping[int, int]
    timeout_ms: int
    wanted: frozenset[int] | None
    is_first_try: bool
    hashing: int | None = None

    def __call__(self, partition: int, records: Iterable[Encoded]) -> Iterator[FoundReceipt | None]:
        """Write a partition. Yield its receipt; None if it is empty, or was written before and is only computed."""
        begin_task()
        if self.wanted is not None and partition not in self.wanted:
            for _ in records:  # inputs report on all records of a batch
                pass
            yield None
            return
        check_hashing(self.hashing, self.receipts.output, self.time_ms)
        yield self._write(partition, records)

    def _write(self, partition: int, records: Iterable[Encoded]) -> FoundReceipt | None:
        from pyspark import TaskContext

        task = TaskContext.get()
        is_first = self.is_first_try and (task is None or task.attemptNumber() == 0)
        transactions = [self._transaction(partition, self.timeout_ms)]
        spool = Spool()
        opened: Future[None] | None = None
        try:
            for record in records:
                if is_first and opened is None:
                    opened = begun(transactions[0].open)
                spool.add(record)
            if not spool.digest.records:
                return None
            if opened is not None:
                opened.result()
            elif (there := self._look(partition, READ_S, waits=False)) is not None:  # who died in a transaction left it open
                return there
            if opened is None or self._timeout_ms(spool) > self.timeout_ms:
                transactions.append(self._transaction(partition, self._timeout_ms(spool)))
                transactions[-1].open()
            return self._commit(transactions[-1], partition, spool)
        except ProducerFencedError as e:
            return self._by_another_attempt(partition, e)
        finally:
            if opened is None or opened.done():
                for transaction in transactions:
                    transaction.close()
            else:  # an error of the user's code came first, and nobody waits until the transaction is open
                opened.add_done_callback(lambda _: transactions[0].close())
            spool.close()

    def _transaction(self, partition: int, timeout_ms: int) -> Transaction:
        return Transaction(self.producer, self.receipts.transactional_id(partition), timeout_ms)

    def _timeout_ms(self, spool: Spool) -> int:
        """Return the time-out of a transaction that is long enough for what is to be written."""
        return max(self.timeout_ms, spool.digest.bytes * 1000 // SLOW)

    def _by_another_attempt(self, partition: int, error: KafkaError) -> FoundReceipt:
        """Return the receipt of this partition, which another attempt writes, or this one has written before it lost its id. Blocks.

        This attempt does not take the transactional id back: two attempts would take it from each other without end.

        Args:
            partition: the partition.
            error: the error to raise if no receipt comes in the time of a transaction.

        Raises:
            FencedError, OutputChangedError: as `Receipts.look`.
        """
        until = monotonic() + self.timeout_ms / 1000
        while True:
            there = self._look(partition, READ_S + self.timeout_ms / 1000)
            if there is not None:
                return there
            if monotonic() > until:
                raise error
            sleep(WAIT_S)

    def _look(self, partition: int, seconds: float, until: int | None = None, waits: bool = True) -> FoundReceipt | None:
        """Return the receipt of a partition; None without one. Blocks. Errors as `Receipts.look`.

        Args:
            partition: the partition.
            seconds: how long to wait.
            until: the offset that must be reached in the log of the receipts; None for its end.
            waits: False ends the look at an open transaction.
        """
        key, place = ("receipts", settings_key(self.consumer)), self.receipts.place(partition)
        reader = once(key, lambda: TopicReader(self.consumer))
        try:
            targets = None if until is None else {place: until}
            found = self.receipts.look(reader, {place: self.begins[place]}, seconds, targets, waits).receipts
        except Exception:
            drop(key)
            raise
        mine = [one for one in found if one.receipt.partition == partition and one.receipt.time_ms >= self.time_ms]
        return mine[-1] if mine else None

    def _commit(self, transaction: Transaction, partition: int, spool: Spool) -> FoundReceipt:
        """Write the records and the receipt in the transaction, and commit it. Return the receipt.

        The look before the commit decides. An answer of a broker that was away has not this receipt, so it cannot end the look.
        """
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
        place, offsets = receipts.place(partition), list[int]()
        transaction.begin()
        for record in spool.records():
            transaction.send(*record)
        transaction.flush()
        key = receipt_key(receipts.job, receipts.output, partition)
        transaction.send(receipts.topic, key, encode_receipt(receipt), partition=place, on_stored=lambda _, at: offsets.append(at))
        transaction.flush()
        if not offsets:
            raise KafkaError(f"output {receipts.output}: the receipt of partition {partition} was not stored")
        there = self._look(partition, self.timeout_ms / 2000, offsets[-1])
        if there is not None:
            return there
        transaction.commit()
        return FoundReceipt(receipt, place, offsets[-1])
