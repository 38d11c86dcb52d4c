"""The record of a changed batch interval, `interval-changes/<epoch>`. The meta record keeps the first interval: it is never rewritten.

The driver that changes the interval writes the record at its start, before its first plan. Each later driver writes the record again under
its own epoch and deletes the older ones. So a record whose epoch is lower than that of any plan does not count: its writer was fenced
before it wrote the record, and the driver that took over has planned without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kstream.batch_time import Duration, Time
from kstream.checkpoint import format, names
from kstream.checkpoint.declared_types import positive
from kstream.checkpoint.epoch_records import EpochRecords
from kstream.storage import FileStore


@dataclass(frozen=True, slots=True)
class IntervalChange:
    """The batch interval since its newest change.

    Attributes:
        after: the last batch of the former interval.
        zero_time: the zero time of the batches since then. They are later than `after`.
        interval: the batch interval since then.
    """

    after: Time
    zero_time: Time
    interval: Duration


def _change_of(fields: format.Fields) -> tuple[int, IntervalChange]:
    return fields["epoch"], IntervalChange(Time(fields["after"]), Time(fields["zero_time"]), positive(fields["interval"]))


_RECORDS = EpochRecords(names.INTERVAL_CHANGES, "interval-change", _change_of)


def write_change(store: FileStore, epoch: int, change: IntervalChange) -> None:
    """Store the record of the driver of `epoch`, then delete those of lower epochs. Blocks on the store; StorageError."""
    fields = {
        "after": change.after.milliseconds,
        "zero_time": change.zero_time.milliseconds,
        "interval": change.interval.milliseconds,
    }
    _RECORDS.create(store, epoch, fields)
    _RECORDS.delete_before(store, epoch)


def read_change(store: FileStore) -> IntervalChange | None:
    """Read the record that counts; None if the interval has never changed. Blocks: one listing; after a change another one and a read.

    Raises:
        CorruptRecordError: the record is damaged.
        StorageError: the store failed.
    """
    newest = _RECORDS.newest(store)
    if newest is None:
        return None
    plans = (key[1][0] for key in map(names.parse_key, store.list(names.PLANS)) if key is not None)
    epoch, change = newest
    return None if epoch < max(plans, default=0) else change
