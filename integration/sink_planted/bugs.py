"""The bugs, each a few lines that a careless change could bring. Those of the simulation are its own patches.

`PLANTED` of the environment names the bug. The driver and each of its workers plant it before the sink runs.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest
from kstream_kafka.sink import comparison, kafka_output
from kstream_kafka.sink.partition_writer import KafkaPartitionWriter
from kstream_kafka.sink.producer_record import Encoded
from kstream_kafka.sink.receipts_topic import ReceiptsTopic
from kstream_kafka.sink.spool import DigestSum

from integration.exactness.hooks import PLANTED
from tests.kstream_kafka.sink.simulation import planted


def hash_is_checked_too_late(patch: pytest.MonkeyPatch) -> None:
    """The workers' hash of keys is looked at when the partition is committed, and not before what is written is compared."""
    planted.keys_are_hashed_anew_and_that_is_seen_after_the_commit(patch)
    patch.setattr(comparison, "check_hashing", lambda *_: None)


def no_task_looks(patch: pytest.MonkeyPatch) -> None:
    """No attempt looks for what an earlier attempt has written."""
    patch.setattr(KafkaPartitionWriter, "_look", lambda *_, **__: None)
    patch.setattr(KafkaPartitionWriter, "_is_alone", lambda *_: True)


def digests_depend_on_the_order(patch: pytest.MonkeyPatch) -> None:
    add = DigestSum.add

    def added(self: DigestSum, record: Encoded) -> int:
        size = add(self, record)
        for which in (2, 3):
            self._of_topic[which] *= 31
        return size

    patch.setattr(DigestSum, "add", added)


def older_checkpoint_is_as_good_as_the_newest(patch: pytest.MonkeyPatch) -> None:
    planted.an_older_checkpoint_is_as_good_as_the_newest(patch)
    patch.setattr(kafka_output, "check_is_of_checkpoint", lambda *_: None)


def receipts_belong_to_the_position(patch: pytest.MonkeyPatch) -> None:
    """An output finds its receipts by its position among the outputs of the job."""
    make, positions = ReceiptsTopic.__init__, itertools.count()

    def made(self: ReceiptsTopic, params: Any, prefix: str, output: str) -> None:
        make(self, params, prefix, f"output {next(positions)}")

    patch.setattr(ReceiptsTopic, "__init__", made)


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    bug.__name__: bug
    for bug in (
        hash_is_checked_too_late,
        no_task_looks,
        digests_depend_on_the_order,
        planted.a_topic_that_was_made_anew_is_taken_for_the_first_one,
        older_checkpoint_is_as_good_as_the_newest,
        receipts_belong_to_the_position,
        planted.the_receipt_of_a_later_batch_is_ignored,
        planted.a_read_of_receipts_ends_at_an_open_transaction,
    )
}


def plant() -> None:
    """Plant the bug that the environment names in this process, for good."""
    BUGS[os.environ[PLANTED]](pytest.MonkeyPatch())
