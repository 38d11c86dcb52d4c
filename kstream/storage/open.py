"""open_store: from a checkpoint's path or URL to its store."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from kstream.errors import UnsupportedStoreError
from kstream.storage.file_store import FileStore
from kstream.storage.local import LocalFileStore
from kstream.storage.memory import MemoryFileStore

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def open_store(url: str) -> FileStore:
    """The store under a plain path, `file:` or `memory://` URL. Touches nothing yet.

    Any other scheme is refused: its create-if-absent is not known to be real.
    """
    scheme = urlsplit(url).scheme if _URL.match(url) else ""
    if scheme == "":
        return LocalFileStore(url)
    if scheme == "file":
        return LocalFileStore(unquote(urlsplit(url).path))
    if scheme == "memory":
        return MemoryFileStore(url)
    raise UnsupportedStoreError(
        f"checkpoints on {scheme}:// are not supported yet ({url}); use a local directory or, for tests, memory://name",
        path=url,
    )
