"""Which partitions of a batch are still to be written, by the receipts that a sink has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kstream.batch_time import Time
from kstream.errors import OutputChangedError
from kstream.sinks.receipt import Receipt, WrittenBatch, hashing, lost_partition, to_write


def receipt(partition: int, time_ms: int = 2000, num_partitions: int = 3) -> Receipt:
    return Receipt(partition, num_partitions, time_ms, f"plan of {time_ms}", 10, hashing())


def knows(time: Time, nonce: str) -> bool:
    return time.milliseconds <= 5000 and nonce == f"plan of {time.milliseconds}"


def missing(found: list[Receipt], time_ms: int = 2000, num_partitions: int = 3, nonce: str = "") -> list[int] | None:
    """What is to be written, by a checkpoint that has the plans of the batches up to 5000."""
    return to_write(found, time_ms, nonce or f"plan of {time_ms}", num_partitions, knows, "once", "Or give it another name.")


def test_all_partitions_are_written_of_a_batch_without_receipts() -> None:
    assert missing([]) is None
    assert missing([receipt(0, 1000), receipt(1, 1000)]) is None, "these are of the batch before"


def test_the_partitions_without_receipts_are_written_of_a_batch_that_has_some() -> None:
    assert missing([receipt(1), receipt(0, 1000)]) == [0, 2]
    assert missing([receipt(0), receipt(1), receipt(2)]) == []


def test_nothing_is_written_of_a_batch_that_a_later_one_follows() -> None:
    assert missing([receipt(0, 3000), receipt(1)]) == []


def test_a_batch_that_is_divided_otherwise_than_its_receipts_is_refused() -> None:
    with pytest.raises(
        OutputChangedError,
        match=r"is half-written, divided into 3 partitions, of which \[1\] are written, and has 4 now.* Or give it another name",
    ):
        missing([receipt(1)], num_partitions=4)


def test_the_receipt_of_another_plan_is_refused() -> None:
    with pytest.raises(OutputChangedError, match="was written by another plan"):
        missing([receipt(1)], nonce="another")


@pytest.mark.parametrize("later", [receipt(0, 6000), replace(receipt(0, 3000), nonce="of the same time, by another driver")])
def test_a_checkpoint_that_is_older_than_what_was_written_is_refused(later: Receipt) -> None:
    with pytest.raises(OutputChangedError, match="the checkpoint is older than what was written"):
        missing([later])


def test_the_newest_batch_is_lost_if_one_of_its_partitions_has_no_receipt() -> None:
    newest = WrittenBatch(2000, 3)
    assert lost_partition([receipt(0), receipt(1, 1000), receipt(2)], newest) == 1
    assert lost_partition([receipt(0, 3000), receipt(1), receipt(2)], newest) is None
    assert lost_partition([], None) is None
