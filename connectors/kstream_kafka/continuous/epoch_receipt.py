"""Receipts of epochs: up to where the input of a continuous task is written, and their stored form. Pure.

A partition of the input has one receipt for each output, in the topic of the receipts. It is written in the transaction of the epoch, so
the newest committed one is the truth. Before it is read, the reader writes a marker behind it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from kstream.offsets.offset_range import Partition
from kstream_kafka.sink.receipt import FENCES, Digests, decoded, digests_in, encoded, parsed_key

PLACES = 16
"""The partitions of the topic that may have receipts of epochs. More of them do not change the partition of a receipt."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class KafkaEpochReceipt:
    """An epoch of a continuous task that is written to Kafka, as a partition of its input knows it.

    Attributes:
        position: everything before it is written.
        generation: of the assignment by which the task had the partition.
        task: the number of the task.
        driver_epoch: of the driver that has made the assignment.
        digests: what the whole epoch has written.
    """

    position: int
    generation: int
    task: int
    driver_epoch: int
    digests: Digests


def epoch_place(output: str, partition: Partition, num_places: int) -> int:
    """Return the partition of the topic that has the receipts of a partition of the input.

    Args:
        output: the name of the output.
        partition: the partition of the input.
        num_places: how many partitions of the topic may have receipts.
    """
    topic, number = partition
    return FENCES + 1 + (zlib.crc32(encoded([output, topic])) + number) % min(num_places, PLACES)


def epoch_key(job: str, output: str, partition: Partition) -> bytes:
    return encoded([job, output, "epoch", *partition])


def marker_key(job: str, output: str) -> bytes:
    """Return the key of the markers of an output. A new one takes the place of an earlier one, which nobody reads."""
    return encoded([job, output, "epoch-marker"])


def is_epoch(key: bytes | None, job: str, output: str) -> bool:
    """Return whether a record is a receipt of an epoch of an output."""
    return key is not None and key.startswith(encoded([job, output, "epoch"])[:-1] + b",")


def input_partition_of(key: bytes | None, job: str, output: str) -> Partition | None:
    """Return the partition of the input that a record is the receipt of; None if it belongs to another output or job."""
    match parsed_key(key):
        case [str(of_job), str(of_output), "epoch", str(topic), int(number)] if (of_job, of_output) == (job, output):
            return topic, number
        case _:
            return None


def encode_epoch_receipt(receipt: KafkaEpochReceipt) -> bytes:
    return encoded(
        {
            "driver": receipt.driver_epoch,
            "generation": receipt.generation,
            "position": receipt.position,
            "task": receipt.task,
            "topics": receipt.digests,
            "version": _VERSION,
        }
    )


def decode_epoch_receipt(value: bytes, where: str) -> KafkaEpochReceipt:
    """Return the receipt that a record has. CorruptRecordError if it has none.

    Args:
        value: the value of the record.
        where: topic, partition and offset, for the message.
    """
    with decoded(value, where, _VERSION) as form:
        return KafkaEpochReceipt(form["position"], form["generation"], form["task"], form["driver"], digests_in(form))
