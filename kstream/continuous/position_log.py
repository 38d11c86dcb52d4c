"""PositionLog: how far the tasks of a driver had come, in its record `positions/<epoch>`; for people, for lag and for replays.

The record is written once a second at most, so it is behind the receipts. It never counts against one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kstream.checkpoint import format, names
from kstream.checkpoint.epoch_records import EpochRecords
from kstream.continuous.task_report import positions_of_json, positions_to_json
from kstream.offsets.offset_range import Partition
from kstream.storage import FileStore


@dataclass(frozen=True, slots=True)
class StoredPositions:
    """The record of a driver.

    Attributes:
        epoch: the epoch of the driver.
        generation: of the newest assignment at that time.
        epochs: how many epochs its tasks had ended.
        positions: the position behind the last of them, of each partition.
    """

    epoch: int
    generation: int
    epochs: int
    positions: Mapping[Partition, int]


def _stored(fields: format.Fields) -> StoredPositions:
    return StoredPositions(fields["epoch"], fields["generation"], fields["epochs"], positions_of_json(fields["positions"]))


_RECORDS = EpochRecords(names.POSITIONS, "positions", _stored)


class PositionLog:
    """The records of one checkpoint. Thread-safe: it has no state. Every call blocks on the store, and raises its StorageError."""

    def __init__(self, store: FileStore) -> None:
        self._store = store

    def write(self, stored: StoredPositions) -> None:
        """Store the record of a driver in place of its last one. One write."""
        fields = {"generation": stored.generation, "epochs": stored.epochs, "positions": positions_to_json(stored.positions)}
        _RECORDS.replace(self._store, stored.epoch, fields)

    def newest(self) -> StoredPositions | None:
        """Read the record of the newest driver that has one. CorruptRecordError, FormatVersionError."""
        return _RECORDS.newest(self._store)
