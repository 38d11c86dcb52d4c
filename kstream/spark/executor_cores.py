"""Which executors have a core for the tasks of batches. Pure rules about what Spark and the ReceiverTracker say; no call to the JVM.

A receiver is a task that runs as long as its stream. It holds `spark.task.cpus` cores of its executor. A task of a batch that prefers an
executor without a free core waits `spark.locality.wait`, in every batch, and then runs elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kstream.receiver.receiver_scheduling_policy import ExecutorLocation, HostLocation, Location


@dataclass(frozen=True, slots=True, order=True)
class Executor:
    """An executor of the application, as Spark lists it. `cores`: all its cores, busy or not."""

    host: str
    executor_id: str
    cores: int

    @property
    def location(self) -> ExecutorLocation:
        """How a task prefers this executor."""
        return ExecutorLocation(self.host, self.executor_id)


def task_slots(cores: Iterable[int], task_cpus: int) -> int:
    """How many tasks can run at the same time on executors with so many cores each. A task never spans two executors.

    Args:
        cores: The number of cores of each executor.
        task_cpus: `spark.task.cpus`.
    """
    return sum(count // task_cpus for count in cores)


def executors_with_free_core(executors: Iterable[Executor], receivers: Mapping[str, int], task_cpus: int) -> list[Executor]:
    """The executors that can run a task of a batch beside their receivers, in the given order.

    Args:
        executors: The executors of the application.
        receivers: How many receivers run on each executor, by executor id.
        task_cpus: `spark.task.cpus`.
    """
    return [executor for executor in executors if task_slots([executor.cores], task_cpus) > receivers.get(executor.executor_id, 0)]


def block_locations(blocks: Iterable[Iterable[str]], executors: Iterable[Executor], free: Sequence[Executor]) -> list[list[Location]]:
    """Where the task of each received block should run.

    A task prefers the executors that have a replica and a free core. Where there is none, it prefers the hosts of the replicas, if another
    executor with a free core is on the same host. Else it has no preference.

    Args:
        blocks: For each block the ids of the executors that have a replica.
        executors: The executors of the application.
        free: Those of them with a free core (`executors_with_free_core`).
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
