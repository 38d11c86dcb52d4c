"""KafkaPartitionWriter: writes the partitions of a batch in tasks, each in one transaction with its receipt.

A task runs the user's code to its end, and keeps what is to be written. Only then it begins the transaction. So a transaction is as long as
Kafka needs, and an error of the user's code writes nothing. An empty partition needs neither a transaction nor a receipt.

The task takes the transactional id, and writes the records and the receipt. Only then it looks whether this driver may write, and whether
another attempt has written the partition. A new driver writes its fence, then takes the ids, then reads the receipts. So a task of an
earlier driver sees the fence, or is fenced itself, or the driver sees its receipt. The fence is in the log of the receipts, too. There each
of the two reads up to its own record, which no old answer has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from time import monotonic, perf_counter, sleep
from typing import Any

from kstream.batch import OutputFigures
from kstream.sinks.receipt import check_hashing, hashing
from kstream.worker.process import begin_task, once
from kstream_kafka.client.own_thread import begun
from kstream_kafka.client.transaction import THREAD, Transaction
from kstream_kafka.errors import KafkaError, ProducerFencedError, ReceiptsLostError
from kstream_kafka.sink.comparison import Recomputed
from kstream_kafka.sink.producer_record import Encoded
from kstream_kafka.sink.receipt import FENCES, KafkaReceipt, encode_receipt, receipt_key
from kstream_kafka.sink.receipts import READ_S, FoundReceipt, Receipts, kept_reader
from kstream_kafka.sink.spool import Spool, digests_of, time_for

WAIT_S = 0.5
"""Seconds between two looks for the receipt of another attempt."""

END_S = 5.0
"""Seconds to wait for the end of the fences. Without an answer they are read."""


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
        alone: the partitions whose own receipt of the batch before is directly before `begins`, and the only one of that batch there.
        timeout_ms: the time-out of a transaction. One with more bytes has a longer one.
        wanted: the partitions that are to be written; None for all. The others are only computed, for inputs that report on all records,
            and to be compared.
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
    alone: frozenset[int]
    timeout_ms: int
    wanted: frozenset[int] | None
    is_first_try: bool
    hashing: int | None = None

    def __call__(self, partition: int, records: Iterable[Encoded]) -> Iterator[FoundReceipt | Recomputed | None]:
        """Write a partition. Yield its receipt, None if it is empty; or what it has now, if it is written."""
        begin_task()
        if self.wanted is not None and partition not in self.wanted:
            yield Recomputed(partition, digests_of(records))
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
                    opened = begun(transactions[0].open, THREAD)
                spool.add(record)
            if not spool.digests:
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
            return replace(self._by_another_attempt(partition, e), figures=OutputFigures(fenced_attempts=1))
        finally:
            if opened is None or opened.done():
                for transaction in transactions:
                    transaction.close()
            else:  # an error of the user's code came first, and nobody waits until the transaction is open
                opened.add_done_callback(lambda _: transactions[0].close())
            spool.close()

    def _transaction(self, partition: int, timeout_ms: int) -> Transaction:
        return Transaction(self.producer, self.receipts.transactional_id(partition), timeout_ms, self.receipts.topic)

    def _timeout_ms(self, spool: Spool) -> int:
        """Return the time-out of a transaction that is long enough for what is to be written."""
        return time_for(sum(digest.bytes for digest in spool.digests.values()), self.timeout_ms)

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

    def _is_alone(self, partition: int, offset: int) -> bool:
        """Return whether nothing can be there that a look would find. One request in place of a read; False is always right. Blocks.

        Behind an own receipt of the batch before comes the control record of its transaction: it is written before this attempt gets the
        transactional id. So one offset is that record, and more may be a fence, or another receipt.

        Args:
            partition: the partition.
            offset: that of the receipt of this attempt.
        """
        if offset - self.begins[self.receipts.place(partition)] != (1 if partition in self.alone else 0):
            return False
        with kept_reader(self.consumer) as reader:
            return reader.end(self.receipts.topic, FENCES, END_S) == self._fences_read()[0]

    def _fences_read(self) -> list[int]:
        """Return, as the only element, the offset before which no fence of a later driver is, as far as this process knows."""
        return once(("fences", self.receipts), lambda: [self.receipts.fences_end])

    def _look(self, partition: int, seconds: float, until: int | None = None, waits: bool = True) -> FoundReceipt | None:
        """Return the receipt of a partition; None without one. Blocks. Errors as `Receipts.look`.

        Args:
            partition: the partition.
            seconds: how long to wait.
            until: the offset that must be reached in the log of the receipts; None for its end.
            waits: False ends the look at an open transaction.
        """
        place = self.receipts.place(partition)
        with kept_reader(self.consumer) as reader:
            targets = None if until is None else {place: until}
            found = self.receipts.look(reader, {place: self.begins[place]}, seconds, targets, waits)
        fences = self._fences_read()
        fences[0] = max(fences[0], found.ends[FENCES])
        mine = [one for one in found.receipts if one.receipt.partition == partition and one.receipt.time_ms >= self.time_ms]
        return mine[-1] if mine else None

    def _commit(self, transaction: Transaction, partition: int, spool: Spool) -> FoundReceipt:
        """Write the records and the receipt in the transaction, and commit it. Return the receipt.

        The look before the commit decides. An answer of a broker that was away has not this receipt, so it cannot end the look.
        """
        receipts, digests = self.receipts, spool.digests
        receipt = KafkaReceipt(
            partition,
            self.num_partitions,
            self.time_ms,
            self.nonce,
            sum(digest.records for digest in digests.values()),
            hashing(),
            receipts.fence.epoch,
            receipts.fence.writer,
            digests,
        )
        place, offsets = receipts.place(partition), list[int]()
        transaction.begin()
        transaction.send_all(spool.records())
        key = receipt_key(receipts.job, receipts.output, partition)
        transaction.send((receipts.topic, key, encode_receipt(receipt), (), place, None), lambda _, at: offsets.append(at))
        transaction.flush()
        if not offsets:
            raise transaction.failure() or KafkaError(f"output {receipts.output}: the receipt of partition {partition} was not stored")
        if offsets[-1] < self.begins[place]:
            raise ReceiptsLostError(receipts.output, receipts.topic, f"topic {receipts.topic} was deleted and made anew")
        if not self._is_alone(partition, offsets[-1]):
            there = self._look(partition, self.timeout_ms / 2000, offsets[-1])
            if there is not None:
                return there
        begin = perf_counter()
        transaction.commit()
        measured = OutputFigures(
            transactions=1,
            written_bytes=sum(digest.bytes for digest in digests.values()),
            spooled_bytes=spool.bytes_in_file,
            commit_p99_ms=round((perf_counter() - begin) * 1000),
        )
        return FoundReceipt(receipt, place, offsets[-1], measured)
