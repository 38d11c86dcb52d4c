"""Receipts of queries: which batch of a query of Structured Streaming is written, and their stored form. Pure.

A query has one receipt, in the topic of the receipts. It is written in the transaction that has all records of the batch. So a batch is
written as a whole or not at all, and the partitions of its frame do not matter: at its next try Spark may divide the records otherwise.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

from kstream.errors import OutputChangedError
from kstream.offsets.topic_offsets import TopicOffsets
from kstream_kafka.sink.query_sources import SourceOffsets, difference
from kstream_kafka.sink.receipt import FENCES, Digests, decoded, digests_in, encoded

PLACES = 16
"""The partitions of the topic that may have receipts of queries. More of them do not change the partition of a query."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class QueryReceipt:
    """A batch of a query that is written to Kafka.

    Attributes:
        query: the id of the query. It is in the query's checkpoint.
        batch: the id of the batch.
        digests: what is written.
        sources: where the batch ends in its Kafka sources; empty if the checkpoint was out of reach.
    """

    query: str
    batch: int
    digests: Digests
    sources: SourceOffsets = field(default_factory=dict[str, TopicOffsets])

    @property
    def num_records(self) -> int:
        return sum(digest.records for digest in self.digests.values())


def query_place(query: str, num_places: int) -> int:
    """Return the partition of the topic that has the receipt of a query.

    Args:
        query: the id of the query.
        num_places: how many partitions of the topic may have receipts.
    """
    return FENCES + 1 + zlib.crc32(query.encode()) % min(num_places, PLACES)


def query_key(query: str) -> bytes:
    return encoded(["query", query])


def encode_query_receipt(receipt: QueryReceipt) -> bytes:
    form: dict[str, Any] = {"batch": receipt.batch, "records": receipt.num_records, "topics": receipt.digests, "version": _VERSION}
    return encoded({**form, "sources": receipt.sources} if receipt.sources else form)


def decode_query_receipt(query: str, value: bytes, where: str) -> QueryReceipt:
    """Return the receipt that a record has. CorruptRecordError if it has none.

    Args:
        query: the id of the query, from the key.
        value: the value of the record.
        where: topic, partition and offset, for the message.
    """
    with decoded(value, where, _VERSION) as form:
        return QueryReceipt(query, form["batch"], digests_in(form), dict(form.get("sources", {})))


def check_written(found: QueryReceipt | None, batch: QueryReceipt, keeps: bool = False) -> bool:
    """Check a batch of a query against the newest receipt of the query. Return whether Kafka has the batch.

    Args:
        found: the newest receipt of the query; None without one.
        batch: the batch, with what it has now.
        keeps: whether a batch that is written stands, though it has other records now.

    Raises:
        OutputChangedError: the receipt is of a later batch, or of this one with other sources or other records.
    """
    if found is None or found.batch < batch.batch:
        return False
    if found.batch > batch.batch:
        raise OutputChangedError(
            f"query {batch.query}: Kafka has its batch {found.batch}, and the query writes batch {batch.batch}: its checkpoint is older "
            "than what was written. Use the newest checkpoint. Or begin a query with a new one",
            output=batch.query,
        )
    if found.sources and batch.sources and (moved := difference(found.sources, batch.sources)) is not None:
        raise OutputChangedError(
            f"query {batch.query}: batch {batch.batch} is written with {_told(found.digests)}, and it has {_told(batch.digests)} now: "
            f"{moved}. Its checkpoint was changed. Restore it. Or begin a query with a new one",
            output=batch.query,
        )
    if found.digests != batch.digests and not keeps:
        raise OutputChangedError(
            f"query {batch.query}: batch {batch.batch} is written with {_told(found.digests)}, and it has {_told(batch.digests)} now: "
            "the code of the query, or what it reads, has changed. Start the query as it was, or keep what is written: outputChanged=keep",
            output=batch.query,
        )
    return True


def check_lineage(found: QueryReceipt, mine: SourceOffsets) -> None:
    """Raise OutputChangedError if a receipt is of another copy of the checkpoint, whose batch had other offsets. Pure.

    Args:
        found: the receipt of an earlier batch.
        mine: where that batch ends in this checkpoint; empty if that is not known.
    """
    if found.sources and mine and (moved := difference(found.sources, mine)) is not None:
        raise OutputChangedError(
            f"query {found.query}: Kafka has its batch {found.batch} of another copy of its checkpoint: {moved}. Use the newest "
            "checkpoint. Or begin a query with a new one",
            output=found.query,
        )


def _told(digests: Digests) -> str:
    """Return counts and sums as a message has them."""
    parts = [
        f"{digest.records} records of {digest.bytes} bytes for {topic} (keys {digest.keys:x}, values {digest.values:x})"
        for topic, digest in sorted(digests.items())
    ]
    return " and ".join(parts) or "no record"
