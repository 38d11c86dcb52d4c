"""`load(name)`: the module of a connector, found by entry point first, then in a first-party table.

Entry points of group `kstream.connectors` let anyone ship a connector; the table keeps the first-party ones reachable from a
plain zip on `--py-files`, where no entry points exist. A connector module offers `restore_input(ssc, recipe)`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from types import ModuleType

from kstream.errors import MissingDependencyError

FIRST_PARTY = {"kafka": "kstream_kafka", "testing": "kstream.testing"}
GROUP = "kstream.connectors"


def load(name: str) -> ModuleType:
    """Imports and returns the connector called `name`; MissingDependencyError if there is none."""
    for entry_point in importlib.metadata.entry_points(group=GROUP):
        if entry_point.name == name:
            return entry_point.load()
    if name not in FIRST_PARTY:
        known = ", ".join(sorted(FIRST_PARTY))
        raise MissingDependencyError(f"no connector named {name!r}; known: {known}. Is its package installed?", package=name)
    return importlib.import_module(FIRST_PARTY[name])
