"""Receipts and fences of the Kafka sink, and their stored form. Pure.

The topic of the receipts is compacted. Its partition 0 has the fences, the others have the receipts, and the fences again. Keys and
values are JSON.

A receipt is written in the transaction of the records of its partition. A fence names the driver that may write. It is written in no
transaction, so that everybody sees it at once.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any

from kstream.errors import CorruptRecordError
from kstream.sinks.receipt import Receipt

FENCES = 0
"""The partition of the topic that has fences only."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Digest:
    """What a partition of a batch has written, whatever the order: two sets of records with equal digests are taken as equal.

    Attributes:
        records: how many records.
        bytes: the sum of the bytes of their keys and values.
        keys, values: the sums over all keys, and over all values, modulo 2^64. A missing one adds 0, another one its CRC-32 plus 1.
    """

    records: int = 0
    bytes: int = 0
    keys: int = 0
    values: int = 0


@dataclass(frozen=True, slots=True)
class KafkaReceipt(Receipt):
    """A partition of a batch that is written to Kafka.

    Attributes:
        epoch: of the driver that has written it.
        writer: the nonce of that epoch.
        digest: what is written.
    """

    epoch: int
    writer: str
    digest: Digest


@dataclass(frozen=True, slots=True)
class Fence:
    """The driver that may write.

    Attributes:
        epoch: its epoch.
        writer: the nonce of the epoch.
        num_partitions: how many partitions of the topic have receipts. It does not change while the job lives.
    """

    epoch: int
    writer: str
    num_partitions: int


def place_of(output: str, partition: int, num_partitions: int) -> int:
    """Return the partition of the topic that has the receipts of a partition of an output.

    Args:
        output: the name of the output.
        partition: the partition of the RDD.
        num_partitions: how many partitions of the topic have receipts.
    """
    return FENCES + 1 + (zlib.crc32(output.encode()) + partition) % num_partitions


def receipt_key(job: str, output: str, partition: int) -> bytes:
    return _encoded(["receipt", job, output, partition])


def fence_key(job: str, output: str, fence: Fence) -> bytes:
    """Return the key of a fence. Each driver has its own: one that is late with its fence would remove that of a later driver."""
    return _encoded(["fence", job, output, fence.epoch, fence.writer])


def is_fence(key: bytes | None, job: str, output: str) -> bool:
    """Return whether a record is a fence of an output."""
    return key is not None and key.startswith(_encoded(["fence", job, output])[:-1] + b",")


def encode_receipt(receipt: KafkaReceipt) -> bytes:
    digest = receipt.digest
    return _encoded(
        {
            "batch": receipt.time_ms,
            "bytes": digest.bytes,
            "epoch": receipt.epoch,
            "hashing": receipt.hashing,
            "keys": digest.keys,
            "partitions": receipt.num_partitions,
            "plan": receipt.nonce,
            "records": receipt.num_records,
            "values": digest.values,
            "version": _VERSION,
            "writer": receipt.writer,
        }
    )


def decode_receipt(partition: int, value: bytes, place: str) -> KafkaReceipt:
    """Return the receipt that a record has. CorruptRecordError if it has none.

    Args:
        partition: the partition of the RDD, from the key.
        value: the value of the record.
        place: topic, partition and offset, for the message.
    """
    form = _decoded(value, place)
    try:
        digest = Digest(form["records"], form["bytes"], form["keys"], form["values"])
        return KafkaReceipt(
            partition,
            form["partitions"],
            form["batch"],
            form["plan"],
            form["records"],
            form["hashing"],
            form["epoch"],
            form["writer"],
            digest,
        )
    except KeyError as e:
        raise _damaged(place, f"it has no {e}") from e


def encode_fence(fence: Fence) -> bytes:
    return _encoded({"epoch": fence.epoch, "partitions": fence.num_partitions, "version": _VERSION, "writer": fence.writer})


def decode_fence(value: bytes, place: str) -> Fence:
    """Return the fence that a record has. CorruptRecordError if it has none. Arguments as for `decode_receipt`."""
    form = _decoded(value, place)
    try:
        return Fence(form["epoch"], form["writer"], form["partitions"])
    except KeyError as e:
        raise _damaged(place, f"it has no {e}") from e


def partition_of(key: bytes | None, job: str, output: str) -> int | None:
    """Return the partition of the RDD that a record is the receipt of; None if it belongs to another output or job."""
    try:
        found: Any = json.loads(key or b"")
    except ValueError:
        return None
    match found:
        case ["receipt", str(of_job), str(of_output), int(partition)] if (of_job, of_output) == (job, output):
            return partition
        case _:
            return None


def _encoded(form: Any) -> bytes:
    return json.dumps(form, sort_keys=True, separators=(",", ":")).encode()


def _decoded(value: bytes, place: str) -> dict[str, Any]:
    try:
        form: Any = json.loads(value)
    except ValueError as e:
        raise _damaged(place, str(e)) from e
    if not isinstance(form, dict) or form.get("version") != _VERSION:
        raise _damaged(place, "it is of another version, or of another program")
    return form


def _damaged(place: str, reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"the record at {place} is no receipt of kstream: {reason}", path=place, reason=reason)
