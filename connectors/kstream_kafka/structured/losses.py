"""QueryLosses: what a query has lost, as its planner knows it.

The tasks of a query have no way to tell the planner anything. So the planner of a query that goes on without lost records asks for the
begins of the logs that a batch reads. What is removed after that, only the log of an executor tells.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence

from kstream.checkpoint.query_ledger import RETENTION, add_losses
from kstream.clock import Clock
from kstream.offsets.offset_range import LostRange, OffsetRange, Partition
from kstream.offsets.topic_offsets import text_of
from kstream.storage import StorePlace

logger = logging.getLogger("kstream.kafka")


class QueryLosses:
    """The losses of a query. The planner's thread calls it."""

    def __init__(self, checkpoint: StorePlace | None, clock: Clock) -> None:
        """
        Args:
            checkpoint: the checkpoint of the query; None if the options do not name it. Then there is no ledger.
            clock: the clock of the entries.
        """
        self._checkpoint = checkpoint
        self._clock = clock

    def note(self, start: Mapping[Partition, int], end: Mapping[Partition, int], lost: Sequence[LostRange]) -> None:
        """Write the losses of a batch, if there are any and there is a ledger, into the ledger. Blocks on the place.

        The same batch has one entry, however often it is planned.

        Args:
            start, end: the offsets of the batch in the checkpoint, which name it.
            lost: its losses.

        Raises:
            StorageError: the ledger cannot be written.
        """
        if self._checkpoint is not None and lost:
            add_losses(self._checkpoint.open(), entry_name(start, end), self._clock.time_ms(), lost)


def entry_name(start: Mapping[Partition, int], end: Mapping[Partition, int]) -> str:
    """Return the name of the entry of a batch, the same at each try. Spark tells a source no number of a batch. Pure."""
    return f"batch-{hashlib.sha256(f'{text_of(start)} {text_of(end)}'.encode()).hexdigest()[:24]}"


def removed(ranges: Iterable[OffsetRange], begins: Mapping[Partition, int]) -> list[LostRange]:
    """Return the records of ranges that retention has removed. Pure.

    Args:
        ranges: what a batch reads.
        begins: where the logs of these partitions begin now.
    """
    found: list[LostRange] = []
    for r in ranges:
        begin = begins.get((r.topic, r.partition), r.fromOffset)
        if r.fromOffset < min(begin, r.untilOffset):
            detail = f"the log begins at {begin}, and offset {r.fromOffset} was next to be read"
            found.append(LostRange(r.topic, r.partition, r.fromOffset, min(begin, r.untilOffset), RETENTION, detail))
    return found


def log_lost(lost: Iterable[LostRange]) -> None:
    """Log a warning for each loss."""
    for each in lost:
        logger.warning(
            "%s-%d: the query goes on without records from offset %d: %s", each.topic, each.partition, each.lost_from, each.detail
        )
