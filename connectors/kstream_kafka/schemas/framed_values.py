"""FramedValues: the schema ids and the payloads of a whole chunk of framed values, without Python code for a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kstream_kafka.schemas.framing import HEAD

Rows = np.ndarray[Any, np.dtype[np.int64]]
"""Positions in a chunk, rising."""


class FramedValues:
    """The values of a chunk, looked at as frames. Immutable. One thread."""

    def __init__(self, values: pa.BinaryArray) -> None:
        """Look at the first bytes of all values.

        Args:
            values: the values; null for a record without one. It may be a slice.
        """
        count = len(values)
        _, offsets, buffer = values.buffers()
        bounds = np.frombuffer(offsets, np.int32, count + 1, values.offset * 4) if count else np.zeros(1, np.int32)
        first, last = int(bounds[0]), int(bounds[-1])
        self.data: bytes = b"" if buffer is None else buffer.slice(first, last - first).to_pybytes()
        """The bytes of all values, one after the other."""
        self.begins: Rows = bounds[:-1].astype(np.int64) - first
        """For each value where it begins in `data`."""
        self.ends: Rows = bounds[1:].astype(np.int64) - first
        """For each value where it ends."""
        there = values.is_valid().to_numpy(zero_copy_only=False)
        long_enough = np.flatnonzero(there & (self.ends - self.begins >= HEAD))
        heads = np.frombuffer(self.data, np.uint8)[self.begins[long_enough, None] + np.arange(HEAD)].astype(np.int64)
        self._ids: Rows = np.full(count, -1, np.int64)
        self._ids[long_enough] = np.where(heads[:, 0] == 0, heads[:, 1:] @ np.array([1 << 24, 1 << 16, 1 << 8, 1]), -1)
        self.unframed: list[int] = np.flatnonzero(there & (self._ids < 0)).tolist()
        """The values that are not framed, without those that are null."""

    def by_schema(self) -> Iterator[tuple[int, Rows]]:
        """Yield each schema id with the positions of the values that name it. Values without a frame have none."""
        for schema_id in np.unique(self._ids[self._ids >= 0]).tolist():
            yield schema_id, np.flatnonzero(self._ids == schema_id)
