"""The sidecar `graph`: operators as JSON beside the user's pickled functions, so that unchanged code restarts without `setup`.

Disposable: nothing about offsets depends on it. It is trusted only if its digest fits the code that is running now
(`code_digest`), and the Python version.
"""

from __future__ import annotations

import base64
import sys
from typing import Any

from kstream.checkpoint import format, names
from kstream.checkpoint.code_digest import changed, code_digest, modules_digest, setup_digest
from kstream.errors import CheckpointError, StorageError
from kstream.storage import FileStore

__all__ = ["changed", "code_digest", "modules_digest", "python_version", "read_sidecar", "setup_digest", "write_sidecar"]


def python_version() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def write_sidecar(store: FileStore, graph: dict[str, Any], functions: bytes, code: dict[str, str] | None) -> None:
    """Stores the graph. `code` is the digest of what it was built by, None if that is unknown (never restored then)."""
    fields = {"graph": graph, "functions": base64.b64encode(functions).decode(), "code": code, "python": python_version()}
    store.replace(names.GRAPH, format.encode("graph", fields))


def read_sidecar(store: FileStore) -> tuple[dict[str, Any], bytes, dict[str, str] | None] | str:
    """Graph, functions and code digest; or, as a string, why there is none to be had."""
    if not store.exists(names.GRAPH):
        return "no graph is stored"
    try:
        fields = format.decode("graph", store.read(names.GRAPH), store.path(names.GRAPH))
    except (CheckpointError, StorageError) as e:
        return f"the stored graph is unreadable: {e}"
    if fields["python"] != python_version():
        return f"it was stored by Python {fields['python']}, this is {python_version()}"
    return fields["graph"], base64.b64decode(fields["functions"]), fields["code"]
