"""QueryBatches: writes each batch of a query in one transaction with its receipt. It runs where Spark commits a batch, beside the driver.

The process of a commit knows nothing of the commits before it. So each one takes the transactional id of the query, and reads the receipt.
Taking the id ends open transactions of earlier processes. Between its own receipt and its commit it looks for another receipt again.
The second look reads up to the process's own receipt; a stale broker does not have that record, so it cannot end the look too early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass

from kstream.storage import StorePlace
from kstream.worker.process import once
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams, small
from kstream_kafka.client.transaction import Transaction
from kstream_kafka.errors import KafkaError
from kstream_kafka.sink.audit import AuditEntry, encode_entry, key_of, query_beginning, query_entry
from kstream_kafka.sink.audit_topic import AuditTopic
from kstream_kafka.sink.broker_probe import check_is_broker, check_transactions
from kstream_kafka.sink.producer_record import Encoded
from kstream_kafka.sink.query_receipt import (
    QueryReceipt,
    check_lineage,
    check_written,
    decode_query_receipt,
    encode_query_receipt,
    query_key,
    query_place,
)
from kstream_kafka.sink.query_sources import NO_SOURCES, QuerySources
from kstream_kafka.sink.receipt import FENCES
from kstream_kafka.sink.receipts import READ_S, kept_reader, where
from kstream_kafka.sink.receipts_topic import ReceiptsTopic
from kstream_kafka.sink.spool import DigestSum, digests_of, time_for
from kstream_kafka.sink.stored_topic import StoredTopic, read_topic, store_topic

Records = Callable[[], Iterable[Encoded]]
"""Gives the records of a batch, the same ones at each call."""


@dataclass(slots=True)
class _ReceiptState:
    """What a process knows of the receipt of a query.

    Attributes:
        partition: the partition of the topic that has it.
        offset: that of the newest one that this process has written; 0 without one.
        topic: the topic, as its checkpoint is to say.
        has_receipt: whether the query has a receipt there.
        is_stored: whether its checkpoint says so.
        audit: the topic of the audit.
    """

    partition: int
    offset: int
    topic: StoredTopic
    has_receipt: bool
    is_stored: bool
    audit: AuditTopic


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch that is to be written. Attributes as the arguments of `QueryBatches.write`."""

    id: int
    records: Records
    sources: QuerySources


class QueryBatches:
    """Writes batches of one query. One thread. All methods block on the brokers."""

    def __init__(
        self,
        params: KafkaParams,
        prefix: str,
        query: str,
        topic: str | None = None,
        *,
        keeps: bool = False,
        audit: bool = True,
        notes: StorePlace | None = None,
    ) -> None:
        """
        Args:
            params: the Kafka parameters.
            prefix: begins the names of the topics of receipts and audit, and the transactional id.
            query: the id of the query.
            topic: the topic of all records; None if each record names its own.
            keeps: whether a batch that is written stands, though it has other records now.
            audit: whether each batch leaves an entry in the topic of the audit.
            notes: where it is stored that the query has receipts; None for nowhere.
        """
        self._params = params
        self._consumer = small(params.from_leaders())
        self._query = query
        self._prefix = prefix
        self._writes_to = topic
        self._keeps = keeps
        self._has_audit, self._notes = audit, notes
        self._id = query_id(prefix, query)
        self._topic = ReceiptsTopic(params, prefix, f"query {query}")

    def write(self, batch: int, records: Records, num_bytes: int, sources: QuerySources = NO_SOURCES, *, is_empty: bool = False) -> bool:
        """Write a batch, unless Kafka has it. Return whether it was written now.

        A batch without records has no receipt. It is only compared: at an earlier try it may have had some.

        Args:
            batch: the id of the batch.
            records: gives its records.
            num_bytes: how many bytes they have, about.
            sources: the Kafka sources of the query.
            is_empty: whether there is none.

        Raises:
            OutputChangedError: the newest receipt is of a later batch, or of this one with other sources or other records.
            ReceiptsLostError: the query had a receipt, and it is gone.
            ProducerFencedError: another process has taken the transactional id.
            CommitUnknownError: the commit had no answer. Another call finds the receipt, or writes the batch.
            KafkaConfigError: the brokers do not keep what transactions promise, or the topic cannot have receipts.
            KafkaError: the brokers do not answer, or refuse this client or a record.
        """
        state = self._state()
        transaction = Transaction(self._params.sink(), self._id, time_for(num_bytes, self._params.transaction_ms), self._topic.name)
        try:
            transaction.open()
            found, end = self._find_receipt(state)
            if found is not None:
                self._remember_receipt(state)
            if found is not None and found.batch >= batch:
                return not check_written(found, QueryReceipt(self._query, batch, digests_of(records()), sources.ends(batch)), self._keeps)
            if found is not None:
                check_lineage(found, sources.ends(found.batch))
            if is_empty:
                return False
            if found is None:
                with kept_reader(self._consumer) as reader:
                    check_transactions(self._params, reader, self._topic.name, FENCES, f"{self._id}-probe", READ_S)
            return self._commit(transaction, state, _Batch(batch, records, sources), found, end)
        finally:
            transaction.close()

    def _commit(self, transaction: Transaction, state: _ReceiptState, batch: _Batch, before: QueryReceipt | None, begin: int) -> bool:
        """Write the records, the receipt and the entry of the audit, look for another receipt, and commit. Returns and raises as `write`.

        Args:
            transaction: has taken the id.
            state: what this process knows of the receipt.
            batch: the batch.
            before: the receipt of an earlier batch; None if none was seen.
            begin: all receipts before this offset were read already.
        """
        summed, offsets = DigestSum(), list[int]()
        transaction.begin()
        if self._has_audit and before is None and self._writes_to is not None:
            self._send_audit(transaction, state, query_beginning(self._query, state.audit.ends([self._writes_to])))
        transaction.send_all(summed.passing(batch.records()))
        mine = QueryReceipt(self._query, batch.id, summed.digests, batch.sources.ends(batch.id))
        form = encode_query_receipt(mine)
        transaction.send((self._topic.name, query_key(self._query), form, (), state.partition, None), lambda _, at: offsets.append(at))
        transaction.flush()
        if not offsets:
            raise transaction.failure() or KafkaError(f"query {self._query}: the receipt of batch {batch.id} was not stored")
        if offsets[-1] < begin:
            raise self._topic.lost(f"topic {self._topic.name} was deleted and made anew")
        if self._has_audit:
            self._send_audit(transaction, state, query_entry(mine, state.audit.ends(mine.digests), batch.sources.ranges(batch.id)))
        late, _ = self._newest(state.partition, begin, offsets[-1])
        if check_written(late, mine, self._keeps):
            return False
        if late is not None:
            check_lineage(late, batch.sources.ends(late.batch))
        if late is None and before is None and state.has_receipt:
            raise self._topic.lost(f"topic {self._topic.name} has lost its receipt")
        transaction.commit()
        state.offset = offsets[-1]
        self._remember_receipt(state)
        return True

    def _find_receipt(self, state: _ReceiptState) -> tuple[QueryReceipt | None, int]:
        """As `_newest`, from what this process knows on. ReceiptsLostError if that is gone, and its topic with it."""
        try:
            return self._newest(state.partition, state.offset)
        except KafkaError:
            self._topic.check_is_there(state.topic.topic_id)
            raise

    def _remember_receipt(self, state: _ReceiptState) -> None:
        """Store that the query has a receipt, unless that is stored. Blocks on the store; raises nothing."""
        state.has_receipt = True
        state.is_stored = state.is_stored or store_topic(self._notes, self._query, state.topic)

    def _send_audit(self, transaction: Transaction, state: _ReceiptState, entry: AuditEntry) -> None:
        transaction.send((state.audit.name, key_of(entry), encode_entry(entry), (), 0, None))

    def _newest(self, partition: int, begin: int, until: int | None = None) -> tuple[QueryReceipt | None, int]:
        """Return the newest receipt of the query from an offset on, None without one; and the end of what was read. Blocks.

        Args:
            partition: that of the topic.
            begin: the offset.
            until: the offset that must be reached; None for the end of the log.
        """
        key = query_key(self._query)
        seconds = READ_S + self._params.transaction_ms / 1000  # another query may have its transaction open there
        targets = None if until is None else {partition: until}
        with kept_reader(self._consumer) as reader:
            log = reader.read(self._topic.name, {partition: begin}, seconds, lambda found: found == key, targets)
        receipts = [decode_query_receipt(self._query, message.value(), where(message)) for message in log.messages if message.value()]
        return (receipts[-1] if receipts else None), log.ends[partition]

    def _state(self) -> _ReceiptState:
        """Return what this process knows of the receipt. The first call makes the topic of the receipts, if there never was one."""
        key = ("query", str(self._params.settings["bootstrap.servers"]), self._topic.name, self._query)
        return once(key, self._load_state)

    def _load_state(self) -> _ReceiptState:
        with closing(KafkaDriverClient(self._params)) as client:
            check_is_broker(client)
            cluster = client.cluster_id() or ""
            stored = read_topic(self._notes, self._query, self._topic.name)
            is_stored = stored is not None and stored.cluster == cluster
            topic_id, partitions = self._topic.found(client, stored.topic_id if stored is not None and is_stored else None)
        topic = StoredTopic(cluster, self._topic.name, topic_id)
        partition, audit = query_place(self._query, len(partitions)), AuditTopic(self._params, self._prefix)
        return _ReceiptState(partition, 0, topic, is_stored, is_stored, audit)


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
