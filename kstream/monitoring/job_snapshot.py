"""JobSnapshot: a job at one moment. Metrics, status record, page and its JSON are made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kstream.batch import LogLag, PendingBatches
from kstream.batch_time import Time
from kstream.checkpoint.driver_status import DriverStatus, Outage
from kstream.monitoring.job_history import HistorySnapshot
from kstream.scheduler.executor_allocation_policy import AllocationDecision


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """What an engine knows at one moment. The defaults are for a driver that opens its checkpoint.

    Attributes:
        epoch: the epoch of the driver; 0 without a checkpoint directory.
        is_fenced: whether another driver has taken over.
        last_planned: the newest batch with a plan, of this driver or an earlier one; None before the first.
        pending: the batches that have not succeeded.
        retries: how often a batch was tried again.
        rates: the rate of each input that back-pressure has computed last, by stream id.
        lags: the lag of each input that reads logs, by stream id.
        state_error: why the states that were due last could not be written; None if they were.
        outage: the outage of brokers or of the store that lasts; None without one.
        waiting_blocks: the received blocks that are in no batch; None without receivers.
        allocations: the last decisions of executor allocation with their moments in milliseconds since the Unix epoch, oldest first.
    """

    epoch: int = 0
    is_fenced: bool = False
    last_planned: Time | None = None
    pending: PendingBatches = field(default_factory=PendingBatches)
    retries: int = 0
    rates: Mapping[int, int] = field(default_factory=dict[int, int])
    lags: Mapping[int, LogLag] = field(default_factory=dict[int, LogLag])
    state_error: Exception | None = None
    outage: Outage | None = None
    waiting_blocks: int | None = None
    allocations: Sequence[tuple[int, AllocationDecision]] = ()


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job at one moment.

    Attributes:
        status: the status of the driver, as it is stored.
        history: what was kept of the job.
        engine: what its engine knows.
        error_policies: the policy of each input for a record that fails, by stream id.
        receivers: the name of each receiver of the job, whether it has ever started or not, by stream id.
        executors: the executors that the driver found last; None if it has not looked.
    """

    status: DriverStatus
    history: HistorySnapshot
    engine: EngineSnapshot = field(default_factory=EngineSnapshot)
    error_policies: Mapping[int, str] = field(default_factory=dict[int, str])
    receivers: Mapping[int, str] = field(default_factory=dict[int, str])
    executors: int | None = None
