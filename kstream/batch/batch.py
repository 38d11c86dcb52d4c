"""Batch: a batch in the driver that runs it, with its state."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum

from kstream.batch.plan import BatchPlan, PlannedInput
from kstream.batch_time import Time
from kstream.errors import IllegalStateError


class BatchState(Enum):
    """The state of a batch. ENDED, FAILED and FENCED are the last states.

    A restart runs a failed batch again; the driver that took over runs a fenced one. A failed batch becomes ENDED if all its jobs had
    succeeded and the store accepts the completion later.
    """

    PLANNED = "planned"
    DURABLE = "durable"
    SUBMITTED = "submitted"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    FENCED = "fenced"


_NEXT = {
    BatchState.PLANNED: {BatchState.DURABLE},
    BatchState.DURABLE: {BatchState.SUBMITTED, BatchState.ENDED, BatchState.FAILED, BatchState.FENCED},
    BatchState.SUBMITTED: {BatchState.RUNNING, BatchState.FENCED},
    BatchState.RUNNING: {BatchState.ENDED, BatchState.FAILED, BatchState.FENCED},
    BatchState.ENDED: set[BatchState](),
    BatchState.FAILED: {BatchState.ENDED},  # its jobs had succeeded, and its completion was stored later
}


class Batch:
    """A batch with its plan and its state. Thread-safe.

    Args:
        plan: the plan as the log stores it.
        inputs: the same plan of each input as an object, by stream id.
        state: the state to begin with.
    """

    def __init__(self, plan: BatchPlan, inputs: Mapping[int, PlannedInput], state: BatchState = BatchState.PLANNED) -> None:
        self.plan = plan
        self.inputs = inputs
        self._state = state
        self._lock = threading.Lock()

    @property
    def time(self) -> Time:
        """The batch time."""
        return self.plan.time

    @property
    def state(self) -> BatchState:
        """The state now."""
        with self._lock:
            return self._state

    def become(self, state: BatchState) -> None:
        """Change the state. A fenced batch stays fenced, without an error.

        Raises:
            IllegalStateError: the batch cannot change from its state to this one.
        """
        with self._lock:
            if self._state is BatchState.FENCED:
                return
            if state not in _NEXT[self._state]:
                raise IllegalStateError(
                    f"batch {self.time} is {self._state.value} and cannot become {state.value}", state=self._state.value
                )
            self._state = state

    def __repr__(self) -> str:
        return f"<batch {self.time}, {self.state.value}>"
