"""Batches that a seed draws: the same in every process."""

from __future__ import annotations

import random
from typing import Any

KEYS = ["a", "b", "c", "", None, 7, ("k", 1)]
"""Keys of every kind that pyspark can hash alike in every worker."""


def batches(sc: Any, seed: int, count: int, empty: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Queues of numbers, of (key, number) pairs, and of pairs to join them with. RDDs of two partitions; number `empty` has no records."""
    draw = random.Random(seed)
    numbers: list[list[Any]] = []
    pairs: list[list[Any]] = []
    others: list[list[Any]] = []
    for batch in range(count):
        size = 0 if batch == empty else draw.randint(6, 16)
        numbers.append([draw.randint(0, 9) for _ in range(size)])
        pairs.append([(draw.choice(KEYS), draw.randint(-5, 20)) for _ in range(size)])
        others.append([(draw.choice(KEYS), draw.choice("xyz")) for _ in range(size // 2)])
    made = ([sc.parallelize(batch, 2) for batch in queue] for queue in (numbers, pairs, others))
    return next(made), next(made), next(made)
