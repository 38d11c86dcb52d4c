"""AuditEntry: what an output tells of a batch that it has written, and its stored form. Pure.

    key    ["batch", job, output]
    value  {"batch": time in ms, "ends": {topic: [end of the log of partition 0, …]}, "epoch": of the driver,
            "inputs": {stream: [[topic, partition, from, until], …]}, "kept": [partition, …], "partitions": how many, "plan": nonce,
            "topics": {topic: [records, bytes, keys, values]}, "version": 1}

An entry is written when all partitions of the batch are committed, and before its completion is stored. So each completed batch with input
or output has one, and a batch whose driver died in between has several. An entry says what receipts cannot: which input records the batch
has, and between which offsets its output is. An entry of batch 0 says where the first batch begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kstream.output import Writer
from kstream_kafka.sink.receipt import Digest, Digests, decoded, digests_in, encoded, parsed_key

InputRanges: TypeAlias = Mapping[str, Sequence[tuple[str, int, int, int]]]
"""number of the stream → topic, partition, first offset, and the offset behind the last one. Ranges without a record are left out."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A batch that an output has written.

    Attributes:
        job: identifies the job.
        output: the name of the output.
        epoch: of the driver.
        time_ms: the batch.
        nonce: of its plan.
        num_partitions: how many partitions it has.
        digests: of the records that are written.
        ends: topic → the ends of its partitions when all of the batch was written.
        inputs: the records that the batch has read.
        kept: the partitions that stand as an earlier try has written them, though their records may have moved since.
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

    @property
    def is_batch(self) -> bool:
        """Whether this is the entry of a batch, and not that of the beginning."""
        return bool(self.time_ms)


def beginning(driver: Writer, output: str, topic: str) -> AuditEntry:
    """Return the entry before the first batch, which says where the records of that batch begin.

    Args:
        driver: the driver.
        output: the name of the output.
        topic: the topic that is written.
    """
    return AuditEntry(driver.job, output, driver.epoch, digests={topic: Digest()})


def audit_key(job: str, output: str) -> bytes:
    return encoded(["batch", job, output])


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


def output_of(key: bytes | None) -> tuple[str, str] | None:
    """Return job and output of an entry; None for a record that is none."""
    match parsed_key(key):
        case ["batch", str(job), str(output)]:
            return job, output
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
