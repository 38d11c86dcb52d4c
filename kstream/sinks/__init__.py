"""Sinks: outputs that write each record exactly once.

database        once: the output for databases: SQLite and PostgreSQL
exactly_once    ExactlyOnceOutput: what every output with receipts knows of its batches
named_output    outputs that a function of the user writes
receipt         what a sink knows of a written batch, and what is still to be written (pure)
receipt_table   the receipts in a database; runs in tasks, too
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstream.lazy_names import lazy_names

if TYPE_CHECKING:
    from kstream.sinks.database import once
else:  # at the first use: tasks only need `receipt_table`
    __getattr__ = lazy_names(__name__, {"once": "kstream.sinks.database"})

__all__ = ["once"]
