"""Batch: one batch in the driver that runs it, with the state it is in."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum

from kstream.batch.plan import BatchPlan, PlannedInput
from kstream.batch_time import Time
from kstream.errors import IllegalStateError


class BatchState(Enum):
    """Where a batch is. It ends as one of the last three; a failed one runs again at a restart, a fenced one in the next driver."""

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
    BatchState.FAILED: {BatchState.ENDED},  # its jobs had succeeded, and that could be noted later
}


class Batch:
    """`plan` is what the log stores, `inputs` are the same plans as objects, by stream id. Thread-safe."""

    def __init__(self, plan: BatchPlan, inputs: Mapping[int, PlannedInput], state: BatchState = BatchState.PLANNED) -> None:
        self.plan = plan
        self.inputs = inputs
        self._state = state
        self._lock = threading.Lock()

    @property
    def time(self) -> Time:
        return self.plan.time

    @property
    def state(self) -> BatchState:
        with self._lock:
            return self._state

    def become(self, state: BatchState) -> None:
        """Go on to a state. A fenced batch stays fenced. IllegalStateError if the batch cannot get there from where it is."""
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
