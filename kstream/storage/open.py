"""open_store: from a checkpoint's path or URL to its store."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from kstream.errors import ConfigurationError, UnsupportedStoreError
from kstream.storage.file_store import FileStore
from kstream.storage.local import LocalFileStore
from kstream.storage.memory import MemoryFileStore
from kstream.storage.probe import PreparedStore

SINGLE_WRITER = "spark.streaming.kstream.checkpoint.singleWriter"
HADOOP = frozenset({"hdfs", "viewfs", "o3fs", "ofs"})
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss"})

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_CHAINED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*::")


def scheme_of(url: str) -> str:
    """The scheme of a URL in lower case; empty for a plain path. ConfigurationError for a URL with a password in it."""
    match = _URL.match(url)
    if match is None:
        return "chained" if _CHAINED.match(url) else ""
    if urlsplit(url).password is not None:
        place = re.sub(r"//[^/]*@", "//…@", url)
        raise ConfigurationError(
            f"{place} has a password in it, which logs and error messages would repeat: give it by the environment", key="checkpoint",
            value=place,
        )  # fmt: skip
    return match[1].lower()


def is_known(scheme: str) -> bool:
    """Whether kstream or fsspec have a name for it; the rest is for Hadoop to know."""
    if scheme in OBJECT_STORES or scheme in ("", "chained", "file", "memory"):
        return True
    from fsspec.registry import known_implementations, registry

    return scheme not in HADOOP and (scheme in known_implementations or scheme in registry)


def open_store(url: str, *, read_only: bool = False, single_writer: bool = False) -> FileStore:
    """The store under a plain path, a `file:`, `memory://` or object store's URL. Sends nothing yet.

    Any other scheme that fsspec knows is refused: it has no create-if-absent. `read_only` (nothing is created) and `single_writer`
    (the user says that there is never a second driver) take it all the same.
    """
    scheme = scheme_of(url)
    if scheme == "":
        return LocalFileStore(url)
    if scheme == "file":
        return LocalFileStore(unquote(urlsplit(url).path))
    if scheme == "memory":
        return MemoryFileStore(url)
    if scheme in OBJECT_STORES:
        from kstream.storage.object_store import ObjectFileStore

        return ObjectFileStore(url)
    if scheme in HADOOP:
        raise UnsupportedStoreError(
            f"{scheme}:// is reached through Hadoop ({url}): open it by kstream.spark.checkpoint_store.open_checkpoint", path=url
        )
    if not read_only and not single_writer:
        raise UnsupportedStoreError(
            f"{scheme}:// cannot create a file only if it is absent ({url}), so two drivers could overwrite each other's plans. Use a "
            f"local directory, s3://, gs://, az:// or hdfs://; or, if never more than one driver runs, set {SINGLE_WRITER}=true",
            path=url,
        )
    from kstream.storage.fsspec_store import FsspecFileStore

    return FsspecFileStore(url)


def prepare_to_write(store: FileStore, single_writer: bool) -> FileStore:
    """The store, once it is known that its create can be trusted. Called once by a driver that starts; may block on the network."""
    if isinstance(store, PreparedStore):
        store.prepare(single_writer)
    return store
