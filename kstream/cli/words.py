"""Words for people."""

from __future__ import annotations


def count(number: int, what: str) -> str:
    """`1 batch`, `2 batches`, `0 records`: a number with its noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}{'es' if what.endswith('ch') else 's'}"
