"""The memory of a driver and of its JVM, in MB."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

from kstream import StreamingContext


def resident_mb() -> float:
    """The resident memory of this process, after a collection."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def heap_mb(ssc: StreamingContext, collections: int = 1) -> float:
    """The used heap of the JVM: the lowest figure after each of so many collections.

    What the job holds is in each figure. A figure also has what was allocated since its collection, and what Spark's cleaner has not yet
    removed: the cleaner learns from one collection what is unreachable, and takes a while to remove its blocks.
    """
    jvm: Any = ssc.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
    runtime = jvm.Runtime.getRuntime()
    return min(_used_mb(jvm, runtime) for _ in range(collections))


def _used_mb(jvm: Any, runtime: Any) -> float:
    jvm.System.gc()
    time.sleep(0.05)
    return (runtime.totalMemory() - runtime.freeMemory()) / 1e6
