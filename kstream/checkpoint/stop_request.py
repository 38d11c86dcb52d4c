"""StopRequest: a person or a program asks a driver, through its checkpoint, to stop.

    stop/<epoch>      for the driver of `epoch`; created by `kstream stop`, read by that driver only

The request names an epoch, so it never stops a later driver. A driver looks for it on the thread that renews its status record.
"""

from __future__ import annotations

from dataclasses import dataclass

from kstream.checkpoint import format, names
from kstream.checkpoint.declared_types import moment
from kstream.checkpoint.epoch_records import EpochRecords
from kstream.storage import FileStore


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A request to stop.

    Attributes:
        epoch: the epoch of the driver that is to stop.
        at_ms: when it was asked for, in milliseconds since the Unix epoch.
        asked_by: who asked, for the log of the driver: host and process.
        now: whether to stop at once. Otherwise the driver first finishes its planned batches.
    """

    epoch: int
    at_ms: int
    asked_by: str
    now: bool = False


def _request_of(fields: format.Fields) -> StopRequest:
    return StopRequest(fields["epoch"], moment(fields["at"]), fields["asked_by"], fields["now"])


_RECORDS = EpochRecords(names.STOP, "stop", _request_of)


def ask_to_stop(store: FileStore, request: StopRequest) -> StopRequest:
    """Store a request. Idempotent: an earlier request of that driver stays, unless this one wants more (`now`). Blocks on the store.

    Returns:
        The request that is stored.

    Raises:
        CorruptRecordError: an earlier request is damaged.
        StorageError: the store failed; the request may be stored or not.
    """
    fields = {"at": request.at_ms, "asked_by": request.asked_by, "now": request.now}
    if not _RECORDS.create(store, request.epoch, fields):
        known = read_stop(store, request.epoch)
        if known is not None and (known.now or not request.now):
            return known
        _RECORDS.replace(store, request.epoch, fields)
    return request


def read_stop(store: FileStore, epoch: int) -> StopRequest | None:
    """Read the request to the driver of an epoch; None if there is none. Blocks: one read.

    Raises:
        CorruptRecordError: the record is damaged, or of another driver.
        StorageError: the store failed.
    """
    return _RECORDS.read(store, epoch)


def drop_stops_before(store: FileStore, epoch: int) -> None:
    """Delete the requests to drivers of lower epochs. Blocks: one listing, and a request for each record. StorageError."""
    _RECORDS.delete_before(store, epoch)
