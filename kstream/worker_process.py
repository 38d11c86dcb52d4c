"""What a Python worker of Spark does once for kstream's tasks."""

from __future__ import annotations

import gc
import sys

_seen = 0


def settle() -> None:
    """Called by kstream's functions as they begin in a worker: its garbage collector never again looks at what has been loaded so far.

    PySpark's workers collect garbage after every task, over all that their modules are made of: 15 ms with PySpark and kstream alone, 35
    with pandas, more than many a task computes. Frozen again whenever modules have come: what is in use at that moment still goes by its
    reference count, only a cycle of garbage that is just there stays.
    """
    global _seen
    if "pyspark.worker" in sys.modules and len(sys.modules) > _seen:
        _seen = len(sys.modules)
        gc.freeze()
