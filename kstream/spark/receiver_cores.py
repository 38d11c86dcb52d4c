"""How many cores receivers need, and how long their start waits for executors that have them. No Spark in here.

One rule: each receiver holds the cores of one task for as long as it runs, and one task of a batch must fit beside all of them. In local
mode the number of cores never changes, so that too few are an error at once. On a cluster executors come one by one, and a worker may be
slow or down: the start waits, says in the log what it waits for, and gives up after one setting.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kstream.conf import parse_bool
from kstream.errors import ConfigurationError, NotEnoughCoresError
from kstream.spark.executor_cores import task_slots

logger = logging.getLogger(__name__)
WAITING_TIME = "spark.streaming.kstream.receiver.maxRegisteredResourcesWaitingTime"
_LOOK_S = 0.5
_LINE_S = 30.0
_ASKS_FOR_INSTANCES = re.compile(r"yarn|k8s://")
"""Masters of which Spark asks for `spark.executor.instances` executors."""


@dataclass(frozen=True, slots=True)
class ReceiverCores:
    """The cores that an application with receivers needs. `task_cpus` is `spark.task.cpus`."""

    receivers: int
    task_cpus: int = 1

    @property
    def needed(self) -> int:
        """Cores in all: those of the receivers, and those of one task of a batch."""
        return (self.receivers + 1) * self.task_cpus

    def enough(self, executors: Sequence[int]) -> bool:
        """Whether a task of a batch fits beside the receivers, on executors with so many cores each."""
        return task_slots(executors, self.task_cpus) > self.receivers

    @property
    def taken(self) -> str:
        """What the receivers take, in words."""
        each = "a core each" if self.task_cpus == 1 else f"{self.task_cpus} cores each (spark.task.cpus)"
        return f"{self.receivers} receivers take {each} for as long as they run"

    def __str__(self) -> str:
        return f"{self.taken}, and batches need {self.task_cpus} more: {self.needed} in all"


def most_cores(conf: Mapping[str, str], master: str) -> tuple[list[int], str] | None:
    """The cores that the settings let a cluster give at most.

    Args:
        conf: The settings of Spark that are set.
        master: The URL of the cluster manager.

    Returns:
        The cores of each executor, and the settings that say so; None if the settings set no limit. Where a total is all that is known, one
        executor has all of it.
    """
    if master.startswith("spark://"):
        total = conf.get("spark.cores.max")
        return None if total is None else ([int(total)], f"spark.cores.max={total}")
    if not _ASKS_FOR_INSTANCES.match(master):
        return None
    dynamic = parse_bool(conf.get("spark.dynamicAllocation.enabled") or "false")
    key = "spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances"
    count = conf.get(key) or (None if dynamic else "2")
    if count is None:
        return None
    each = conf.get("spark.executor.cores") or "1"
    return [int(each)] * int(count), f"{key}={count} and spark.executor.cores={each}"


def wait_for_cores(
    cores: ReceiverCores,
    executors: Callable[[], Sequence[int]],
    local: bool,
    longest_s: float,
    monotonic: Callable[[], float],
    stopped: Callable[[float], bool],
) -> None:
    """Return when the application has the cores that its receivers need, or when a stop is wanted. Blocks; called by the starting thread.

    Args:
        cores: What is needed.
        executors: Ask for the number of cores of each executor that is registered now.
        local: Whether the driver is the only executor, whose cores never change.
        longest_s: How many seconds to wait for a cluster.
        monotonic: The clock, in seconds.
        stopped: Wait so many seconds, or until a stop is wanted; whether it is.

    Raises:
        ConfigurationError: In local mode, at once.
        NotEnoughCoresError: On a cluster, after `longest_s`.
    """
    began = told = monotonic()
    while not cores.enough(there := executors()):
        if local and there:  # Spark lists the driver a moment after it has started
            raise _too_few_in_local_mode(cores, sum(there))
        now = monotonic()
        if now - began >= longest_s:
            raise _too_few_on_the_cluster(cores, there, longest_s)
        if now - told >= _LINE_S:
            told = now
            logger.warning("the receivers wait for cores for %d s of at most %d s: %s. %s", now - began, longest_s, cores, _given(there))
        if stopped(_LOOK_S):
            return


def warn_of_limit(cores: ReceiverCores, most: tuple[list[int], str] | None) -> None:
    """Say in the log that a cluster can never give enough cores by its settings, before anybody waits for them."""
    if most is not None and not cores.enough(most[0]):
        logger.warning("the settings (%s) give the application at most %d cores, which is too few: %s", most[1], sum(most[0]), cores)


def _given(executors: Sequence[int]) -> str:
    return f"The application has {sum(executors)} cores on {len(executors)} executors"


def _too_few_in_local_mode(cores: ReceiverCores, there: int) -> ConfigurationError:
    return ConfigurationError(
        f"{cores.taken}, and there are {there} cores in all: too few are left for the batches. "
        f"Give the application {cores.needed} at least: local[{cores.needed}]",
        key="spark.master",
        value=there,
    )


def _too_few_on_the_cluster(cores: ReceiverCores, there: Sequence[int], waited_s: float) -> NotEnoughCoresError:
    return NotEnoughCoresError(
        f"the cluster has not given the application enough cores within {waited_s:g} s: {cores}. {_given(there)}{_split(cores, there)}. "
        "Check that the workers of the cluster are up, and have cores that no other application holds. To give the application more, set "
        f"spark.cores.max, spark.executor.instances or spark.executor.cores. To wait longer, set {WAITING_TIME}",
        receivers=cores.receivers,
        needed=cores.needed,
        cores=sum(there),
        executors=len(there),
        waited_s=waited_s,
    )


def _split(cores: ReceiverCores, executors: Sequence[int]) -> str:
    """Where the cores are enough in all, why they are not."""
    if sum(executors) < cores.needed:
        return ""
    return f", which can run {task_slots(executors, cores.task_cpus)} tasks: a task of {cores.task_cpus} cores never spans two executors"
