"""Output operations that are timed; in a module of its own so that a checkpoint can name it instead of pickling what it uses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

jobs: dict[str, Callable[[Any], None]] = {}
"""What each side does with its RDD of a batch."""
seconds: dict[str, list[float]] = {}
"""How long it took, in the order of the batches."""


def run(side: str, rdd: Any) -> None:
    began = time.perf_counter()
    jobs[side](rdd)
    seconds.setdefault(side, []).append(time.perf_counter() - began)
