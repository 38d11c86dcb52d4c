"""AuditEntry: what an output tells of a batch that it has written, and its stored form. Pure.

    key    ["batch", job, output], or ["query", id] of a query of Structured Streaming
    value  {"batch": time in ms, "ends": {topic: [end of the log of partition 0, …]}, "epoch": of the driver,
            "inputs": {stream: [[topic, partition, from, until], …]}, "kept": [partition, …], "partitions": how many, "plan": nonce,
            "topics": {topic: [records, bytes, keys, values]}, "version": 1}

An entry is written when all partitions of the batch are committed, and before its completion is stored. So each completed batch with input
or output has one, and a batch whose driver died in between has several. An entry says what receipts cannot: which input records the batch
has, and between which offsets its output is. An entry of batch 0 says where the first batch begins.

The entry of a batch of a query is in the transaction that has its records. So each batch with records has one, and a second one would say
that it is there twice. Its batch is the id of Spark, and the entry that says where the first batch begins has the batch -1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kstream.output import Writer
from kstream_kafka.sink.query_receipt import QueryReceipt
from kstream_kafka.sink.receipt import Digest, Digests, decoded, digests_in, encoded, parsed_key

InputRanges: TypeAlias = Mapping[str, Sequence[tuple[str, int, int, int]]]
"""number of the stream → topic, partition, first offset, and the offset behind the last one. Ranges without a record are left out."""
QUERY = "query"
"""Stands for the name of the output of a query. Its job is the id of the query."""
_VERSION = 1
_BEFORE_QUERY = -1


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A batch that an output has written.

    Attributes:
        job: identifies the job, or the query.
        output: the name of the output; QUERY of a query.
        epoch: of the driver.
        time_ms: the batch; of a query its id.
        nonce: of its plan.
        num_partitions: how many partitions it has.
        digests: of the records that are written.
        ends: topic → the ends of its partitions when all of the batch was written.
        inputs: the records that the batch has read.
        kept: the partitions that stand as an earlier try has written them, though their records may have moved since.
        is_query: whether it is of a query of Structured Streaming.
    """

    job: str
    output: str
    epoch: int
    time_ms: int = 0
    nonce: str = ""
    num_partitions: int = 0
    digests: Digests = field(default_factory=dict[str, Digest])
    ends: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    inputs: InputRanges = field(default_factory=dict[str, Sequence[tuple[str, int, int, int]]])
    kept: Sequence[int] = ()
    is_query: bool = False

    @property
    def is_batch(self) -> bool:
        """Whether this is the entry of a batch, and not that of the beginning."""
        return self.time_ms != (_BEFORE_QUERY if self.is_query else 0)

    @property
    def moment(self) -> str:
        """The batch, for people."""
        return str(self.time_ms) if self.is_query else f"{self.time_ms} ms"


def beginning(driver: Writer, output: str, topic: str) -> AuditEntry:
    """Return the entry before the first batch, which says where the records of that batch begin.

    Args:
        driver: the driver.
        output: the name of the output.
        topic: the topic that is written.
    """
    return AuditEntry(driver.job, output, driver.epoch, digests={topic: Digest()})


def query_beginning(query: str, ends: Mapping[str, Sequence[int]]) -> AuditEntry:
    """Return the entry before the first batch of a query.

    Args:
        query: the id of the query.
        ends: topic → the ends of its partitions before the batch.
    """
    return AuditEntry(query, QUERY, 0, _BEFORE_QUERY, ends=ends, digests=dict.fromkeys(ends, Digest()), is_query=True)


def query_entry(receipt: QueryReceipt, ends: Mapping[str, Sequence[int]], inputs: InputRanges) -> AuditEntry:
    """Return the entry of a batch of a query.

    Args:
        receipt: that of the batch.
        ends: topic → the ends of its partitions when all of the batch is stored.
        inputs: what the batch has read, as far as it is known.
    """
    return AuditEntry(receipt.query, QUERY, 0, receipt.batch, "", 1, receipt.digests, ends, inputs, is_query=True)


def audit_key(job: str, output: str) -> bytes:
    return encoded(["batch", job, output])


def key_of(entry: AuditEntry) -> bytes:
    """Return the key of an entry."""
    return encoded(["query", entry.job]) if entry.is_query else audit_key(entry.job, entry.output)


def encode_entry(entry: AuditEntry) -> bytes:
    """Return the value of the record. `decode_entry` makes an equal entry of it."""
    return encoded(
        {
            "batch": entry.time_ms,
            "ends": entry.ends,
            "epoch": entry.epoch,
            "inputs": entry.inputs,
            "kept": entry.kept,
            "partitions": entry.num_partitions,
            "plan": entry.nonce,
            "topics": entry.digests,
            "version": _VERSION,
        }
    )


def entry_of(key: bytes | None, value: bytes, place: str) -> AuditEntry | None:
    """Return the entry that a record is; None for one of another kind. Arguments and errors as `decode_entry`; the key is the record's."""
    match parsed_key(key):
        case ["batch", str(job), str(output)]:
            return decode_entry(job, output, value, place)
        case ["query", str(query)]:
            return replace(decode_entry(query, QUERY, value, place), is_query=True)
        case _:
            return None


def decode_entry(job: str, output: str, value: bytes, place: str) -> AuditEntry:
    """Return the entry that a record has. CorruptRecordError if it has none.

    Args:
        job, output: from the key.
        value: the value of the record.
        place: topic, partition and offset, for the message.
    """
    with decoded(value, place, _VERSION) as form:
        return AuditEntry(
            job,
            output,
            form["epoch"],
            form["batch"],
            form["plan"],
            form["partitions"],
            digests_in(form),
            form["ends"],
            {stream: [(t, p, begin, end) for t, p, begin, end in ranges] for stream, ranges in form["inputs"].items()},
            form["kept"],
        )
