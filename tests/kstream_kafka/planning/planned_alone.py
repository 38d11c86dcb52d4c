"""A program that plans in a Python without pyspark."""

from __future__ import annotations

from typing import Any


def planned_alone() -> dict[str, Any]:
    """What `planner_alone` prints, wherever it runs."""
    return {
        "planned": [[["t", 0, 0, 3]], [["t", 0, 3, 5], ["t", 1, 0, 2]]],
        "downtime": [[1000, 2000, 3000], ["t", 0, 5, 6], ["t", 0, 6, 7], ["t", 0, 7, 8]],
        "loaded": [],
    }
