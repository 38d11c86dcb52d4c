"""The executors of a SparkContext: their list, those with a core for the tasks of batches, and the wait for the cores of receivers.

A receiver is a task that runs as long as its stream: it holds `spark.task.cpus` cores of its executor. One task of a batch must fit beside
all receivers. In local mode the number of cores never changes, so too few are an error at once. On a cluster executors come one by one,
and a worker may be slow or down. So the start waits, logs its wait, and gives up after the time that a setting gives.

A task of a batch that prefers an executor without a free core waits `spark.locality.wait`, in every batch, and then runs elsewhere.

The list of executors comes from the JVM by py4j, because pyspark does not offer it. The rules about cores are pure.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstream.conf import parse_bool
from kstream.errors import ConfigurationError, NotEnoughCoresError
from kstream.receiver.receiver_scheduling_policy import ExecutorLocation, HostLocation, Location
from kstream.receiver.settings import WAITING_TIME

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)
_POLL_S = 0.5
_LOG_INTERVAL_S = 30.0
_BY_NUMBER = "att"
"""The index of Spark's status store by the number of an attempt (`TaskIndexNames.ATTEMPT`)."""
_ASKS_FOR_INSTANCES = re.compile(r"yarn|k8s://")
"""Masters of which Spark asks for `spark.executor.instances` executors."""
# The attributes of a SparkContext under which this module keeps values, so that they end with it.
_KEPT = "_kstream_executors"
_RECEIVERS = "_kstream_receivers_on_executors"
_TASK_CPUS = "_kstream_task_cpus"
_lock = threading.Lock()


@dataclass(frozen=True, slots=True, order=True)
class Executor:
    """An executor of the application, as Spark lists it. `cores` counts all its cores, busy or not."""

    host: str
    executor_id: str
    cores: int

    @property
    def location(self) -> ExecutorLocation:
        """The location by which a task prefers this executor."""
        return ExecutorLocation(self.host, self.executor_id)


# -- the executors of a SparkContext


def executors(sc: SparkContext) -> list[Executor]:
    """Return the executors that live, without the driver; an empty list in local mode. Any thread.

    Makes three short calls to the JVM, and more of them if executors have come or gone since the last call. Spark's list of hosts and cores
    may be a moment behind: an executor that is not in it yet is left out, and the next call looks again.
    """
    if is_local(sc):
        return []
    ids = str(_jvm_context(sc).getExecutorIds().mkString(","))
    with _lock:
        kept: tuple[str, list[Executor]] | None = sc.__dict__.get(_KEPT)
        if kept is not None and kept[0] == ids:
            return kept[1]
        living = set(filter(None, ids.split(",")))
        found = _listed(sc, living)
        if len(found) == len(living):
            sc.__dict__[_KEPT] = (ids, found)
        return found


def forget_executors(sc: SparkContext) -> None:
    """Forget what `executors` has found, because nobody looks again soon. Any thread."""
    with _lock:
        sc.__dict__.pop(_KEPT, None)


def known_executors(sc: SparkContext) -> list[Executor]:
    """Return the executors that `executors` found last; an empty list before its first call. Makes no call to the JVM. Any thread."""
    kept: tuple[str, list[Executor]] | None = sc.__dict__.get(_KEPT)
    return [] if kept is None else kept[1]


def known_executor_count(sc: SparkContext) -> int | None:
    """Return how many executors `executors` found last: 0 if all are lost. None before its first call and in local mode. Any thread.

    Makes no call to the JVM.
    """
    kept: tuple[str, list[Executor]] | None = sc.__dict__.get(_KEPT)
    return None if kept is None else len(kept[1])


def set_receivers(sc: SparkContext, receivers: Callable[[], Mapping[str, int]] | None) -> None:
    """Set the function by which `free_executors` learns how many receivers run on each executor.

    Args:
        sc: The SparkContext.
        receivers: Returns the number of receivers by executor id; called by any thread. None: there are no receivers any more.
    """
    sc.__dict__[_RECEIVERS] = receivers


def free_executors(sc: SparkContext, among: Sequence[Executor]) -> list[Executor]:
    """Return those of the executors `among` that have a core for the tasks of batches, beside the receivers. Any thread.

    Without receivers all of them have one. With receivers this reads `spark.task.cpus`, once for each SparkContext; it makes no other call
    to the JVM.
    """
    receivers: Callable[[], Mapping[str, int]] | None = sc.__dict__.get(_RECEIVERS)
    return list(among) if receivers is None else executors_with_free_core(among, receivers(), task_cpus(sc))


def task_cpus(sc: SparkContext) -> int:
    """Return the number of cores that Spark reserves for each task (`spark.task.cpus`). Reads the setting once for each SparkContext."""
    if _TASK_CPUS not in sc.__dict__:
        sc.__dict__[_TASK_CPUS] = int(sc.getConf().get("spark.task.cpus") or 1)
    return sc.__dict__[_TASK_CPUS]


def is_local(sc: SparkContext) -> bool:
    """Return whether the driver's process is the only executor. Asks the JVM."""
    return bool(_jvm_context(sc).isLocal())


def executor_cores(sc: SparkContext) -> list[int]:
    """Return the number of cores of each executor that is registered now. Asks the JVM.

    In local mode the driver is the only executor. A moment after Spark's start it is not listed yet, and the list is empty.
    """
    if is_local(sc):
        return [cores for row in _summaries(sc) if (cores := int(row.totalCores()))]
    return [executor.cores for executor in executors(sc)]


def task_attempts(sc: SparkContext, stage: int, most: int = 100) -> list[Any]:
    """Return the attempts of the tasks of a stage's first attempt, from Spark's status store. Asks the JVM.

    The store may be seconds behind. Retries and speculative attempts are among them.

    Args:
        sc: the SparkContext.
        stage: the stage.
        most: return at most so many: those with the lowest numbers.

    Returns:
        Objects of the JVM, by the numbers of the attempts: TaskData of Spark's API.
    """
    jvm: Any = sc._jvm  # pyright: ignore[reportPrivateUsage]
    by_number, any_status = jvm.scala.Option.apply(_BY_NUMBER), jvm.java.util.ArrayList()
    return _rows(_jvm_context(sc).statusStore().taskList(stage, 0, 0, most, by_number, True, any_status))


def _listed(sc: SparkContext, living: set[str]) -> list[Executor]:
    """Return the executors with these ids that Spark's status store knows with their hosts. The store may be a moment behind."""
    rows = [row for row in _summaries(sc) if row.id() in living]
    found = [Executor(str(row.hostPort()).rpartition(":")[0], str(row.id()), int(row.totalCores())) for row in rows]
    return [executor for executor in found if executor.host]


def _summaries(sc: SparkContext) -> list[Any]:
    """Return the ExecutorSummary (Spark's API) of each executor that lives, and of the driver."""
    return _rows(_jvm_context(sc).statusStore().executorList(True))


def _rows(found: Any) -> list[Any]:
    """Return the elements of a Scala sequence. Makes a call to the JVM for each."""
    return [found.apply(i) for i in range(found.size())]


def _jvm_context(sc: SparkContext) -> Any:
    """Return the JVM's SparkContext."""
    context: Any = sc._jsc  # pyright: ignore[reportPrivateUsage]
    return context.sc()


# -- the tasks of batches


def task_slots(cores: Iterable[int], task_cpus: int) -> int:
    """Return how many tasks can run at the same time on executors with so many cores each. A task never spans two executors.

    Args:
        cores: The number of cores of each executor.
        task_cpus: `spark.task.cpus`.
    """
    return sum(count // task_cpus for count in cores)


def executors_with_free_core(executors: Iterable[Executor], receivers: Mapping[str, int], task_cpus: int) -> list[Executor]:
    """Return the executors that can run a task of a batch beside their receivers, in the given order.

    Args:
        executors: The executors of the application.
        receivers: The number of receivers on each executor, by executor id.
        task_cpus: `spark.task.cpus`.
    """
    return [executor for executor in executors if task_slots([executor.cores], task_cpus) > receivers.get(executor.executor_id, 0)]


def block_locations(blocks: Iterable[Iterable[str]], executors: Iterable[Executor], free: Sequence[Executor]) -> list[list[Location]]:
    """Return the locations that the task of each received block should prefer.

    A task prefers the executors that have a replica and a free core. Where there is none, it prefers the hosts of the replicas, if another
    executor with a free core is on the same host. Else it has no preference.

    Args:
        blocks: For each block the ids of the executors that have a replica.
        executors: The executors of the application.
        free: The executors with a free core (`executors_with_free_core`).

    Returns:
        A list of locations for each block; empty for no preference.
    """
    host_of = {executor.executor_id: executor.host for executor in executors}
    free_by_id = {executor.executor_id: executor.location for executor in free}
    free_hosts = {executor.host for executor in free}

    def locations(holders: Sequence[str]) -> list[Location]:
        nearest: list[Location] = [free_by_id[holder] for holder in holders if holder in free_by_id]
        if nearest:
            return nearest
        hosts = dict.fromkeys(host_of[holder] for holder in holders if holder in host_of)
        return [HostLocation(host) for host in hosts if host in free_hosts]

    return [locations(list(holders)) for holders in blocks]


# -- the cores of receivers


@dataclass(frozen=True, slots=True)
class ReceiverCores:
    """The cores that an application with receivers needs. `receivers` is their number, `task_cpus` is `spark.task.cpus`."""

    receivers: int
    task_cpus: int = 1

    @property
    def needed(self) -> int:
        """The number of cores needed in all: those of the receivers, and those of one task of a batch."""
        return (self.receivers + 1) * self.task_cpus

    def enough(self, executors: Sequence[int]) -> bool:
        """Return whether a task of a batch fits beside the receivers, on executors with so many cores each."""
        return task_slots(executors, self.task_cpus) > self.receivers

    @property
    def taken(self) -> str:
        """The cores that the receivers take, as the beginning of a sentence."""
        each = "a core each" if self.task_cpus == 1 else f"{self.task_cpus} cores each (spark.task.cpus)"
        return f"{self.receivers} receivers take {each} for as long as they run"

    def __str__(self) -> str:
        return f"{self.taken}, and batches need {self.task_cpus} more: {self.needed} in all"


def most_cores(conf: Mapping[str, str], master: str) -> tuple[list[int], str] | None:
    """Return the largest number of cores that a cluster can give under these settings. Pure.

    Args:
        conf: The settings of Spark that are set.
        master: The URL of the cluster manager.

    Returns:
        The cores of each executor, and the settings that limit them; None if no setting does. If only the total is known
        (`spark.cores.max`), the list has one executor with all cores.
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
    """Wait until the application has the cores that its receivers need, or until a stop is wanted. Called by the starting thread.

    Looks at the executors every half second, and logs every 30 s that it waits. Returns silently when a stop is wanted.

    Args:
        cores: The cores that are needed.
        executors: Returns the number of cores of each executor that is registered now.
        local: Whether the driver is the only executor, whose cores never change.
        longest_s: How many seconds to wait for a cluster.
        monotonic: The clock, in seconds.
        stopped: Waits so many seconds, or until a stop is wanted, and returns whether a stop is wanted.

    Raises:
        ConfigurationError: In local mode, at once.
        NotEnoughCoresError: On a cluster, after `longest_s`.
    """
    began = logged = monotonic()
    while not cores.enough(there := executors()):
        if local and there:  # Spark lists the driver a moment after it has started
            raise _too_few_in_local_mode(cores, sum(there))
        now = monotonic()
        if now - began >= longest_s:
            raise _too_few_on_the_cluster(cores, there, longest_s)
        if now - logged >= _LOG_INTERVAL_S:
            logged = now
            logger.warning("the receivers wait for cores for %d s of at most %d s: %s. %s", now - began, longest_s, cores, _given(there))
        if stopped(_POLL_S):
            return


def warn_of_limit(cores: ReceiverCores, most: tuple[list[int], str] | None) -> None:
    """Log a warning if the settings never let the cluster give enough cores. A start calls this before it waits for them.

    Args:
        cores: The cores that are needed.
        most: The result of `most_cores`.
    """
    if most is not None and not cores.enough(most[0]):
        logger.warning("the settings (%s) give the application at most %d cores, which is too few: %s", most[1], sum(most[0]), cores)


def _given(executors: Sequence[int]) -> str:
    """Return a sentence about the cores that the application has."""
    return f"The application has {sum(executors)} cores on {len(executors)} executors"


def _too_few_in_local_mode(cores: ReceiverCores, there: int) -> ConfigurationError:
    return ConfigurationError(
        f"{cores.taken}, and there are {there} cores in all: too few are left for the batches. "
        f"Give the application {cores.needed} at least: local[{cores.needed}]",
        key="spark.master",
        value=there,
    )


def _too_few_on_the_cluster(cores: ReceiverCores, there: Sequence[int], waited_s: float) -> NotEnoughCoresError:
    """Return the error for a cluster that has given too few cores. `there` has the cores of each executor."""
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
    """Return the reason for which cores that suffice in total do not suffice, as part of a sentence; empty if the total is too small."""
    if sum(executors) < cores.needed:
        return ""
    return f", which can run {task_slots(executors, cores.task_cpus)} tasks: a task of {cores.task_cpus} cores never spans two executors"


_CLIENT_CLASS = "org.apache.spark.ExecutorAllocationClient"


class SparkExecutorAllocationClient:
    """Asks the cluster manager for executors, and ends them. Any thread. Each method makes a few calls to the JVM; raises py4j's errors.

    The scheduler backends of standalone clusters, local-cluster, YARN and Kubernetes implement Spark's ExecutorAllocationClient. That of
    local mode does not.
    """

    def __init__(self, sc: SparkContext) -> None:
        self._sc = sc

    def can_allocate(self) -> bool:
        """Return whether the cluster manager can be asked for executors while the application runs. In local mode it cannot."""
        from py4j.java_gateway import is_instance_of  # imported late: a graph is built without py4j

        gateway: Any = self._sc._gateway  # pyright: ignore[reportPrivateUsage]
        return is_instance_of(gateway, self._backend(), _CLIENT_CLASS)

    def executors(self) -> Mapping[str, int]:
        """Return how many tasks each executor can run at the same time, by executor id."""
        cpus = task_cpus(self._sc)
        return {executor.executor_id: task_slots([executor.cores], cpus) for executor in executors(self._sc)}

    def request_total_executors(self, total: int) -> bool:
        """Ask for so many executors of the default resource profile. Ends none. Returns whether the cluster manager has taken it."""
        jvm: Any = self._sc._jvm  # pyright: ignore[reportPrivateUsage]
        return bool(self._context().requestTotalExecutors(total, 0, jvm.PythonUtils.toScalaMap({})))

    def kill_executor(self, executor: str) -> bool:
        """End an executor that runs no task, and lower the number that was asked for by one. Returns whether it ends.

        This is the backend's method, as in Spark Streaming. The SparkContext's own one would end a busy executor, too, and fail its tasks.
        """
        return bool(self._backend().killExecutor(executor))

    def _backend(self) -> Any:
        """Return the scheduler backend of the JVM's SparkContext."""
        return self._context().schedulerBackend()

    def _context(self) -> Any:
        """Return the JVM's SparkContext."""
        context: Any = self._sc._jsc  # pyright: ignore[reportPrivateUsage]
        return context.sc()
