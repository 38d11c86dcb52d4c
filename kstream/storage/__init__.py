"""Where checkpoints lie: named byte strings with a real create-if-absent.

One idea: `create` either makes the whole file or raises AlreadyExistsError, whoever else tries at the same moment. Every promise
about plans and epochs rests on that, so a store that cannot do it is refused. Names use `/` on every system. Stores whose create
depends on a server are tried by a driver before it writes (`prepare_to_write`). HDFS needs a JVM and lives in `kstream.spark`.
Files are whole and never change, but for those of an `AppendingStore` (a local disk, HDFS): write-ahead logs grow there.
"""

from kstream.storage.appending import AppendableFile, AppendingStore
from kstream.storage.file_store import FileStore
from kstream.storage.local import LocalFileStore
from kstream.storage.memory import MemoryFileStore
from kstream.storage.open import open_store, prepare_to_write

__all__ = ["AppendableFile", "AppendingStore", "FileStore", "LocalFileStore", "MemoryFileStore", "open_store", "prepare_to_write"]
