"""BareWriter: the tasks' half of the Kafka sink without digests and without a receipt, to measure what these cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest import mock

from kstream_kafka.client.transaction import Transaction
from kstream_kafka.sink import spool
from kstream_kafka.sink.partition_writer import KafkaPartitionWriter
from kstream_kafka.sink.producer_record import Encoded
from kstream_kafka.sink.receipt import Digest, KafkaReceipt
from kstream_kafka.sink.receipts import FoundReceipt
from kstream_kafka.sink.spool import Spool


class RecordCount:
    """Stands for `DigestSum`: it only counts records, and tells how large they are in memory. All are for one topic."""

    def __init__(self) -> None:
        self._records = 0
        self._topic = ""

    def add(self, record: Encoded) -> int:
        self._records += 1
        self._topic = record[0]
        return len(record[2] or b"")

    @property
    def digests(self) -> dict[str, Digest]:
        return {self._topic: Digest(self._records)} if self._records else {}


class BareWriter(KafkaPartitionWriter):
    """A transaction with the records alone. It may run once only: nothing would tell a second attempt."""

    def _write(self, partition: int, records: Iterable[Encoded]) -> Any:
        with mock.patch.object(spool, "DigestSum", RecordCount):
            return super()._write(partition, records)

    def _commit(self, transaction: Transaction, partition: int, spool: Spool) -> FoundReceipt:
        transaction.begin()
        transaction.send_all(spool.records())
        transaction.commit()
        counted, fence = spool.digests, self.receipts.fence
        receipt = KafkaReceipt(partition, self.num_partitions, self.time_ms, self.nonce, 0, 0, fence.epoch, fence.writer, counted)
        return FoundReceipt(receipt, self.receipts.place(partition), 0)
