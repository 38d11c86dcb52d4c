"""Work that a Python worker of Spark does once for kstream's tasks."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from kstream.worker import current_record, exception_hook

T = TypeVar("T")
_seen = 0
_made: dict[tuple[int, Hashable], Any] = {}
_making = threading.RLock()  # reentrant, because `make` may call `once` for another key


def once(key: Hashable, make: Callable[[], T]) -> T:
    """Return the object of a key, made by the first call in this process and kept for its life. A fork makes its own.

    Any thread. While one thread makes an object, calls of other threads block.

    Args:
        key: names the object.
        make: makes the object. An error of it is raised, and the next call tries again.
    """
    mine = (os.getpid(), key)
    with _making:
        if mine not in _made:
            _made[mine] = make()
        return _made[mine]


def drop(key: Hashable) -> None:
    """Forget the object of a key, if there is one: the next call of `once` makes another. Any thread."""
    with _making:
        _made.pop((os.getpid(), key), None)


def begin_task() -> None:
    """Prepare the worker for a task. kstream's functions call this as they begin in a worker; elsewhere it does next to nothing."""
    freeze_gc()
    current_record.begin_task()
    exception_hook.install()


def freeze_gc() -> None:
    """Exclude all objects loaded so far from garbage collection.

    PySpark's workers collect garbage after every task, over all objects of their modules. That takes 15 ms with PySpark and kstream alone,
    and 35 ms with pandas, which is longer than many tasks. A call freezes the objects again if modules were loaded since. A frozen object
    is still freed by its reference count; only a cycle of garbage that exists at that moment stays. Outside of a worker this does nothing.
    The processes beside the driver that plan and commit for a data source are workers, too.
    """
    global _seen
    if ("pyspark.worker" in sys.modules or exception_hook.is_fork_of_daemon()) and len(sys.modules) > _seen:
        _seen = len(sys.modules)
        gc.freeze()
