"""ReceiverSchedulingPolicy: on which executors receivers run (Spark's `ReceiverSchedulingPolicy.scala`). Pure functions.

A receiver gets *candidates*, not one executor: its task prefers them all alike, and Spark's scheduler takes one that is free. An executor
without a receiver is always preferred to one with receivers.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias


class ReceiverState(enum.Enum):
    """The states of a receiver: INACTIVE → SCHEDULED (its task has been submitted) → ACTIVE (it has registered) → INACTIVE."""

    INACTIVE = "inactive"
    SCHEDULED = "scheduled"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True, order=True)
class ExecutorLocation:
    """One executor. Its string has the form of a preferred location of a Spark task."""

    host: str
    executor_id: str

    def __str__(self) -> str:
        return f"executor_{self.host}_{self.executor_id}"


@dataclass(frozen=True, slots=True, order=True)
class HostLocation:
    """Any executor of a host. Spark may have none there yet."""

    host: str

    def __str__(self) -> str:
        return self.host


Location: TypeAlias = ExecutorLocation | HostLocation


@dataclass(frozen=True, slots=True)
class ReceiverTrackingInfo:
    """The state of a receiver on the driver."""

    stream_id: int
    state: ReceiverState = ReceiverState.INACTIVE
    scheduled: tuple[Location, ...] = ()
    """Its candidates while it is SCHEDULED."""
    running: ExecutorLocation | None = None
    """Its executor while it is ACTIVE."""


class ReceiverSchedulingPolicy:
    """The policy: `scheduleReceivers` places all receivers at the start, `restartReceiver` places a receiver whose task has ended.

    The results are deterministic: of equal executors or receivers, the first one is taken.
    """

    @staticmethod
    def scheduleReceivers(receivers: Mapping[int, str | None], executors: Sequence[ExecutorLocation]) -> dict[int, list[Location]]:
        """Spread all receivers evenly over the executors.

        A receiver with a preferred host gets that host's executor with the fewest receivers, or the bare host if no executor is known
        there. The other receivers get the executor with the fewest receivers of all. Then each executor without a receiver becomes a
        further candidate of the receiver with the fewest candidates.

        Args:
            receivers: The preferred host (`preferredLocation`) or None, by stream id.
            executors: The executors that live.

        Returns:
            Candidates by stream id; without executors no receiver has a candidate.
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
        """Place one receiver by the load of the others.

        Its candidates are the preferred host, if there is one, and all idle executors. If no executor is idle, the executors with the
        least weight take their place. An active receiver weighs 1 on its executor, a scheduled one 1 / number of its candidates on each
        of them, an inactive one nothing. The receiver itself, which runs nowhere now, weighs nothing.

        Args:
            receiver: The stream id of the receiver.
            preferred_host: Its preferred host, if there is one.
            infos: The states of all receivers, by stream id.
            executors: The executors that live. All others are dead.

        Returns:
            The candidates; none without executors.
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
        """Place a receiver whose task has ended. The arguments are those of `rescheduleReceiver`.

        If the receiver was scheduled and never accepted, its candidates that are living executors remain its candidates. If there are
        none, and in all other cases, `rescheduleReceiver` decides.
        """
        info = infos.get(receiver)
        if info is not None and info.state is ReceiverState.SCHEDULED:
            alive = [location for location in info.scheduled if location in executors]
            if alive:
                return list[Location](alive)
        return cls.rescheduleReceiver(receiver, preferred_host, infos, executors)

    @staticmethod
    def accepts(candidates: Iterable[Location], registering: ExecutorLocation) -> bool:
        """Return whether a receiver with these candidates may register from an executor: Spark may start a task elsewhere than it prefers.

        Executors are compared by their ids, as in Spark: an executor may call its host by another name than the driver does.
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
    """Return the weights of one receiver on its executors; see `rescheduleReceiver`."""
    if info.state is ReceiverState.ACTIVE and info.running is not None:
        return [(info.running, 1.0)]
    if info.state is ReceiverState.SCHEDULED:
        share = 1.0 / max(1, len(info.scheduled))
        return [(location, share) for location in info.scheduled if isinstance(location, ExecutorLocation)]
    return []
