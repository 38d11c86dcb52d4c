"""The record `connections`: with which parameters the input streams reach their brokers, for commands that ask these brokers.

Data only: no function, and no parameter that may hold a secret. A driver writes the record at each start and never reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kstream.checkpoint import format, names
from kstream.errors import CheckpointError, StorageError
from kstream.storage import FileStore

_KIND = "connections"


def write_connections(store: FileStore, streams: Mapping[int, tuple[str, Mapping[str, Any]]]) -> None:
    """Store, by stream number, the kind of input (`kafka-direct`) and its parameters. StorageError."""
    stored = {str(number): {"input": kind, "params": dict(params)} for number, (kind, params) in streams.items()}
    store.replace(names.CONNECTIONS, format.encode(_KIND, {"streams": stored}))


def read_connections(store: FileStore, kind: str) -> dict[int, dict[str, Any]]:
    """Stream number → parameters, of inputs of this kind. Empty if the record is missing or damaged."""
    try:
        streams = format.decode(_KIND, store.read(names.CONNECTIONS), store.path(names.CONNECTIONS))["streams"]
    except (CheckpointError, StorageError):
        return {}
    return {int(number): dict(stream["params"]) for number, stream in streams.items() if stream["input"] == kind}
