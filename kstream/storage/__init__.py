"""Stores of checkpoints: named byte strings with a real create-if-absent.

One idea: `create` either makes the whole file or raises AlreadyExistsError, even if others try at the same moment. Every promise
about plans and epochs depends on that. So a store that cannot do it is refused, unless the user promises a single writer. Names use
`/` on every system. Where create depends on a server, a driver tests it before it writes (`prepare_to_write`). HDFS needs a JVM and
is in `kstream.spark`. Files are whole and never change, with one exception: the write-ahead logs of an `AppendingStore` (a local
disk, HDFS) grow.

    settings       the setting of stores
    file_store     the contract, further abilities of some stores, and the test of a store's create
    local          a directory on a local disk
    object_store   a prefix in a bucket: S3, Google Cloud Storage, Azure
    fsspec_store   any file system of fsspec, for a single driver
    memory         for tests
    read_once      a store for those who look again and again: what never changes is read once
    open           the store of a path or URL, on the driver and in workers
"""

from kstream.storage.file_store import AppendableFile, AppendingStore, FileStore
from kstream.storage.local import LocalFileStore
from kstream.storage.memory import MemoryFileStore
from kstream.storage.open import StorePlace, open_store, place_for_workers, prepare_to_write

__all__ = [
    "AppendableFile",
    "AppendingStore",
    "FileStore",
    "LocalFileStore",
    "MemoryFileStore",
    "StorePlace",
    "open_store",
    "place_for_workers",
    "prepare_to_write",
]
