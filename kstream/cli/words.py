"""Words for people."""

from __future__ import annotations


def count(number: int, what: str) -> str:
    """`1 batch`, `2 batches`, `0 records`: a number with its noun."""
    if number == 1:
        return f"{number} {what}"
    return f"{number} {what[:-1]}ies" if what.endswith("ry") else f"{number} {what}{'es' if what.endswith('ch') else 's'}"
