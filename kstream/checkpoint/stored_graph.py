"""The record `graph`: operators as JSON beside the user's pickled functions. It exists only under `recovery=graph`.

A restart makes the graph again from this record and does not call `setup`, as Spark does. Nothing about offsets depends on it. Only
its owner may read or write the file where the store knows owners: functions hold what they close over, and whoever can write the
file runs code in the driver.
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
    """What is stored: `graph` is JSON; each function is in one of the two pickled lists, in the order of its index."""

    graph: dict[str, Any]
    on_workers: Sequence[int]
    """The indexes of the functions in `worker_functions`; the others are in `driver_functions`."""
    worker_functions: bytes
    driver_functions: bytes


def python_version() -> str:
    """Major and minor version of this Python."""
    return ".".join(map(str, sys.version_info[:2]))


def write_graph(store: FileStore, record: GraphRecord) -> None:
    """Store the graph in place of the one that is there. StorageError."""
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
    """Read the stored graph.

    Returns:
        None if there is none, or if it has version 1: earlier versions of kstream stored such a graph unasked.

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
        fields = format.decode(_KIND, data, path)
    except FormatVersionError as e:
        raise not_restored(path, str(e)) from e
    except CheckpointError as e:
        raise not_restored(path, "the file is damaged") from e
    if fields["python"] != python_version():
        raise not_restored(path, f"Python {fields['python']} pickled its functions, and this is Python {python_version()}")
    workers, driver = (base64.b64decode(fields[name]) for name in ("worker_functions", "driver_functions"))
    return GraphRecord(fields["graph"], fields["on_workers"], workers, driver)


def remove_graph(store: FileStore) -> int | None:
    """Delete the stored graph; return its version (0 if unreadable), or None if there was none. StorageError."""
    if not store.exists(names.GRAPH):
        return None
    version = _version(store.read(names.GRAPH))
    store.delete(names.GRAPH)
    return version


def not_restored(path: str, reason: str) -> KStreamError:
    """The error for a stored graph that cannot be used."""
    return GraphNotRestoredError(
        f"The graph stored in {path} cannot be restored: {reason}. Start the job with the code and the Python that stored the graph. "
        "Or remove this file: setup is then called, and offsets and state go on.",
        path=path,
        reason=reason,
    )


def _version(data: bytes) -> int:
    try:
        return int(json.loads(data)["version"])
    except (ValueError, KeyError, TypeError):
        return 0
