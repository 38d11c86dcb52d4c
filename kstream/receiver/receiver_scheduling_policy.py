"""ReceiverSchedulingPolicy: on which executors receivers are to run (Spark's `ReceiverSchedulingPolicy.scala`). Pure functions.

A receiver is given *candidates*, not one place: the task that runs it prefers them all alike, and the scheduler of Spark takes one that
is free. An executor that has no receiver yet is always preferred to one that has.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias


class ReceiverState(enum.Enum):
    """INACTIVE → SCHEDULED (its task has been submitted) → ACTIVE (it has registered) → INACTIVE."""

    INACTIVE = "inactive"
    SCHEDULED = "scheduled"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True, order=True)
class ExecutorLocation:
    """One executor. As a string it is what Spark takes for a task's preferred location."""

    host: str
    executor_id: str

    def __str__(self) -> str:
        return f"executor_{self.host}_{self.executor_id}"


@dataclass(frozen=True, slots=True, order=True)
class HostLocation:
    """Any executor of a host, be it one that Spark has none on yet."""

    host: str

    def __str__(self) -> str:
        return self.host


Location: TypeAlias = ExecutorLocation | HostLocation


@dataclass(frozen=True, slots=True)
class ReceiverTrackingInfo:
    """What is known of a receiver. `scheduled`: its candidates while it is SCHEDULED; `running`: where it runs while it is ACTIVE."""

    stream_id: int
    state: ReceiverState = ReceiverState.INACTIVE
    scheduled: tuple[Location, ...] = ()
    running: ExecutorLocation | None = None


class ReceiverSchedulingPolicy:
    """Two stages: `scheduleReceivers` for all at the start, `rescheduleReceiver` for one that is to start again.

    Equal answers for equal questions: among equals the executor, or the receiver, that was named first is taken.
    """

    @staticmethod
    def scheduleReceivers(receivers: Mapping[int, str | None], executors: Sequence[ExecutorLocation]) -> dict[int, list[Location]]:
        """Candidates for each receiver, by stream id, such that the receivers lie evenly on the executors.

        `receivers`: the preferred host (`preferredLocation`) or None, by stream id. A receiver with a preferred host gets that host's
        executor with the fewest receivers, or the bare host where no executor is known there; the others the executor with the fewest
        of all. Then each executor left without a receiver becomes a further candidate of the receiver with the fewest candidates.
        Without executors every receiver is there, with no candidates.
        """
        chosen: dict[int, list[Location]] = {stream: [] for stream in receivers}
        if not executors or not receivers:
            return chosen
        count: Counter[ExecutorLocation] = Counter()

        def give(stream: int, among: Iterable[ExecutorLocation]) -> None:
            least = min(among, key=lambda executor: count[executor])
            count[least] += 1
            chosen[stream].append(least)

        for stream, host in receivers.items():
            if host is not None:
                there = [executor for executor in executors if executor.host == host]
                if there:
                    give(stream, there)
                else:
                    chosen[stream].append(HostLocation(host))
        for stream in [stream for stream, locations in chosen.items() if not locations]:
            give(stream, executors)
        for idle in [executor for executor in executors if not count[executor]]:
            min(chosen.values(), key=len).append(idle)
        return chosen

    @staticmethod
    def rescheduleReceiver(
        receiver: int,
        preferred_host: str | None,
        infos: Mapping[int, ReceiverTrackingInfo],
        executors: Sequence[ExecutorLocation],
    ) -> list[Location]:
        """Candidates for one receiver that starts again, by what the others do.

        The preferred host, if there is one, and all idle executors; where none is idle those with the least weight. An active receiver
        weighs 1 on its executor, a scheduled one 1 / number of its candidates on each of them, an inactive one nothing; nor does the
        receiver itself, which runs nowhere now. [] without executors. An executor that is not among `executors` is dead: no candidate.
        """
        if not executors:
            return []
        preferred: list[Location] = [] if preferred_host is None else [HostLocation(preferred_host)]
        weights = _weights(info for stream, info in infos.items() if stream != receiver)
        idle = [executor for executor in executors if executor not in weights]
        if idle:
            return preferred + idle
        least = min(weights[executor] for executor in executors)
        return preferred + [executor for executor in executors if weights[executor] == least]

    @classmethod
    def restartReceiver(
        cls,
        receiver: int,
        preferred_host: str | None,
        infos: Mapping[int, ReceiverTrackingInfo],
        executors: Sequence[ExecutorLocation],
    ) -> list[Location]:
        """Where a receiver whose task has ended is to run now.

        Case 1, it had been scheduled and never got to run where it should: the candidates of then that are still alive. Case 2, it had
        none or they are dead: as `rescheduleReceiver`.
        """
        info = infos.get(receiver)
        if info is not None and info.state is ReceiverState.SCHEDULED:
            alive = [location for location in info.scheduled if location in executors]
            if alive:
                return list[Location](alive)
        return cls.rescheduleReceiver(receiver, preferred_host, infos, executors)

    @staticmethod
    def accepts(candidates: Iterable[Location], registering: ExecutorLocation) -> bool:
        """Whether a receiver with these candidates may register from there: Spark need not go by what a task prefers.

        An executor is known by its id, as in Spark: it may call its host by another name than the driver does.
        """
        return any(
            location.executor_id == registering.executor_id if isinstance(location, ExecutorLocation) else location.host == registering.host
            for location in candidates
        )


def _weights(infos: Iterable[ReceiverTrackingInfo]) -> dict[ExecutorLocation, float]:
    weights: dict[ExecutorLocation, float] = {}
    for info in infos:
        for executor, weight in _weights_of(info):
            weights[executor] = weights.get(executor, 0.0) + weight
    return weights


def _weights_of(info: ReceiverTrackingInfo) -> list[tuple[ExecutorLocation, float]]:
    if info.state is ReceiverState.ACTIVE and info.running is not None:
        return [(info.running, 1.0)]
    if info.state is ReceiverState.SCHEDULED:
        share = 1.0 / max(1, len(info.scheduled))
        return [(location, share) for location in info.scheduled if isinstance(location, ExecutorLocation)]
    return []
