"""ExecutorAllocationPolicy: how many executors a job gets for the speed of its last batches (Spark's `ExecutorAllocationManager`). Pure.

The ratio is the average processing time of the batches of a scaling interval, divided by the batch interval. At 1 the job just keeps up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from kstream.conf import Settings, parse_bool
from kstream.errors import ConfigurationError
from kstream.scheduler.settings import (
    ALLOCATION_ENABLED,
    MAX_EXECUTORS,
    MIN_EXECUTORS,
    SCALING_DOWN_RATIO,
    SCALING_INTERVAL,
    SCALING_UP_RATIO,
)
from kstream.wal.settings import WRITE_AHEAD_LOG

CORE_ENABLED = "spark.dynamicAllocation.enabled"
"""Spark's own dynamic allocation, which looks at waiting tasks."""


class Scaling(Enum):
    """What a scaling interval leads to."""

    UP = "up"
    DOWN = "down"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class AllocationDecision:
    """What was decided after a scaling interval."""

    scaling: Scaling
    ratio: float
    """The average processing time of the interval's batches, divided by the batch interval."""
    executors: int
    """How many executors lived."""
    total: int
    """How many executors the job should have from now on."""
    removable: tuple[str, ...] = ()
    """The ids of the executors of which one is to end; the first is preferred. Empty unless `scaling` is DOWN."""
    reason: str = ""
    """Why no executor ends although the ratio asks for it; else empty."""


@dataclass(frozen=True, slots=True)
class ExecutorAllocationPolicy:
    """The settings of executor allocation, and the decisions that follow from them."""

    interval_s: float = 60
    up_ratio: float = 0.9
    down_ratio: float = 0.3
    min_executors: int = 1
    max_executors: int | None = None
    receivers: int = 0
    """The number of receivers of the job: no executor ends if fewer executors would be left. Nor is any asked for because of it."""

    def decide(self, ratio: float, executors: Mapping[str, int], receivers: Mapping[str, int]) -> AllocationDecision:
        """Return what follows from the ratio of a scaling interval.

        Whatever the ratio is, a job below its minimum gets that. Spark asks for it only when the ratio asks for more executors.

        Args:
            ratio: the average processing time divided by the batch interval.
            executors: how many tasks each executor can run at the same time, by id, for all that live.
            receivers: how many receivers run on an executor, or may start there, by executor id.
        """
        count = len(executors)
        if ratio >= self.up_ratio:
            return AllocationDecision(Scaling.UP, ratio, count, self.target_total(count, max(_rounded(ratio), 1)))
        if count < self.min_executors:
            return AllocationDecision(Scaling.UP, ratio, count, self.min_executors)
        if ratio > self.down_ratio:
            return AllocationDecision(Scaling.NONE, ratio, count, count)
        if count == self.min_executors:
            return AllocationDecision(Scaling.NONE, ratio, count, count, reason=f"the minimum is {self.min_executors}")
        if count <= self.receivers:
            return AllocationDecision(Scaling.NONE, ratio, count, count, reason=f"the job has {self.receivers} receivers")
        found = tuple(removable_executors(executors, receivers))
        if not found:
            why = "each executor runs a receiver or has the last core for batches"
            return AllocationDecision(Scaling.NONE, ratio, count, count, reason=why)
        return AllocationDecision(Scaling.DOWN, ratio, count, count - 1, found)

    def target_total(self, executors: int, new: int) -> int:
        """Return the number of executors to ask for, within the minimum and the maximum.

        Args:
            executors: how many live.
            new: how many more are wanted.

        Raises:
            ValueError: `new` is below 1.
        """
        if new < 1:
            raise ValueError(f"at least one executor more must be wanted, not {new}")
        wanted = executors + new
        return max(wanted if self.max_executors is None else min(self.max_executors, wanted), self.min_executors)


def removable_executors(executors: Mapping[str, int], receivers: Mapping[str, int]) -> list[str]:
    """Return the ids of the executors that may end, the one that came last first. Pure.

    An executor with a receiver stays. One without stays, if no other executor has a core for a task of a batch. Spark knows no such rule:
    where each executor has one core, it ends the last one without a receiver, and then no batch can run.

    Args:
        executors, receivers: as of `ExecutorAllocationPolicy.decide`.
    """
    free = {executor: max(0, slots - receivers.get(executor, 0)) for executor, slots in executors.items()}
    in_all = sum(free.values())
    found = [executor for executor in executors if not receivers.get(executor) and in_all - free[executor] > 0]
    return sorted(found, key=_age)


def _age(executor: str) -> tuple[int, str]:
    """Return the sort key that puts the executor that came last first. Spark numbers its executors; other ids come at the end."""
    return (-int(executor) if executor.isdecimal() else 1, executor)


def _rounded(ratio: float) -> int:
    """Round as Java does: halves up."""
    return int(ratio + 0.5)


def is_allocation_enabled(settings: Settings) -> bool:
    """Return whether streaming's executor allocation is on.

    Raises:
        ConfigurationError: the cluster manager or Spark's own dynamic allocation does not allow it.
    """
    if not settings[ALLOCATION_ENABLED]:
        return False
    if _is_local(settings):
        raise ConfigurationError(
            f"{ALLOCATION_ENABLED} is true, but in local mode ({settings.source.get('spark.master')}) the driver is the only executor. "
            "Set it to false, or give the URL of a cluster",
            key=ALLOCATION_ENABLED.key,
            value=True,
        )
    if parse_bool(settings.source.get(CORE_ENABLED) or "false"):
        raise ConfigurationError(
            "Dynamic Allocation cannot be enabled for both streaming and core at the same time. Please disable core Dynamic Allocation by "
            f"setting {CORE_ENABLED} to false to use Dynamic Allocation in streaming",
            key=ALLOCATION_ENABLED.key,
            value=True,
        )
    return True


def allocation_policy(settings: Settings, receivers: int = 0) -> ExecutorAllocationPolicy | None:
    """Return the policy that the settings describe; None if allocation is off.

    Args:
        settings: those of the context.
        receivers: the number of receivers, which is the default of the minimum. The job never shrinks below it.

    Raises:
        ConfigurationError: a setting cannot work; see also `is_allocation_enabled`.
    """
    if not is_allocation_enabled(settings):
        return None
    least, most = settings[MIN_EXECUTORS], settings[MAX_EXECUTORS]
    interval_s, up, down = (settings[entry] for entry in (SCALING_INTERVAL, SCALING_UP_RATIO, SCALING_DOWN_RATIO))
    for entry, value in (
        (MIN_EXECUTORS, least),
        (MAX_EXECUTORS, most),
        (SCALING_INTERVAL, interval_s),
        (SCALING_UP_RATIO, up),
        (SCALING_DOWN_RATIO, down),
    ):
        if value is not None and not value > 0:
            raise ConfigurationError(f"{entry} must be above zero, it is {value}", key=entry.key, value=value)
    if not up > down:
        raise ConfigurationError(
            f"{SCALING_UP_RATIO} must be more than {SCALING_DOWN_RATIO}: they are {up} and {down}", key=SCALING_UP_RATIO.key, value=up
        )
    if least is not None and most is not None and most < least:
        raise ConfigurationError(
            f"{MAX_EXECUTORS} must not be less than {MIN_EXECUTORS}: they are {most} and {least}", key=MAX_EXECUTORS.key, value=most
        )
    return ExecutorAllocationPolicy(interval_s, up, down, max(1, receivers) if least is None else least, most, receivers)


def warnings_of(settings: Settings, policy: ExecutorAllocationPolicy | None, receivers: int, has_log: bool) -> Sequence[str]:
    """Return what a start warns of when executors come and go while receivers run. Pure.

    Args:
        settings: those of the context.
        policy: that of streaming's executor allocation; None if it is off. Spark's own dynamic allocation may be on then.
        receivers: the number of receivers.
        has_log: whether receivers write what they store to a write-ahead log.
    """
    found: list[str] = []
    key = CORE_ENABLED if policy is None else ALLOCATION_ENABLED
    ends_executors = policy is not None or (not _is_local(settings) and parse_bool(settings.source.get(CORE_ENABLED) or "false"))
    if ends_executors and receivers and not has_log:
        found.append(
            f"{key} is true: executors end with the received blocks that they store, so data can be lost unless the source sends it "
            f"again. Set {WRITE_AHEAD_LOG}=true"
        )
    if policy is not None and policy.max_executors is not None and policy.max_executors < receivers:
        found.append(
            f"{MAX_EXECUTORS} is {policy.max_executors}, less than the {receivers} receivers: "
            "they share executors, which need a core for each"
        )
    return found


def _is_local(settings: Settings) -> bool:
    """Return whether the driver is the only executor."""
    master = settings.source.get("spark.master") or ""
    return master == "local" or master.startswith("local[")
