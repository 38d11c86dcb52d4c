"""Untouched: stands where offsets of partitions would, and fails who looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Untouched(Mapping[str, Any]):
    """Offsets that nobody may look at, go through or count."""

    def __getitem__(self, key: str) -> Any:
        raise AssertionError(f"{key} was looked at")

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("the partitions were gone through")

    def __len__(self) -> int:
        raise AssertionError("the partitions were counted")
