"""QueryBatches: writes each batch of a query in one transaction with its receipt. It runs where Spark commits a batch, beside the driver.

The process of a commit knows nothing of the commits before it. So each one takes the transactional id of the query, and reads the receipt.
Who has taken the id ends the transactions of earlier processes, and they can write no more. It looks for another receipt once more between
its own receipt and its commit: that look ends at its own record, which an old answer of a broker does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass

from kstream.worker.process import once
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams, small
from kstream_kafka.client.transaction import Transaction
from kstream_kafka.errors import KafkaError
from kstream_kafka.sink.broker_probe import check_is_broker, check_transactions
from kstream_kafka.sink.producer_record import Encoded
from kstream_kafka.sink.query_receipt import (
    QueryReceipt,
    decode_query_receipt,
    encode_query_receipt,
    is_written,
    query_key,
    query_place,
)
from kstream_kafka.sink.receipt import FENCES
from kstream_kafka.sink.receipts import READ_S, kept_reader, where
from kstream_kafka.sink.receipts_topic import ReceiptsTopic
from kstream_kafka.sink.spool import DigestSum, digests_of, time_for

Records = Callable[[], Iterable[Encoded]]
"""Gives the records of a batch, the same ones at each call."""


@dataclass(slots=True)
class _Known:
    """What a process knows of the receipt of a query.

    Attributes:
        place: the partition of the topic that has it.
        offset: that of the newest one that this process has written; 0 without one.
    """

    place: int
    offset: int


class QueryBatches:
    """Writes batches of one query. One thread. All methods block on the brokers."""

    def __init__(self, params: KafkaParams, prefix: str, query: str, *, keeps: bool = False) -> None:
        """
        Args:
            params: the Kafka parameters.
            prefix: begins the name of the topic of the receipts, and the transactional id.
            query: the id of the query.
            keeps: whether a batch that is written stands, though it has other records now.
        """
        self._params = params
        self._consumer = small(params.from_leaders())
        self._query = query
        self._keeps = keeps
        self._id = query_id(prefix, query)
        self._topic = ReceiptsTopic(params, prefix, f"query {query}")

    def write(self, batch: int, records: Records, num_bytes: int, *, is_empty: bool = False) -> bool:
        """Write a batch, unless Kafka has it. Return whether it was written now.

        A batch without records has no receipt. It is only compared: at an earlier try it may have had some.

        Args:
            batch: the id of the batch.
            records: gives its records.
            num_bytes: how many bytes they have, about.
            is_empty: whether there is none.

        Raises:
            OutputChangedError: the newest receipt is of a later batch, or of this one with other records.
            ProducerFencedError: another process has taken the transactional id.
            CommitUnknownError: the commit had no answer. Another call finds the receipt, or writes the batch.
            KafkaConfigError: the brokers do not keep what transactions promise, or the topic cannot have receipts.
            KafkaError: the brokers do not answer, or refuse this client or a record.
        """
        known = self._known()
        transaction = Transaction(self._params.sink(), self._id, time_for(num_bytes, self._params.transaction_ms), self._topic.name)
        try:
            transaction.open()
            found, end = self._newest(known.place, known.offset)
            if found is not None and found.batch >= batch:
                return not is_written(found, QueryReceipt(self._query, batch, digests_of(records())), self._keeps)
            if is_empty:
                return False
            if found is None:
                with kept_reader(self._consumer) as reader:
                    check_transactions(self._params, reader, self._topic.name, FENCES, f"{self._id}-probe", READ_S)
            return self._commit(transaction, known, batch, end, records())
        finally:
            transaction.close()

    def _commit(self, transaction: Transaction, known: _Known, batch: int, begin: int, records: Iterable[Encoded]) -> bool:
        """Write the records and the receipt, look for another receipt, and commit. Returns and raises as `write`.

        Args:
            transaction: has taken the id.
            known: what this process knows of the receipt.
            batch: the id of the batch.
            begin: an offset before which no receipt is that was not looked at.
            records: the records.
        """
        summed, offsets = DigestSum(), list[int]()
        transaction.begin()
        transaction.send_all(summed.passing(records))
        mine = QueryReceipt(self._query, batch, summed.digests)
        form = encode_query_receipt(mine)
        transaction.send((self._topic.name, query_key(self._query), form, (), known.place, None), lambda _, at: offsets.append(at))
        transaction.flush()
        if not offsets:
            raise transaction.failure() or KafkaError(f"query {self._query}: the receipt of batch {batch} was not stored")
        if offsets[-1] < begin:
            raise self._topic.lost(f"topic {self._topic.name} was deleted and made anew")
        late, _ = self._newest(known.place, begin, offsets[-1])
        if is_written(late, mine, self._keeps):
            return False
        transaction.commit()
        known.offset = offsets[-1]
        return True

    def _newest(self, place: int, begin: int, until: int | None = None) -> tuple[QueryReceipt | None, int]:
        """Return the newest receipt of the query from an offset on, None without one; and the end of what was read. Blocks.

        Args:
            place: the partition of the topic.
            begin: the offset.
            until: the offset that must be reached; None for the end of the log.
        """
        key = query_key(self._query)
        seconds = READ_S + self._params.transaction_ms / 1000  # another query may have its transaction open there
        targets = None if until is None else {place: until}
        with kept_reader(self._consumer) as reader:
            log = reader.read(self._topic.name, {place: begin}, seconds, lambda found: found == key, targets)
        receipts = [decode_query_receipt(self._query, message.value(), where(message)) for message in log.messages if message.value()]
        return (receipts[-1] if receipts else None), log.ends[place]

    def _known(self) -> _Known:
        """Return what this process knows of the receipt. The first call makes the topic of the receipts, if there is none."""
        key = ("query", str(self._params.settings["bootstrap.servers"]), self._topic.name, self._query)
        return once(key, self._looked_up)

    def _looked_up(self) -> _Known:
        with closing(KafkaDriverClient(self._params)) as client:
            check_is_broker(client)
            _, places = self._topic.found(client, None)
        return _Known(query_place(self._query, len(places)), 0)


def write_at_once(params: KafkaParams, transactional_id: str, records: Iterable[Encoded], num_bytes: int) -> None:
    """Write records in one transaction, without a receipt. Blocks on the brokers.

    Args:
        params: the Kafka parameters.
        transactional_id: one that nobody else uses.
        records: the records.
        num_bytes: how many bytes they have, about.

    Raises:
        CommitUnknownError: the commit had no answer.
        KafkaConfigError: the brokers have no transactions.
        KafkaError: the brokers do not answer, or refuse this client or a record.
    """
    with closing(KafkaDriverClient(params)) as client:
        check_is_broker(client)
    transaction = Transaction(params.sink(), transactional_id, time_for(num_bytes, params.transaction_ms), "")
    try:
        transaction.open()
        transaction.begin()
        transaction.send_all(records)
        transaction.flush()
        transaction.commit()
    finally:
        transaction.close()


def query_id(prefix: str, query: str) -> str:
    """Return the transactional id of a query: the same for all its batches and drivers."""
    return f"{prefix}-query-{query}"
