"""Sinks: outputs that write each record exactly once.

database        once: the output for databases: SQLite and PostgreSQL
receipt         what a sink knows of a written batch, and what is still to be written (pure)
receipt_table   the receipts in a database; runs in tasks, too
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstream.sinks.database import once

__all__ = ["once"]


def __getattr__(name: str) -> Any:
    """Import the driver's half when it is asked for: tasks only need `receipt_table`."""
    if name in __all__:
        return getattr(importlib.import_module("kstream.sinks.database"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
