"""What a Python worker of Spark does once for kstream's tasks."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
_seen = 0
_made: dict[tuple[int, Hashable], Any] = {}
_making = threading.RLock()  # what is made may need something else that is made once


def once(key: Hashable, make: Callable[[], T]) -> T:
    """What `make` gives, made by the first who asks for this key in this process and kept for its life; a fork makes its own.

    Any thread; others wait while one makes. What `make` raises is raised, and the next one tries again.
    """
    mine = (os.getpid(), key)
    with _making:
        if mine not in _made:
            _made[mine] = make()
        return _made[mine]


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
