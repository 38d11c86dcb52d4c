"""Receipts: what a sink knows of the batches that an output has written to it, and what is still to be written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstream.batch_time import Time
from kstream.checkpoint.settings import CHECKPOINT_DIRECTORY
from kstream.errors import ConfigurationError, FencedError, OutputChangedError

if TYPE_CHECKING:
    from kstream.output import Writer


@dataclass(frozen=True, slots=True)
class Receipt:
    """A partition of a batch that is written.

    Attributes:
        partition: its number.
        num_partitions: how many the batch has.
        time_ms: the batch.
        nonce: that of the plan of the batch.
        num_records: how many records the partition has.
        hashing: the worker's hash of a fixed word. Another one means that keys go to other partitions.
    """

    partition: int
    num_partitions: int
    time_ms: int
    nonce: str
    num_records: int
    hashing: int


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """The newest batch that an output has written.

    Attributes:
        time_ms: its time.
        num_partitions: how many partitions it has.
        empty: those that had no records, and so no receipt.
    """

    time_ms: int
    num_partitions: int
    empty: frozenset[int] = frozenset()


_WORD = "kstream"


def hashing() -> int:
    """Return this process's hash of a fixed word; 0 if each process has another hash seed: then Spark partitions nothing by it."""
    return hash(_WORD) if os.environ.get("PYTHONHASHSEED", "random") != "random" else 0


def changed(output: str, words: str) -> OutputChangedError:
    """Return the error about a sink that has what it should not have: `words` say what, and what to do."""
    return OutputChangedError(f"output {output}: {words}", output=output)


def check_hashing(written: int | None, output: str, time_ms: int) -> None:
    """Raise OutputChangedError if this worker divides keys otherwise than those that have written a part of the batch.

    Args:
        written: the `hashing` of the receipts of the batch; None without any.
        output: the name of the output.
        time_ms: the batch.
    """
    if written not in (None, hashing()):
        raise changed(
            output,
            f"batch {time_ms} ms is half-written, and the workers divide keys otherwise now: start the job with the Python version and "
            "the PYTHONHASHSEED that it had, until this batch has ended",
        )


def check_has_checkpoint(output: str, writer: Writer) -> None:
    """Raise ConfigurationError for a driver without a checkpoint directory."""
    if not writer.job:
        raise ConfigurationError(
            f"output {output} needs a checkpoint directory: without it no restart knows which batches have run. Set one (ssc.checkpoint)",
            key=CHECKPOINT_DIRECTORY.key,
            value=None,
        )


def check_fence(output: str, path: str, own: tuple[int, str], found: tuple[int, str]) -> None:
    """Raise an error if the driver that a fence names keeps this one from writing.

    Args:
        output: the name of the output.
        path: where the fence is.
        own: epoch and nonce of this driver.
        found: those that the fence has.

    Raises:
        FencedError: a later driver may write.
        OutputChangedError: a driver of another copy of the checkpoint may write.
    """
    epoch, newer = own[0], found[0]
    if newer > epoch:
        raise FencedError(
            f"output {output}: another driver writes (epoch {newer}, this one has {epoch})", path=path, epoch=epoch, newer_epoch=newer
        )
    if found[1] != own[1]:
        raise changed(output, "a driver of another copy of this checkpoint writes. Use one of the copies only")


def check_is_of_checkpoint(output: str, found: tuple[int, str], nonce_of: Callable[[int], str | None]) -> None:
    """Raise OutputChangedError if the driver that a fence names is not one of this checkpoint.

    Args:
        output: the name of the output.
        found: epoch and nonce that the fence has.
        nonce_of: nonce_of(epoch) returns the nonce of an epoch of this checkpoint; None if it has no such epoch.
    """
    epoch, nonce = found
    if nonce_of(epoch) != nonce:
        raise changed(
            output,
            f"a driver has written that is not one of this checkpoint (epoch {epoch}): the checkpoint is older than what was written, or "
            "another copy of it. Use the newest checkpoint, and only one copy",
        )


def lost_partition(receipts: Sequence[Receipt], newest: WrittenBatch | None) -> int | None:
    """Return a partition of the newest written batch whose receipt is lost; None if none is.

    Args:
        receipts: those of the output.
        newest: the newest written batch, as the checkpoint or the driver knows it; None without one.
    """
    if newest is None:
        return None
    there = {receipt.partition for receipt in receipts if receipt.time_ms >= newest.time_ms}
    return next((number for number in range(newest.num_partitions) if number not in there and number not in newest.empty), None)


def to_write(
    receipts: Sequence[Receipt],
    time_ms: int,
    nonce: str,
    num_partitions: int,
    knows: Callable[[Time, str], bool],
    output: str,
    remedy: str,
) -> list[int] | None:
    """Return the partitions of a batch that are still to be written; None, which means all, if no partition is written.

    Batches are written in order. So a receipt of a later batch means that this one is written.

    Args:
        receipts: those of the output.
        time_ms: the batch.
        nonce: of its plan.
        num_partitions: how many it has now.
        knows: knows(time, nonce) returns whether this checkpoint has that plan of a later batch.
        output: the name of the output, for messages.
        remedy: what to do with a half-written batch that cannot get its number of partitions back, for the message.

    Raises:
        OutputChangedError: the receipts do not fit the batch or the checkpoint.
    """
    if strange := [receipt for receipt in receipts if receipt.time_ms > time_ms and not knows(Time(receipt.time_ms), receipt.nonce)]:
        raise changed(
            output,
            f"batch {strange[0].time_ms} ms is written there, and this checkpoint has no such batch: the checkpoint is older than what "
            "was written. Use the newest checkpoint. Or give the output another name: then it writes all batches from here on, and those "
            "that are there a second time",
        )
    if any(receipt.time_ms > time_ms for receipt in receipts):
        return []
    written = [receipt for receipt in receipts if receipt.time_ms == time_ms]
    if any(receipt.nonce != nonce for receipt in written):
        raise changed(output, f"batch {time_ms} ms was written by another plan than this checkpoint has of it")
    if other := [receipt for receipt in written if receipt.num_partitions != num_partitions]:
        numbers = sorted(receipt.partition for receipt in written)
        raise changed(
            output,
            f"batch {time_ms} ms is half-written, divided into {other[0].num_partitions} partitions, of which {numbers} are written, and "
            f"has {num_partitions} now. Start the job with the code and the settings that it had, until this batch has ended. {remedy}",
        )
    there = {receipt.partition for receipt in written}
    return [number for number in range(num_partitions) if number not in there] if there else None
