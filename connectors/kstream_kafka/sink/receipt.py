"""Receipts and fences of the Kafka sink, and their stored form. Pure.

The topic of the receipts is compacted. Its partition 0 has the fences, the others have the receipts, and the fences again. Partition 0 also
names the batches that are accepted or given up. Keys and values are JSON.

A receipt is written in the transaction of the records of its partition. A fence names the driver that may write. It is written in no
transaction, so that everybody sees it at once.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from kstream.errors import CorruptRecordError
from kstream.sinks.receipt import Receipt

FENCES = 0
"""The partition of the topic that has no receipts: fences, what a person accepts, and the batches that are given up."""
MASK = (1 << 64) - 1
"""Sums of digests are modulo 2^64."""
_VERSION = 1


class Digest(NamedTuple):
    """A set of records, whatever their order: two sets with equal digests are taken as equal.

    Attributes:
        records: how many records.
        bytes: the sum of the bytes of their keys and values.
        keys, values: the sums over all keys, and over all values, modulo 2^64. A missing one adds 0, another one its CRC-32 plus 1.
    """

    records: int = 0
    bytes: int = 0
    keys: int = 0
    values: int = 0

    def plus(self, other: Digest) -> Digest:
        """Return the digest of the records of both."""
        return Digest(
            self.records + other.records, self.bytes + other.bytes, (self.keys + other.keys) & MASK, (self.values + other.values) & MASK
        )


Digests: TypeAlias = Mapping[str, Digest]
"""topic → the digest of the records that are written to it."""


def sum_of(all_digests: Iterable[Digests]) -> dict[str, Digest]:
    """Return the digests of the records of all of these."""
    found: dict[str, Digest] = {}
    for digests in all_digests:
        for topic, digest in digests.items():
            found[topic] = found.get(topic, Digest()).plus(digest)
    return found


@dataclass(frozen=True, slots=True)
class KafkaReceipt(Receipt):
    """A partition of a batch that is written to Kafka.

    Attributes:
        epoch: of the driver that has written it.
        writer: the nonce of that epoch.
        digests: what is written.
    """

    epoch: int
    writer: str
    digests: Digests


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


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A batch that no driver runs any more, because its plan was set aside.

    Attributes:
        time_ms: the batch.
        digests: what is written of it nevertheless.
    """

    time_ms: int
    digests: Digests

    @property
    def num_records(self) -> int:
        return sum(digest.records for digest in self.digests.values())


def place_of(output: str, partition: int, num_partitions: int) -> int:
    """Return the partition of the topic that has the receipts of a partition of an output.

    Args:
        output: the name of the output.
        partition: the partition of the RDD.
        num_partitions: how many partitions of the topic have receipts.
    """
    return FENCES + 1 + (zlib.crc32(output.encode()) + partition) % num_partitions


def receipt_key(job: str, output: str, partition: int) -> bytes:
    return encoded(["receipt", job, output, partition])


def fence_key(job: str, output: str, fence: Fence) -> bytes:
    """Return the key of a fence. Each driver has its own: one that is late with its fence would remove that of a later driver."""
    return encoded(["fence", job, output, fence.epoch, fence.writer])


def is_fence(key: bytes | None, job: str, output: str) -> bool:
    """Return whether a record is a fence of an output."""
    return key is not None and key.startswith(encoded(["fence", job, output])[:-1] + b",")


def acceptance_key(job: str, output: str) -> bytes:
    return encoded(["accept", job, output])


def given_up_key(job: str, output: str, time_ms: int) -> bytes:
    """Return the key of the record that says that a batch was given up. Each batch has its own: such records stay."""
    return encoded(["given-up", job, output, time_ms])


def is_given_up(key: bytes | None, job: str, output: str) -> bool:
    """Return whether a record says that a batch of an output was given up."""
    return key is not None and key.startswith(encoded(["given-up", job, output])[:-1] + b",")


def encode_receipt(receipt: KafkaReceipt) -> bytes:
    return encoded(
        {
            "batch": receipt.time_ms,
            "epoch": receipt.epoch,
            "hashing": receipt.hashing,
            "partitions": receipt.num_partitions,
            "plan": receipt.nonce,
            "records": receipt.num_records,
            "topics": receipt.digests,
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
    with decoded(value, place, _VERSION) as form:
        return KafkaReceipt(
            partition,
            form["partitions"],
            form["batch"],
            form["plan"],
            form["records"],
            form["hashing"],
            form["epoch"],
            form["writer"],
            digests_in(form),
        )


def digests_in(form: Mapping[str, Any]) -> Digests:
    """Return the digests of a stored form that has them."""
    return {topic: Digest(*numbers) for topic, numbers in form["topics"].items()}


def encode_fence(fence: Fence) -> bytes:
    return encoded({"epoch": fence.epoch, "partitions": fence.num_partitions, "version": _VERSION, "writer": fence.writer})


def decode_fence(value: bytes, place: str) -> Fence:
    """Return the fence that a record has. CorruptRecordError if it has none. Arguments as for `decode_receipt`."""
    with decoded(value, place, _VERSION) as form:
        return Fence(form["epoch"], form["writer"], form["partitions"])


def encode_acceptance(time_ms: int) -> bytes:
    """Return the value of a record that accepts what is written of a batch, though it differs from what the batch has now."""
    return encoded({"batch": time_ms, "version": _VERSION})


def decode_acceptance(value: bytes, place: str) -> int:
    """Return the batch that a record accepts, in ms. CorruptRecordError if it is none. Arguments as for `decode_receipt`."""
    with decoded(value, place, _VERSION) as form:
        return form["batch"]


def encode_given_up(batch: GivenUp) -> bytes:
    return encoded({"batch": batch.time_ms, "topics": batch.digests, "version": _VERSION})


def decode_given_up(value: bytes, place: str) -> GivenUp:
    """Return the batch that a record says to be given up. CorruptRecordError if it is none. Arguments as for `decode_receipt`."""
    with decoded(value, place, _VERSION) as form:
        return GivenUp(form["batch"], digests_in(form))


def partition_of(key: bytes | None, job: str, output: str) -> int | None:
    """Return the partition of the RDD that a record is the receipt of; None if it belongs to another output or job."""
    match parsed_key(key):
        case ["receipt", str(of_job), str(of_output), int(partition)] if (of_job, of_output) == (job, output):
            return partition
        case _:
            return None


def parsed_key(key: bytes | None) -> Any:
    """Return the JSON value of a key; None if it is none."""
    try:
        return json.loads(key or b"")
    except ValueError:
        return None


def encoded(form: Any) -> bytes:
    """Return the bytes of a key or of a value: JSON with sorted keys and without spaces."""
    return json.dumps(form, sort_keys=True, separators=(",", ":")).encode()


@contextmanager
def decoded(value: bytes, place: str, version: int) -> Generator[dict[str, Any]]:
    """Give the mapping that a value is. CorruptRecordError if it is none of this version, or lacks what the caller asks it for.

    Args:
        value: the value of the record.
        place: topic, partition and offset, for the message.
        version: of the form.
    """
    try:
        form: Any = json.loads(value)
    except ValueError as e:
        raise _damaged(place, str(e)) from e
    if not isinstance(form, dict) or form.get("version") != version:
        raise _damaged(place, "it is of another version, or of another program")
    try:
        yield form
    except KeyError as e:
        raise _damaged(place, f"it has no {e}") from e
    except (AttributeError, TypeError, ValueError) as e:
        raise _damaged(place, f"a part has another form: {e}") from e


def _damaged(place: str, reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"the record at {place} is none of kstream: {reason}", path=place, reason=reason)
