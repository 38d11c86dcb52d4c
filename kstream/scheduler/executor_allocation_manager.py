"""ExecutorAllocationManager: more executors while batches are slow, fewer while they are fast (Spark's class of that name)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from kstream.batch_time import Time
from kstream.clock import Clock, StopFlag
from kstream.conf import Settings
from kstream.errors import ConfigurationError, in_a_line
from kstream.listener import StreamingListener, StreamingListenerBatchCompleted, StreamingListenerBatchSubmitted
from kstream.loop import THREADS, RecurringTimer, Runtime, Thread
from kstream.scheduler.executor_allocation_policy import (
    AllocationDecision,
    ExecutorAllocationPolicy,
    Scaling,
    allocation_policy,
    warnings_of,
)
from kstream.scheduler.settings import ALLOCATION_ENABLED
from kstream.wal.settings import WRITE_AHEAD_LOG

logger = logging.getLogger(__name__)
LAST_REQUEST_S = 2.0
"""How long a stop waits for a request that is under way."""
RECENT = 50
"""The number of decisions that are kept, for people."""


class ExecutorAllocationClient(Protocol):
    """Asks the cluster manager for executors (Spark's interface of that name).

    Any thread. The calls block on Spark, and raise its errors. Implemented by `SparkExecutorAllocationClient` of `kstream.spark`, and by
    tests.
    """

    def can_allocate(self) -> bool:
        """Return whether the cluster manager can be asked for executors while the application runs."""
        ...

    def executors(self) -> Mapping[str, int]:
        """Return how many tasks each executor can run at the same time, by executor id."""
        ...

    def request_total_executors(self, total: int, /) -> bool:
        """Ask for so many executors in all. Ends none. Returns whether the cluster manager has taken the request."""
        ...

    def kill_executor(self, executor: str, /) -> bool:
        """End an executor that runs no task, and ask for one fewer in all. Returns whether it ends: a busy one does not."""
        ...


class _SteadyClock:
    """A clock whose time is the monotonic one of another clock: a scaling interval is no longer when the wall clock is set back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def time_ms(self) -> int:
        return self._clock.monotonic_ms()

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        return self._clock.wait(milliseconds, stop)


class ExecutorAllocationManager(StreamingListener):
    """Compares the processing times of batches with the batch interval, once a scaling interval, and asks Spark for executors accordingly.

    Batches with a failed output, and those that were tried again, do not count: their delays do not show how fast the job is. An interval
    in which only such batches have ended, or none, changes nothing. If batches were planned and none of them had a job
    (`spark.streaming.kstream.skipEmptyBatches`), the ratio is 0.

    Threads: the methods of a listener run on the listeners' thread. The timer's thread decides, and asks Spark. `_lock` guards the sums,
    the submitted batches and the latest decision. It is not held while Spark is asked.

    Args:
        policy: decides.
        client: asks Spark.
        receivers: receivers() returns how many receivers run on an executor, or may start there, by executor id. Any thread.
        newest_succeeded: newest_succeeded() returns the newest planned batch; None if one has not succeeded. Any thread.
        batch_duration_ms: the batch interval.
        clock: the clock of the scaling intervals.
        runtime: makes the thread.
    """

    def __init__(
        self,
        policy: ExecutorAllocationPolicy,
        client: ExecutorAllocationClient,
        receivers: Callable[[], Mapping[str, int]],
        newest_succeeded: Callable[[], Time | None],
        batch_duration_ms: int,
        clock: Clock,
        runtime: Runtime = THREADS,
    ) -> None:
        super().__init__()
        self._policy = policy
        self._client = client
        self._receivers = receivers
        self._newest_succeeded = newest_succeeded
        self._batch_duration_ms = batch_duration_ms
        self._clock = clock
        self._interval_ms = max(1, int(policy.interval_s * 1000))
        self._lock = threading.Lock()
        self._sum_ms = 0
        self._count = 0
        self._some_not_counted = False
        """Whether a batch with jobs has ended in this interval that does not count."""
        self._submitted: set[Time] = set()
        """The batches with jobs that have not ended."""
        self._newest: Time | None = None
        """The newest batch at the end of the last interval, if all had succeeded then; on the timer's thread."""
        self._stopped = False
        self._ending: set[str] = set()
        """The executors that have been ended and that Spark still lists; on the timer's thread."""
        self._recent: deque[tuple[int, AllocationDecision]] = deque(maxlen=RECENT)
        self._why_unchanged = ""
        """The reason that was logged last for a number that stays, on the timer's thread."""
        name = "streaming-executor-allocation-manager"
        self._timer = RecurringTimer(_SteadyClock(clock), self._interval_ms, self._manage_allocation, name, self._timer_failed, runtime)

    @classmethod
    def createIfEnabled(
        cls,
        client: ExecutorAllocationClient | None,
        settings: Settings,
        num_receivers: int,
        receivers: Callable[[], Mapping[str, int]],
        newest_succeeded: Callable[[], Time | None],
        batch_duration_ms: int,
        clock: Clock,
        runtime: Runtime = THREADS,
    ) -> ExecutorAllocationManager | None:
        """Make the manager if the settings switch it on. Asks Spark whether its cluster manager can give and end executors.

        Logs what receivers risk where executors come and go, also under Spark's own dynamic allocation.

        Args:
            client: asks Spark; None if there is no Spark to ask.
            settings: those of the context.
            num_receivers: the number of receivers of the job.
            receivers, newest_succeeded, batch_duration_ms, clock, runtime: as of the class.

        Returns:
            The manager, not started; None if executor allocation is off.

        Raises:
            ConfigurationError: a setting cannot work, or the cluster manager cannot give and end executors.
        """
        policy = allocation_policy(settings, num_receivers)
        for warning in warnings_of(settings, policy, num_receivers, settings[WRITE_AHEAD_LOG]):
            logger.warning("%s", warning)
        if policy is None:
            return None
        if client is None or not client.can_allocate():
            raise ConfigurationError(
                f"{ALLOCATION_ENABLED} is true, but the cluster manager of this master cannot give or end executors while an application "
                "runs. Set it to false, or use a standalone cluster, YARN or Kubernetes",
                key=ALLOCATION_ENABLED.key,
                value=True,
            )
        return cls(policy, client, receivers, newest_succeeded, batch_duration_ms, clock, runtime)

    def recent(self) -> list[tuple[int, AllocationDecision]]:
        """Return the last decisions with their moments in milliseconds since the Unix epoch, oldest first. Any thread."""
        with self._lock:
            return list(self._recent)

    def start(self) -> None:
        """Start the scaling intervals; the first ends one interval from now. Call once. Returns at once."""
        self._timer.start(self._clock.monotonic_ms() + self._interval_ms)
        policy = self._policy
        logger.info(
            "executor allocation: started, with %d executors at least and %s at most; up from the ratio %g, down from %g, every %g s",
            policy.min_executors,
            "any number" if policy.max_executors is None else policy.max_executors,
            policy.up_ratio,
            policy.down_ratio,
            policy.interval_s,
        )

    def stop(self) -> None:
        """Ask for no executors any more. May be called before `start`, and again.

        A cluster manager may take minutes to answer a request that is under way. So this waits for it no longer than LAST_REQUEST_S.
        """
        self._stopped = True
        self._timer.interrupt(LAST_REQUEST_S)

    def timer_thread(self) -> Thread | None:
        """Return the thread that waits on the clock; None before the start and after the end."""
        return self._timer.alive_thread()

    def onBatchSubmitted(self, batchSubmitted: StreamingListenerBatchSubmitted) -> None:
        """Note a batch that has jobs."""
        with self._lock:
            self._submitted.add(batchSubmitted.info.batch_time)

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Add the processing time of a batch whose outputs have all succeeded in the first try; note any other batch with jobs."""
        info = batchCompleted.info
        delay = info.processing_delay_ms
        with self._lock:
            self._submitted.discard(info.batch_time)
            if delay is not None and info.measures_speed:
                self._sum_ms += delay
                self._count += 1
            elif delay is not None:
                self._some_not_counted = True

    # -- on the timer's thread

    def _manage_allocation(self, _time_ms: int) -> None:
        """End a scaling interval: decide by its batches, and act. An error is a warning; the next interval decides anew."""
        with self._lock:
            sum_ms, count, some_had_jobs = self._sum_ms, self._count, self._some_not_counted or bool(self._submitted)
            self._sum_ms, self._count, self._some_not_counted = 0, 0, False
        before, self._newest = self._newest, self._newest_succeeded()
        only_empty = not some_had_jobs and self._newest is not None and self._newest != before
        if count == 0 and not only_empty:
            text = "executor allocation: no batch has succeeded in its first try within %g s, so nothing changes"
            logger.debug(text, self._policy.interval_s)
            return
        try:
            self._act(self._decide(sum_ms // max(1, count) / self._batch_duration_ms))
        except Exception as e:
            logger.warning("executor allocation: Spark could not be asked, the next scaling interval tries again: %s", in_a_line(e))

    def _decide(self, ratio: float) -> AllocationDecision:
        """Return the decision for a ratio, and keep it. Asks Spark for its executors.

        An executor that was told to end is listed until it has ended. It counts no more: to ask for as many as are listed would replace it.
        """
        listed = self._client.executors()
        self._ending &= listed.keys()
        living = {executor: slots for executor, slots in listed.items() if executor not in self._ending}
        decision = self._policy.decide(ratio, living, self._receivers())
        with self._lock:
            self._recent.append((self._clock.time_ms(), decision))
        return decision

    def _act(self, decision: AllocationDecision) -> None:
        """Ask Spark for what was decided, and log it in one line."""
        match decision.scaling:
            case Scaling.UP:
                self._request_executors(decision)
            case Scaling.DOWN:
                self._kill_executor(decision)
            case Scaling.NONE if decision.reason:
                self._log_unchanged(decision, decision.reason)
            case Scaling.NONE:
                logger.debug("executor allocation: ratio %.2f over %g s changes nothing", decision.ratio, self._policy.interval_s)

    def _request_executors(self, decision: AllocationDecision) -> None:
        """Ask for the executors of a decision, also for as many as live: then Spark replaces one that is lost."""
        if not self._requested(decision.total):
            return
        more = decision.total - decision.executors
        if more > 0:
            self._why_unchanged = ""
            self._log(decision, f"asks for {more} more, {decision.total} in all")
        else:
            self._log_unchanged(decision, f"the maximum is {decision.total}")

    def _kill_executor(self, decision: AllocationDecision) -> None:
        """End the first executor of a decision that runs no task.

        Spark lowers by one what was asked for last; without a request before, to zero, so that it would replace no lost executor. So as
        many as live are asked for first.
        """
        if not self._requested(decision.executors):
            return
        for executor in decision.removable:
            if self._stopped:
                return
            if self._client.kill_executor(executor):
                self._ending.add(executor)
                self._why_unchanged = ""
                self._log(decision, f"ends executor {executor}, {decision.total} in all")
                return
        self._log_unchanged(decision, "each executor that may end runs a task at the moment")

    def _requested(self, total: int) -> bool:
        """Ask for so many executors in all. Return whether the request was taken; if not, log a warning."""
        taken = self._client.request_total_executors(total)
        if not taken:
            text = (
                "executor allocation: the cluster manager has not taken the request for %d executors, the next scaling interval tries again"
            )
            logger.warning(text, total)
        return taken

    def _log(self, decision: AllocationDecision, what: str) -> None:
        """Log what becomes of the number of executors."""
        logger.info("executor allocation: ratio %.2f over %g s, %s", decision.ratio, self._policy.interval_s, what)

    def _log_unchanged(self, decision: AllocationDecision, why: str) -> None:
        """Log why the number of executors stays, although the ratio asks for another one. The same reason is logged once in a row."""
        if why != self._why_unchanged:
            self._log(decision, f"stays at {decision.executors}: {why}")
        self._why_unchanged = why

    def _timer_failed(self, error: BaseException) -> None:
        """Log the error that has ended the timer's thread."""
        logger.error("executor allocation has ended: the number of executors stays as it is", exc_info=error)
