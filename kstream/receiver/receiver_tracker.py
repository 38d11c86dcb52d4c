"""ReceiverTracker: the receivers of all streams and the stores of their blocks, on the driver (Spark's `ReceiverTracker.scala`)."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kstream.batch import ReceiverInfo
from kstream.clock import Clock
from kstream.errors import ReceiverNotStartedError
from kstream.listener import StreamingListenerReceiverError, StreamingListenerReceiverStarted, StreamingListenerReceiverStopped
from kstream.loop import THREADS, Event, Runtime
from kstream.receiver import messages
from kstream.receiver.block_reading import Replica
from kstream.receiver.executor_process import DRIVER
from kstream.receiver.failed_starts import FailedStarts
from kstream.receiver.received_block_tracker import ReceivedBlockInfo, ReceivedBlockTracker
from kstream.receiver.receiver import Receiver
from kstream.receiver.receiver_scheduling_policy import (
    ExecutorLocation,
    Location,
    ReceiverSchedulingPolicy,
    ReceiverState,
    ReceiverTrackingInfo,
)
from kstream.rpc import of_body, to_body

logger = logging.getLogger(__name__)
_WAIT_S = 5.0
"""Seconds for which the answer to `NextCommand` is held back, and so the interval at which the executors are listed."""
_MOST_REFUSALS = 3
"""How often in a row a receiver is refused that runs elsewhere than it was scheduled. After that any executor is better than none."""


class TaskEnded(Protocol):
    """Called when the task of a receiver run has ended. Any thread."""

    def __call__(self, reason: str, raised: bool = False, /) -> None:
        """Take the end of the task.

        Args:
            reason: The reason of a failure in one line, or "".
            raised: Whether it is an exception of Python: of ours or the user's. Else Spark has ended the task, as when an executor is lost.
        """
        ...


class ReceiverRunner(Protocol):
    """A runner of receivers: as tasks of Spark, or in threads of a test. Any thread."""

    def executors(self) -> list[ExecutorLocation]:
        """Return the executors that live. An exception means that Spark cannot be asked."""
        ...

    def run(self, receiver: Receiver, stream_id: int, run: int, candidates: Sequence[Location], ended: TaskEnded, /) -> None:
        """Start the task of a receiver run. Returns at once.

        Args:
            receiver: The receiver.
            stream_id: The id of its stream.
            run: The number of the run.
            candidates: The locations that the task prefers.
            ended: Called when the task has ended, on any thread.
        """
        ...

    def start_stores(self, at_least: int = 0, /) -> None:
        """Start a block store on every executor that has none. Blocks; failures are logged.

        Args:
            at_least: The number of executors with a store for which this waits, for a limited time.
        """
        ...

    def forget_store(self, executor: str, /) -> None:
        """Make the next `start_stores` look for this executor's store, which does not answer."""
        ...

    def cancel(self, stream_id: int, /) -> None: ...

    def first_attempt_runs(self, stage: int, /) -> bool:
        """Return whether the first attempt of a receiver's task, in this stage of Spark's, still runs."""
        ...


@dataclass(slots=True)
class ReceiverEntry:
    """The tracker's record of one receiver. Read and changed under the tracker's lock."""

    receiver: Receiver
    info: ReceiverTrackingInfo
    command_came: Event
    commands: deque[dict[str, Any]] = field(default_factory=deque[dict[str, Any]])
    run: int = 0
    """The number of its latest run."""
    run_began: int = 0
    """When that run was submitted, in ms of the monotonic clock."""
    running: bool = False
    """Whether a task of it has been submitted and has not ended."""
    executor: str | None = None
    """The executor from which this run has registered last."""
    cancelled: bool = False
    """Whether a stop has cancelled its task."""
    rate: int | None = None
    """The rate limit that it was sent last, in records a second. Its next run gets the same."""
    refusals: int = 0
    """How often it has been refused, since it was last accepted, because it ran on an executor that was not a candidate."""
    starts: FailedStarts = field(default_factory=FailedStarts)
    """The failed starts in a row, and why."""
    last_error: tuple[str, str, int] = ("", "", -1)
    """Message, error, and time (ms)."""


@dataclass(frozen=True, slots=True)
class ReceiverTrackerConfig:
    """The waits of a tracker."""

    restart_delay_ms: int = 2000
    """The least time between the starts of two runs of a receiver."""
    stores_at_first: int = 1
    """How many executors should have stores before the first receiver runs, for the replicas of its first block."""
    registration_s: float = 10.0
    """How many seconds a stop waits for a receiver that has not registered."""


class ReceiverTracker:
    """The receivers of all streams and the block stores, on the driver. A tracker is started once.

    The `handlers` answer the messages of receivers and stores, each on the thread of its connection. The task of a receiver ends when the
    receiver stops itself, its executor dies, or the driver refuses it. While the tracker runs the receiver is then run again, where
    ReceiverSchedulingPolicy places it. Of each receiver only the latest run is accepted.

    `_lock` guards the entries, the stores and the flags. Decisions are made under the lock; the runner, the policy and the listeners are
    called without it.
    """

    def __init__(
        self,
        receivers: Mapping[int, Receiver],
        runner: ReceiverRunner,
        blocks: ReceivedBlockTracker,
        clock: Clock,
        tell: Callable[[Any], None] = lambda _event: None,
        config: ReceiverTrackerConfig | None = None,
        runtime: Runtime = THREADS,
    ) -> None:
        """Make a tracker; `start` starts it.

        Args:
            receivers: The receivers, by stream id.
            runner: Runs the receivers and starts the stores.
            blocks: Gets the blocks that receivers add.
            clock: The clock of runs and errors.
            tell: Posts an event to the listeners; any thread.
            config: How long the tracker waits, and for how many stores; None for the defaults.
            runtime: Makes threads and events.
        """
        self._runner = runner
        self._blocks = blocks
        self._clock = clock
        self._tell = tell
        self._runtime = runtime
        self._lock = threading.Lock()
        self._entries = {
            stream: ReceiverEntry(receiver, ReceiverTrackingInfo(stream), runtime.event()) for stream, receiver in receivers.items()
        }
        self._stores: dict[str, Replica] = {}
        self._doubtful: set[str] = set()
        """Executors whose stores have not answered, until the store registers again or the executor is gone."""
        self._stopping = False
        self._starting_stores = True  # `start` starts them
        self._over = runtime.event()
        self._failed: Callable[[ReceiverNotStartedError], None] = lambda _error: None
        self._config = ReceiverTrackerConfig() if config is None else config
        self._all_ended = runtime.event()
        self.handlers: Mapping[str, Callable[[bytes], bytes]] = {
            messages.REGISTER_RECEIVER: self._answering(self._register),
            messages.REGISTER_STORE: self._answering(self._register_store),
            messages.ADD_BLOCK: self._answering(self._add_block),
            messages.REPORT_ERROR: self._answering(self._report_error),
            messages.ON_START_RETURNED: self._answering(self._on_start_returned),
            messages.DEREGISTER_RECEIVER: self._answering(self._deregister),
            messages.FIRST_ATTEMPT: self._answering(lambda stream, stage: {"runs": self._runner.first_attempt_runs(stage)}),
            messages.NEXT_COMMAND: self._answering(self._next_command),
        }

    # -- for the context

    def start(self, failed: Callable[[ReceiverNotStartedError], None] = lambda _error: None) -> None:
        """Run all receivers, evenly over the executors, as soon as there are stores for their blocks. Returns at once. Call once.

        Args:
            failed: Called when a receiver has failed to start too often, on any thread. It is tried again nevertheless, until `stop`.
        """
        self._failed = failed
        self._runtime.thread(self._start_all, "ReceiverTracker").start()

    def _start_all(self) -> None:
        """Start the stores, and then all receivers. On a thread of its own."""
        self._start_stores(self._config.stores_at_first)
        hosts = {stream: self._preferred(stream) for stream in self._entries}
        candidates = ReceiverSchedulingPolicy.scheduleReceivers(hosts, self._runner.executors())
        for stream in self._entries:
            self._run(stream, candidates[stream])

    def stop(self, timeout: float) -> bool:
        """Stop every receiver after it has stored its records. Blocks. No new block is accepted afterwards.

        A receiver that registers from now on is refused. After `registration_s` seconds the tasks that have not registered, or whose
        executors are gone, are cancelled. After the time-out all tasks that have not ended are cancelled.

        Args:
            timeout: Seconds until all tasks should have ended.

        Returns:
            Whether all tasks have ended in time.
        """
        with self._lock:
            self._stopping = True
            self._over.set()
            waiting = [stream for stream, entry in self._entries.items() if entry.running]
            if not waiting:
                self._all_ended.set()
        for stream in waiting:
            self._command(stream, {"command": messages.STOP_RECEIVER})
        waited = min(timeout, self._config.registration_s)
        in_time = self._all_ended.wait(waited)
        while not in_time and waited < timeout:
            executors = self._known_executors()
            if executors is not None:
                self._cancel_without(f"has not ended within {waited:g} s, and runs nowhere", {place.executor_id for place in executors})
            more = min(_WAIT_S, timeout - waited)
            in_time, waited = self._all_ended.wait(more), waited + more
        if not in_time:
            self._cancel_without(f"has not ended within {timeout:g} s", set())
        self._blocks.stop_accepting()
        return in_time

    def _cancel_without(self, why: str, living: set[str]) -> None:
        """Cancel the tasks of receivers that run on none of these executors: a task without a core may wait for one for ever."""
        with self._lock:
            running = [(stream, entry) for stream, entry in self._entries.items() if entry.running and not entry.cancelled]
            lost = [(stream, entry) for stream, entry in running if entry.executor not in living]
            for _, entry in lost:
                entry.cancelled = True
        for stream, _ in lost:
            logger.warning("receiver %d %s: its task is cancelled", stream, why)
            self._runner.cancel(stream)

    def send_rate_update(self, stream_id: int, records_a_second: int) -> None:
        """Send a receiver the command to set its rate limit, and later runs of it, too. Returns at once. Any thread."""
        with self._lock:
            self._entries[stream_id].rate = records_a_second
        self._command(stream_id, _rate_update(records_a_second))

    def clean_up(self, stream_id: int, threshold_ms: int) -> None:
        """Send a receiver the command to clean its log. Returns at once. Any thread.

        Args:
            stream_id: The id of the receiver's stream.
            threshold_ms: The time, by the receiver's clock, before which blocks may be removed. When the receiver fetches the command, the
                time may be reduced, because blocks that were stored earlier may have been added meanwhile.
        """
        command = {"command": messages.CLEANUP_OLD_BLOCKS, "threshold": threshold_ms}
        with self._lock:
            commands = self._entries[stream_id].commands
            if commands and commands[-1]["command"] == messages.CLEANUP_OLD_BLOCKS:
                commands.pop()
        self._command(stream_id, command)

    # -- stores

    def replicas(self, block: ReceivedBlockInfo) -> tuple[Replica, ...]:
        """Return the known stores that have a block. Any thread."""
        with self._lock:
            return self._replicas(block)

    def _replicas(self, block: ReceivedBlockInfo) -> tuple[Replica, ...]:
        """Return the known stores that have a block. Call this under the lock."""
        return tuple(self._stores[executor] for executor in block.executors if executor in self._stores)

    def doubt_store(self, store: Replica) -> None:
        """Note that a store does not answer. It is busy, or it has died although its executor may live.

        The next listing of the executors has the store looked for, and another one started if it is dead. Until then the store remains a
        known store. Any thread; returns at once.
        """
        with self._lock:
            if self._stores.get(store.executor_id) == store:  # no other store has replaced it
                self._doubtful.add(store.executor_id)

    def stores(self) -> list[Replica]:
        """Return all known stores, whether or not their executors live. Any thread."""
        with self._lock:
            return list(self._stores.values())

    def by_store(self, blocks: Iterable[ReceivedBlockInfo]) -> tuple[dict[Replica, list[str]], set[str]]:
        """Group blocks by the stores that have them.

        Returns:
            The ids of the blocks by responsive store; and the ids of the blocks that an unresponsive store has, to retry later.
        """
        found, later = dict[Replica, list[str]](), set[str]()
        with self._lock:
            for block in blocks:
                for store in self._replicas(block):
                    if store.executor_id in self._doubtful:
                        later.add(block.block_id)
                    else:
                        found.setdefault(store, []).append(block.block_id)
        return found, later

    def receivers_on_executors(self) -> dict[str, int]:
        """Return how many receivers hold a core of an executor, by executor id. Any thread.

        A receiver that has not registered yet is counted on each of its candidates: its task may already run on any of them.
        """
        held: Counter[str] = Counter()
        with self._lock:
            for entry in self._entries.values():
                if entry.running and entry.executor is not None:
                    held[entry.executor] += 1
                elif entry.running:
                    held.update(place.executor_id for place in entry.info.scheduled if isinstance(place, ExecutorLocation))
        return dict(held)

    # -- messages

    def _answering(self, answer: Callable[..., dict[str, Any]]) -> Callable[[bytes], bytes]:
        """Return the handler that calls `answer` with the fields of a message, and returns its result as a body."""
        return lambda body: to_body(**answer(**of_body(body)))

    def _register(self, stream: int, run: int, executor: str, host: str) -> dict[str, Any]:
        """Accept or refuse a receiver. The task of a refused receiver ends, and the receiver is scheduled again (`_ended`)."""
        there = ExecutorLocation(host, executor)
        acceptable = self._may_run_on(stream, there)
        with self._lock:
            entry = self._entries.get(stream)
            latest = entry is not None and entry.run == run and entry.running
            if entry is None or not latest or self._stopping or entry.info.state is ReceiverState.ACTIVE:
                logger.warning("receiver %d of run %d on executor %s was not expected, and is refused", stream, run, executor)
                return {"accepted": False, "peers": []}
            if not acceptable:
                entry.refusals += 1
                text = "receiver %d runs on executor %s but was scheduled on %s: the driver refuses it and schedules it again"
                logger.warning(text, stream, executor, ", ".join(map(str, entry.info.scheduled)))
                return {"accepted": False, "peers": []}
            entry.refusals = 0
            entry.info = replace(entry.info, state=ReceiverState.ACTIVE, running=there)
            entry.executor = executor
            info = self._info(stream, entry)
        logger.info("receiver %d runs on executor %s (%s)", stream, executor, host)
        self._tell(StreamingListenerReceiverStarted(info))
        return {"accepted": True, "peers": self._peers()}

    def _may_run_on(self, stream: int, there: ExecutorLocation) -> bool:
        """Return whether the receiver may run on this executor.

        It may if it was scheduled there, or if all scheduled executors have died and the policy would choose this executor now. The only
        executor of local mode is always accepted, and so is any executor after _MOST_REFUSALS refusals in a row.
        """
        with self._lock:
            entry = self._entries.get(stream)
            if entry is None:
                return False
            scheduled, refusals = entry.info.scheduled, entry.refusals
            infos = self._infos()
        anywhere = not scheduled or there.executor_id == DRIVER or refusals >= _MOST_REFUSALS
        if anywhere or ReceiverSchedulingPolicy.accepts(scheduled, there):
            return True
        executors = self._known_executors()
        if executors is None:
            return True
        now = ReceiverSchedulingPolicy.restartReceiver(stream, self._preferred(stream), infos, executors)
        return ReceiverSchedulingPolicy.accepts(now, there)

    def _register_store(self, executor: str, host: str, port: int) -> dict[str, Any]:
        """Note the store of an executor as known and responsive."""
        with self._lock:
            self._stores[executor] = Replica(executor, host, port)
            self._doubtful.discard(executor)
        return {}

    def _add_block(self, stream: int, run: int, **fields: Any) -> dict[str, Any]:
        """Add a block. Blocks until it is durable. No new block of an earlier run is accepted: a later run may have cleaned the log."""
        with self._lock:
            entry = self._entries.get(stream)
            latest = entry is None or entry.run == run
            if entry is not None and latest:  # its `onStart` may store records and never return
                entry.starts.started()
        return {"added": self._blocks.add_block(messages.block_of_fields(stream, fields), accept_new=latest)}

    def _on_start_returned(self, stream: int, run: int) -> dict[str, Any]:
        with self._lock:
            entry = self._entries[stream]
            if entry.run == run:
                entry.starts.started()
        return {}

    def _report_error(self, stream: int, message: str, error: str, run: int = 0, ends: bool = False) -> dict[str, Any]:
        """Log an error of a receiver, and post it to the listeners. `ends`: the run ends by it."""
        logger.warning("receiver %d: %s: %s", stream, message, error)
        with self._lock:
            entry = self._entries[stream]
            if ends and entry.run == run:
                entry.starts.raised(error)
            entry.last_error = (message, error, self._clock.time_ms())
            info = self._info(stream, entry)
        self._tell(StreamingListenerReceiverError(info))
        return {}

    def _deregister(self, stream: int, run: int, message: str, error: str, ends: bool = True) -> dict[str, Any]:
        """Mark a receiver as inactive, and post its stop to the listeners. Ignored unless the latest run is active.

        `ends`: the run ends by it. Else the receiver restarts where it is.
        """
        with self._lock:
            entry = self._entries[stream]
            if entry.run != run or entry.info.state is not ReceiverState.ACTIVE:
                return {}
            if ends and error and entry.running:  # of the receiver; once its task has ended the error may be Spark's
                entry.starts.raised(error)
            entry.last_error = (message, error, self._clock.time_ms())
            entry.info = ReceiverTrackingInfo(stream)
            info = self._info(stream, entry)
        logger.info("receiver %d has ended: %s %s", stream, message, error)
        self._tell(StreamingListenerReceiverStopped(info))
        return {}

    def _next_command(self, stream: int, run: int) -> dict[str, Any]:
        """Return the next command of a receiver. Blocks for _WAIT_S seconds at most. An earlier run gets the command to stop."""
        entry = self._entries[stream]
        with self._lock:
            latest = entry.run == run
        if latest:
            entry.command_came.wait(_WAIT_S)
        self._look_at_executors()
        with self._lock:
            if entry.run != run:
                command: dict[str, Any] = {"command": messages.STOP_RECEIVER}
            else:
                command = entry.commands.popleft() if entry.commands else {"command": None}
                if not entry.commands:
                    entry.command_came.clear()
        if command["command"] == messages.CLEANUP_OLD_BLOCKS:
            command = {**command, "threshold": self._blocks.needed_from(stream, command["threshold"])}
        return {**command, "peers": self._peers()}

    # -- runs

    def _run(self, stream: int, candidates: Sequence[Location]) -> None:
        """Start the next run of a receiver, unless the tracker is stopping. Returns at once."""
        with self._lock:
            entry = self._entries[stream]
            if self._stopping:
                return
            entry.run += 1
            entry.run_began = self._clock.monotonic_ms()
            entry.running, entry.executor = True, None
            entry.starts.began()
            entry.commands.clear()
            entry.command_came.clear()
            if entry.rate is not None:
                entry.commands.append(_rate_update(entry.rate))
                entry.command_came.set()
            entry.info = ReceiverTrackingInfo(stream, ReceiverState.SCHEDULED, tuple(candidates))
            run = entry.run
        self._runner.run(entry.receiver, stream, run, candidates, lambda reason, raised=False: self._ended(stream, run, reason, raised))

    def _ended(self, stream: int, run: int, reason: str, raised: bool) -> None:
        """Schedule the next run of a receiver whose task has ended. A TaskEnded of this run; returns at once."""
        with self._lock:
            entry = self._entries[stream]
            if entry.run != run:
                return
            entry.running = False
            lasted = (self._clock.monotonic_ms() - entry.run_began) / 1000
            unheard = raised and entry.info.state is not ReceiverState.ACTIVE and not entry.starts.error
        if unheard:  # its worker could not even load the receiver
            self._report_error(stream, f"Error starting receiver {stream}", reason, run, ends=True)
        self._deregister(stream, run, "Its task has ended", reason)
        with self._lock:
            if raised:
                entry.starts.raised(reason)
            stopping = self._stopping
            fails = not stopping and entry.starts.ended()
            error = entry.starts.failure(stream, receiver_name(entry.receiver, stream)) if fails else None
            if stopping and not any(other.running for other in self._entries.values()):
                self._all_ended.set()
        if error is not None:
            self._failed(error)
        if not stopping:
            delay = max(0.0, self._config.restart_delay_ms / 1000 - lasted)
            self._runtime.thread(lambda: self._restart(stream, delay), f"Receiver-{stream}-restart").start()

    def _restart(self, stream: int, delay_s: float) -> None:
        """Run a receiver again after a delay, unless the tracker is stopped. The delay limits the rate of runs that end at once."""
        if self._over.wait(delay_s):
            return
        executors = self._known_executors() or []  # without known executors the receiver may run anywhere
        preferred = self._preferred(stream)
        with self._lock:
            infos = self._infos()
        self._run(stream, ReceiverSchedulingPolicy.restartReceiver(stream, preferred, infos, executors))

    def _preferred(self, stream: int) -> str | None:
        """Return the preferred host of a receiver; None if it has none, or if the user's method raises, which is reported."""
        try:
            return self._entries[stream].receiver.preferredLocation()
        except Exception as e:  # a method of the user may raise anything
            self._report_error(stream, "preferredLocation of the receiver failed: it may run anywhere", f"{type(e).__name__}: {e}")
            return None

    # -- executors

    def _known_executors(self) -> list[ExecutorLocation] | None:
        """Return the executors; None if Spark cannot be asked, because it is being stopped or is gone."""
        try:
            return self._look_at_executors()
        except Exception:
            logger.warning("the list of executors is unknown: Spark did not answer the request for it", exc_info=True)
            return None

    def _look_at_executors(self) -> list[ExecutorLocation]:
        """Return the executors, and forget the stores of executors that are gone. Raises the runner's error.

        If an executor has no store, or an unresponsive one, a thread starts the missing stores.
        """
        executors = self._runner.executors()
        living = {executor.executor_id for executor in executors}
        with self._lock:
            self._stores = {executor: store for executor, store in self._stores.items() if executor in living}
            self._doubtful &= living
            needed = (living != set(self._stores) or bool(self._doubtful)) and not self._starting_stores and not self._stopping
            self._starting_stores = self._starting_stores or needed
            doubtful = sorted(self._doubtful)
        if needed:
            for executor in doubtful:
                self._runner.forget_store(executor)
            self._runtime.thread(self._start_stores, "BlockStores").start()
        return executors

    def _start_stores(self, at_least: int = 0) -> None:
        """Start the missing stores. Blocks."""
        try:
            self._runner.start_stores(at_least)
        finally:
            with self._lock:
                self._starting_stores = False

    # -- inside

    def _command(self, stream: int, command: dict[str, Any]) -> None:
        """Queue a command for a receiver, and wake up its `NextCommand`."""
        with self._lock:
            entry = self._entries[stream]
            entry.commands.append(command)
            entry.command_came.set()

    def _peers(self) -> list[list[Any]]:
        """Return [executor, host, port] of each responsive store."""
        with self._lock:
            sound = (store for executor, store in self._stores.items() if executor not in self._doubtful)
            return [[store.executor_id, store.host, store.port] for store in sound]

    def _infos(self) -> dict[int, ReceiverTrackingInfo]:
        """Return the states of all receivers, by stream id. Call this under the lock."""
        return {stream: entry.info for stream, entry in self._entries.items()}

    def _info(self, stream: int, entry: ReceiverEntry) -> ReceiverInfo:
        """Return the description of a receiver for listeners. Call this under the lock."""
        running = entry.info.running
        where = (running.host, running.executor_id) if running is not None else ("", "")
        return ReceiverInfo(
            stream, receiver_name(entry.receiver, stream), entry.info.state is ReceiverState.ACTIVE, *where, *entry.last_error
        )


def receiver_name(receiver: Receiver, stream_id: int) -> str:
    """Return the name of a receiver for listeners and metrics."""
    return f"{type(receiver).__name__}-{stream_id}"


def _rate_update(records_a_second: int) -> dict[str, Any]:
    return {"command": messages.UPDATE_RATE_LIMIT, "rate": records_a_second}
