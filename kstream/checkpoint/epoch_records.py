"""EpochRecords: records of a folder of which each driver has its own, `<folder>/<epoch>`.

The record of the highest epoch counts. A driver deletes those of lower epochs after it has stored its own, so a reader may find that a
record is gone which it has just listed. Each record holds its epoch: a file that was copied or renamed is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kstream.checkpoint import format, names
from kstream.errors import AlreadyExistsError, MissingFileError
from kstream.storage import FileStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EpochRecords(Generic[T]):
    """The records of one folder. It holds no state: each method works on the store it is given, and raises its StorageError.

    Attributes:
        folder: the folder in the checkpoint, from `names`.
        kind: the kind of the records, for `format`.
        make: makes an object from the fields of a record, with its epoch; see `format.decode`.
    """

    folder: str
    kind: str
    make: Callable[[dict[str, Any]], T]

    def create(self, store: FileStore, epoch: int, fields: Mapping[str, Any]) -> bool:
        """Store the record of `epoch` unless there is one. Blocks: one create.

        Returns:
            Whether this call has stored it. A driver ignores the answer about its own record: no other driver has its epoch, so only the
            store's client can have stored the record before, and tried again.
        """
        try:
            store.create(names.of_epoch(self.folder, epoch), self._encode(epoch, fields))
        except AlreadyExistsError:
            return False
        return True

    def replace(self, store: FileStore, epoch: int, fields: Mapping[str, Any]) -> None:
        """Store the record of `epoch` in place of its last one. Blocks: one write."""
        store.replace(names.of_epoch(self.folder, epoch), self._encode(epoch, fields))

    def epochs(self, store: FileStore) -> list[int]:
        """Return the epochs of all records, sorted. Blocks: one listing."""
        return names.epochs_of(store.list(self.folder))

    def read(self, store: FileStore, epoch: int) -> T | None:
        """Read the record of `epoch`; None if there is none. Blocks: one read.

        Raises:
            CorruptRecordError: the record is damaged, or of another epoch.
            FormatVersionError: a newer kstream has written the record.
        """
        name = names.of_epoch(self.folder, epoch)
        try:
            data = store.read(name)
        except MissingFileError:
            return None
        return format.decode(self.kind, data, store.path(name), self.make, {"epoch": epoch})

    def newest(self, store: FileStore) -> T | None:
        """Read the record of the highest epoch; None if there is none. Blocks: one listing, and one read if there is a record.

        Raises:
            CorruptRecordError: the record is damaged, or of another epoch.
            FormatVersionError: a newer kstream has written the record.
        """
        while epochs := self.epochs(store):
            found = self.read(store, epochs[-1])
            if found is not None:  # else a newer driver has written its own record, and deleted this one since the listing
                return found
        return None

    def delete_before(self, store: FileStore, epoch: int) -> None:
        """Delete the records of epochs below `epoch`. Blocks: one listing, and a request for each of them."""
        for older in self.epochs(store):
            if older < epoch:
                store.delete(names.of_epoch(self.folder, older))

    def _encode(self, epoch: int, fields: Mapping[str, Any]) -> bytes:
        return format.encode(self.kind, {**fields, "epoch": epoch})
