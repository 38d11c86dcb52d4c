"""Whether a store's create really refuses a name that is taken, tried on the store itself."""

from __future__ import annotations

import logging
import uuid
from typing import Protocol, runtime_checkable

from kstream.errors import AlreadyExistsError, StorageError
from kstream.storage.file_store import FileStore

logger = logging.getLogger(__name__)


@runtime_checkable
class PreparedStore(FileStore, Protocol):
    """A FileStore whose create depends on what is at the other end."""

    def prepare(self, single_writer: bool) -> None:
        """Called once by a driver, before it writes. UnsupportedStoreError if `create` cannot be trusted there."""
        ...


def refuses_a_second_create(store: FileStore) -> bool:
    """Creates a file of a name nobody else uses twice and removes it; False if the second was not refused. StorageError as create's.

    That two at the very same moment cannot both win is not tried: it is what the store's documentation promises.
    """
    name = f"probe-{uuid.uuid4().hex}"
    try:
        store.create(name, b"first")
        try:
            store.create(name, b"second")
        except AlreadyExistsError:
            return True
        return False
    finally:
        try:
            store.delete(name)
        except StorageError as e:  # nobody reads it
            logger.warning("%s stays behind: %s", store.path(name), e)
