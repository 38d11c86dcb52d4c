"""The record `graph`: operators as JSON beside the user's pickled functions. It exists only under `recovery=graph`.

A restart restores the graph from this record and does not call `setup`, as in Spark. Offsets do not depend on it. In a store with file
owners, only the owner may read or write the file. A function contains the values that it closes over, and anyone who can write the file
can run code in the driver.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kstream.checkpoint import format, names
from kstream.errors import CheckpointError, FormatVersionError, GraphNotRestoredError, KStreamError
from kstream.storage import FileStore

GRAPH_MODE = "graph"
_KIND = "graph"


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """The contents of the record. `graph` is JSON. Each function is in one of the two pickled lists, in the order of its index."""

    graph: dict[str, Any]
    on_workers: Sequence[int]
    """The indexes of the functions in `worker_functions`; the others are in `driver_functions`."""
    worker_functions: bytes
    driver_functions: bytes


def python_version() -> str:
    """Major and minor version of this Python."""
    return ".".join(map(str, sys.version_info[:2]))


def write_graph(store: FileStore, record: GraphRecord) -> None:
    """Store the graph in place of an older one. Blocks: one write. StorageError."""
    fields = {
        "mode": GRAPH_MODE,
        "graph": record.graph,
        "on_workers": list(record.on_workers),
        "worker_functions": base64.b64encode(record.worker_functions).decode(),
        "driver_functions": base64.b64encode(record.driver_functions).decode(),
        "python": python_version(),
    }
    store.replace(names.GRAPH, format.encode(_KIND, fields), private=True)


def read_graph(store: FileStore) -> GraphRecord | None:
    """Read the stored graph. Blocks on the store. Unpickles nothing.

    Returns:
        The record. None if there is none, or if it has version 1: earlier versions of kstream stored such a graph by default.

    Raises:
        GraphNotRestoredError: the record is damaged, or another Python has pickled its functions.
        StorageError: the store failed.
    """
    if not store.exists(names.GRAPH):
        return None
    data = store.read(names.GRAPH)
    if _version(data) == 1:
        return None
    path = store.path(names.GRAPH)
    try:
        python, record = format.decode(_KIND, data, path, _record_of)
    except FormatVersionError as e:
        raise not_restored(path, str(e)) from e
    except CheckpointError as e:
        raise not_restored(path, "the file is damaged") from e
    if python != python_version():
        raise not_restored(path, f"Python {python} pickled its functions, and this is Python {python_version()}")
    return record


def _record_of(fields: format.Fields) -> tuple[str, GraphRecord]:
    workers, driver = (base64.b64decode(fields[name]) for name in ("worker_functions", "driver_functions"))
    return fields["python"], GraphRecord(fields["graph"], fields["on_workers"], workers, driver)


def remove_graph(store: FileStore) -> int | None:
    """Delete the stored graph. Blocks on the store. StorageError.

    Returns:
        Its version (0 if it cannot be read); None if there was no stored graph.
    """
    if not store.exists(names.GRAPH):
        return None
    version = _version(store.read(names.GRAPH))
    store.delete(names.GRAPH)
    return version


def not_restored(path: str, reason: str) -> KStreamError:
    """Return the error about a stored graph that cannot be restored.

    Args:
        path: the path of the record.
        reason: the cause, for the message.
    """
    return GraphNotRestoredError(
        f"The graph stored in {path} cannot be restored: {reason}. Start the job with the code and the Python that stored the graph. "
        "Or remove this file: setup is then called, and offsets and state continue.",
        path=path,
        reason=reason,
    )


def _version(data: bytes) -> int:
    """Return the version in a record; 0 if it cannot be read."""
    try:
        return int(json.loads(data)["version"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return 0
