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
    """The used heap of the JVM after so many collections. The first one lets Spark's cleaner see what is unreachable."""
    jvm: Any = ssc.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
    for _ in range(collections):
        jvm.System.gc()
        time.sleep(0.05)
    runtime = jvm.Runtime.getRuntime()
    return (runtime.totalMemory() - runtime.freeMemory()) / 1e6
