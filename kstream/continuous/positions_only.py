"""The target of `foreach`: nothing is written, and the driver's log alone has the positions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kstream.continuous.ports import EpochOutput, EpochReceipt, HandOver, TaskRun
from kstream.offsets.offset_range import Partition

EXACTLY_ONCE_MS, AT_LEAST_ONCE_MS = 100, 1000
"""How long an epoch lasts unless the user says it. At least once it is the time whose records a failure repeats."""


class NoReceipts:
    """A HandOver without identities and receipts: what an earlier run has done since its last report is done again."""

    def fence(self, tasks: Collection[int]) -> None:
        """Nothing can be taken."""

    def receipts(self, partitions: Collection[Partition]) -> dict[Partition, EpochReceipt]:
        return {}


class NoOutput:
    """An EpochOutput that lets the user's function run on all records of an epoch."""

    num_bytes = 0

    def open(self) -> None: ...

    def add(self, made: Iterable[Any]) -> None:
        deque(made, maxlen=0)

    def end(self, positions: Mapping[Partition, int]) -> None: ...

    def close(self) -> None: ...


class PositionsOnly:
    """The ContinuousTarget of `foreach`."""

    epoch_ms = AT_LEAST_ONCE_MS

    def hand_over(self, job: str) -> HandOver:
        return NoReceipts()

    def open_output(self, run: TaskRun, driver_epoch: int) -> Callable[[], EpochOutput]:
        return NoOutput
