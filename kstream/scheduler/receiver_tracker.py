"""ReceiverTracker: the receivers of all streams and the blocks they store, as the driver knows them (Spark's `ReceiverTracker.scala`)."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kstream.batch import ReceiverInfo, events
from kstream.clock import Clock
from kstream.loop import THREADS, Runtime
from kstream.loop.runtime import Event
from kstream.receiver import messages
from kstream.receiver.block_reading import Replica
from kstream.receiver.executor_process import DRIVER
from kstream.receiver.received_block_events import ReceivedBlockInfo
from kstream.receiver.received_block_tracker import ReceivedBlockTracker
from kstream.receiver.receiver import Receiver
from kstream.receiver.receiver_scheduling_policy import (
    ExecutorLocation,
    Location,
    ReceiverSchedulingPolicy,
    ReceiverState,
    ReceiverTrackingInfo,
)
from kstream.wal import handle_of_json

logger = logging.getLogger(__name__)
_WAIT_S = 5.0
"""How long a receiver that asks for its next command is kept waiting; and so often the executors are looked at."""
_MOST_REFUSALS = 3
"""So often in a row a receiver is refused because it runs elsewhere than it was scheduled. Then any executor is better than none."""


class ReceiverRunner(Protocol):
    """Runs receivers somewhere: as tasks of Spark, or in a test's own threads."""

    def executors(self) -> list[ExecutorLocation]: ...
    def run(self, receiver: Receiver, stream_id: int, run: int, candidates: Sequence[Location], ended: Callable[[str], None], /) -> None:
        """Returns at once. `ended` is called, on any thread, when the task has ended, with the reason of a failure or ""."""
        ...

    def start_stores(self, at_least: int = 0, /) -> None:
        """A block store on every executor that has none, also where no receiver runs. Blocks; logs what fails.

        Waits a while until so many executors have come.
        """
        ...

    def forget_store(self, executor: str, /) -> None:
        """It has none, or none that answers: `start_stores` is to see to it."""
        ...

    def cancel(self, stream_id: int, /) -> None:
        """Ends the task of a receiver, without its leave."""
        ...

    def first_attempt_runs(self, stage: int, /) -> bool:
        """Whether the task of a receiver, in this stage of Spark's, still runs as it was first started."""
        ...


@dataclass(slots=True)
class _Life:
    """What is known of one receiver. Changed under the tracker's lock."""

    receiver: Receiver
    info: ReceiverTrackingInfo
    came: Event
    commands: deque[dict[str, Any]] = field(default_factory=deque[dict[str, Any]])
    run: int = 0
    began: int = 0
    """When that run was submitted, on the monotonic clock, in ms."""
    running: bool = False
    """Whether a task of it has been submitted and has not ended."""
    executor: str | None = None
    """The last that this run has registered from."""
    cut: bool = False
    """Whether its task has been cancelled by a stop."""
    refusals: int = 0
    """How often it has been refused since it was last accepted, because it ran on an executor that was not one of its candidates."""
    last_error: tuple[str, str, int] = ("", "", -1)


class ReceiverTracker:
    """Started once. Its `handlers` answer receivers and stores, each on a thread of its own; `tell` posts events to listeners.

    A receiver whose task ends while the tracker runs – it stopped itself, its executor died, it was refused – is run again, as
    ReceiverSchedulingPolicy says. Of a receiver only its latest run is heard.
    """

    def __init__(
        self, receivers: Mapping[int, Receiver], runner: ReceiverRunner, blocks: ReceivedBlockTracker, clock: Clock,
        tell: Callable[[Any], None] = lambda _event: None, restart_delay_ms: int = 2000, runtime: Runtime = THREADS,
        stores_at_first: int = 1, registration_s: float = 10.0,
    ) -> None:  # fmt: skip
        """`stores_at_first`: how many executors should be there before the first receiver runs, for the replicas of its first block.
        `registration_s`: so long a stop waits for a receiver that has not registered."""
        self._runner = runner
        self._blocks = blocks
        self._clock = clock
        self._tell = tell
        self._runtime = runtime
        self._lock = threading.Lock()
        self._lives = {stream: _Life(receiver, ReceiverTrackingInfo(stream), runtime.event()) for stream, receiver in receivers.items()}
        self._stores: dict[str, Replica] = {}
        self._doubtful: set[str] = set()
        """Executors whose stores have not answered; until they have registered again, or are gone, every search is for them, too."""
        self._stopping = False
        self._starting_stores = True  # by `start`
        self._over = runtime.event()
        self._stores_at_first = stores_at_first
        self._registration = registration_s
        self._restart_delay = restart_delay_ms / 1000
        self._all_ended = runtime.event()
        self.handlers: Mapping[str, Callable[[bytes], bytes]] = {
            messages.REGISTER_RECEIVER: self._answering(self._register),
            messages.REGISTER_STORE: self._answering(self._register_store),
            messages.ADD_BLOCK: self._answering(self._add_block),
            messages.REPORT_ERROR: self._answering(self._report_error),
            messages.DEREGISTER_RECEIVER: self._answering(self._deregister),
            messages.FIRST_ATTEMPT: self._answering(lambda stream, stage: {"runs": self._runner.first_attempt_runs(stage)}),
            messages.NEXT_COMMAND: self._answering(self._next_command),
        }

    # -- for the context

    def start(self) -> None:
        """Run all receivers, evenly over the executors, as soon as there are stores for their blocks. Returns at once."""
        self._runtime.thread(self._start_all, "ReceiverTracker").start()

    def _start_all(self) -> None:
        self._start_stores(self._stores_at_first)
        hosts = {stream: self._preferred(stream) for stream in self._lives}
        candidates = ReceiverSchedulingPolicy.scheduleReceivers(hosts, self._runner.executors())
        for stream in self._lives:
            self._run(stream, candidates[stream])

    def stop(self, timeout: float) -> bool:
        """Every receiver is told to stop and given `timeout` seconds to store what it has; whether all ended by then. The rest are cut
        off. One that had not registered yet is refused when it does, and has nothing to be waited for. No block is taken from then on."""
        with self._lock:
            self._stopping = True
            self._over.set()
            waiting = [life for life in self._lives.values() if life.running]
            if not waiting:
                self._all_ended.set()
        for life in waiting:
            self._command(life, {"command": messages.STOP_RECEIVER})
        waited = min(timeout, self._registration)
        in_time = self._all_ended.wait(waited)
        while not in_time and waited < timeout:
            executors = self._known_executors()
            if executors is not None:
                self._cut_off(f"has not ended within {waited:g} s, and runs nowhere", {place.executor_id for place in executors})
            more = min(_WAIT_S, timeout - waited)
            in_time, waited = self._all_ended.wait(more), waited + more
        if not in_time:
            self._cut_off(f"has not ended within {timeout:g} s", set())
        self._blocks.refuse_more()
        return in_time

    def _cut_off(self, why: str, living: set[str]) -> None:
        """The receivers that run on none of these executors: one that waits for a core may do so for ever."""
        with self._lock:
            lost = {s: life for s, life in self._lives.items() if life.running and not life.cut and life.executor not in living}
            for life in lost.values():
                life.cut = True
        for stream in lost:
            logger.warning("receiver %d %s: it is cut off", stream, why)
            self._runner.cancel(stream)

    def send_rate_update(self, stream_id: int, records_a_second: int) -> None:
        """To the receiver, if it runs."""
        self._command(self._lives[stream_id], {"command": messages.UPDATE_RATE_LIMIT, "rate": records_a_second})

    def restart_receiver(self, stream_id: int, message: str) -> None:
        """Where it is, after its delay."""
        self._command(self._lives[stream_id], {"command": messages.RESTART_RECEIVER, "message": message})

    def clean_up(self, stream_id: int, threshold_ms: int) -> None:
        """Its receiver may remove from its log what it wrote before that moment, by its own clock, and no batch needs any more when it
        asks: a block may be told after this."""
        life = self._lives[stream_id]
        command = {"command": messages.CLEANUP_OLD_BLOCKS, "threshold": threshold_ms}
        with self._lock:
            if life.commands and life.commands[-1]["command"] == messages.CLEANUP_OLD_BLOCKS:
                life.commands.pop()
        self._command(life, command)

    def replicas(self, block: ReceivedBlockInfo) -> tuple[Replica, ...]:
        """Where a block can be read now: of the stores that were given it those that are known."""
        with self._lock:
            return tuple(self._stores[executor] for executor in block.executors if executor in self._stores)

    def doubt_store(self, store: Replica) -> None:
        """It does not answer: it has died, though its executor may live, or is too busy. Soon it is looked for there, and started if it is
        not there; until then it is asked for its blocks as before."""
        with self._lock:
            if self._stores.get(store.executor_id) == store:  # and no other has taken its place
                self._doubtful.add(store.executor_id)

    def stores(self) -> list[Replica]:
        """Those that are known, be their executors alive or not."""
        with self._lock:
            return list(self._stores.values())

    def by_store(self, blocks: Iterable[ReceivedBlockInfo]) -> tuple[dict[Replica, list[str]], set[str]]:
        """Which stores that answer have which of these; and those that others have, which it is to be hoped will."""
        found, later = dict[Replica, list[str]](), set[str]()
        with self._lock:
            doubtful = set(self._doubtful)
        for block in blocks:
            for store in self.replicas(block):
                if store.executor_id in doubtful:
                    later.add(block.block_id)
                else:
                    found.setdefault(store, []).append(block.block_id)
        return found, later

    def allocated_executors(self) -> dict[int, str | None]:
        """The executor of each receiver, None for one that runs nowhere."""
        with self._lock:
            return {s: life.info.running.executor_id if life.info.running else None for s, life in self._lives.items()}

    def receivers_on_executors(self) -> dict[str, int]:
        """How many receivers hold a core of an executor, by executor id.

        A receiver that has not registered yet is counted on each of its candidates: its task may already run on any of them.
        """
        held: Counter[str] = Counter()
        with self._lock:
            for life in self._lives.values():
                if life.running and life.executor is not None:
                    held[life.executor] += 1
                elif life.running:
                    held.update(place.executor_id for place in life.info.scheduled if isinstance(place, ExecutorLocation))
        return dict(held)

    # -- messages

    def _answering(self, answer: Callable[..., dict[str, Any]]) -> Callable[[bytes], bytes]:
        return lambda body: messages.to_body(**answer(**messages.of_body(body)))

    def _register(self, stream: int, run: int, executor: str, host: str) -> dict[str, Any]:
        """A receiver that is refused ends its task, and is scheduled again (`_ended`)."""
        there = ExecutorLocation(host, executor)
        acceptable = self._may_run_on(stream, there)
        with self._lock:
            life = self._lives.get(stream)
            latest = life is not None and life.run == run and life.running
            if life is None or not latest or self._stopping or life.info.state is ReceiverState.ACTIVE:
                logger.warning("receiver %d of run %d on executor %s was not expected, and is refused", stream, run, executor)
                return {"accepted": False, "peers": []}
            if not acceptable:
                life.refusals += 1
                scheduled = ", ".join(map(str, life.info.scheduled))
                logger.warning(
                    "receiver %d runs on executor %s but was scheduled on %s: the driver refuses it and schedules it again",
                    stream,
                    executor,
                    scheduled,
                )
                return {"accepted": False, "peers": []}
            life.refusals = 0
            life.info = replace(life.info, state=ReceiverState.ACTIVE, running=there)
            life.executor = executor
            info = self._info(stream, life)
        logger.info("receiver %d runs on executor %s (%s)", stream, executor, host)
        self._tell(events.StreamingListenerReceiverStarted(info))
        return {"accepted": True, "peers": self._peers()}

    def _may_run_on(self, stream: int, there: ExecutorLocation) -> bool:
        """Whether the receiver may run on this executor: it was scheduled there, or all scheduled executors have died and the policy would
        choose it now.

        The only executor of local mode is always accepted, and so is any executor after _MOST_REFUSALS refusals in a row.
        """
        with self._lock:
            life = self._lives.get(stream)
            if life is None:
                return False
            scheduled, refusals = life.info.scheduled, life.refusals
            infos = {s: other.info for s, other in self._lives.items()}
        anywhere = not scheduled or there.executor_id == DRIVER or refusals >= _MOST_REFUSALS
        if anywhere or ReceiverSchedulingPolicy.accepts(scheduled, there):
            return True
        executors = self._known_executors()
        if executors is None:
            return True
        now = ReceiverSchedulingPolicy.restartReceiver(stream, self._preferred(stream), infos, executors)
        return ReceiverSchedulingPolicy.accepts(now, there)

    def _register_store(self, executor: str, host: str, port: int) -> dict[str, Any]:
        with self._lock:
            self._stores[executor] = Replica(executor, host, port)
            self._doubtful.discard(executor)
        return {}

    def _add_block(
        self, stream: int, run: int, id: str, records: int | None, executors: list[str], metadata: Any, handle: Any, stored_at: int
    ) -> dict[str, Any]:
        """Of an earlier run none is taken anew: a later one may have cleaned its log already."""
        with self._lock:
            life = self._lives.get(stream)
            latest = life is None or life.run == run
        kept = handle_of_json(handle)
        block = ReceivedBlockInfo(stream, id, records, metadata, kept, executors=tuple(executors), stored_at=stored_at)
        return {"added": self._blocks.add_block(block, anew=latest)}

    def _report_error(self, stream: int, message: str, error: str) -> dict[str, Any]:
        logger.warning("receiver %d: %s: %s", stream, message, error)
        with self._lock:
            life = self._lives[stream]
            life.last_error = (message, error, self._clock.time_ms())
            info = self._info(stream, life)
        self._tell(events.StreamingListenerReceiverError(info))
        return {}

    def _deregister(self, stream: int, run: int, message: str, error: str) -> dict[str, Any]:
        with self._lock:
            life = self._lives[stream]
            if life.run != run or life.info.state is not ReceiverState.ACTIVE:
                return {}
            life.last_error = (message, error, self._clock.time_ms())
            life.info = ReceiverTrackingInfo(stream)
            info = self._info(stream, life)
        logger.info("receiver %d has ended: %s %s", stream, message, error)
        self._tell(events.StreamingListenerReceiverStopped(info))
        return {}

    def _next_command(self, stream: int, run: int) -> dict[str, Any]:
        """Waits for one; none after a while. Who is not the latest run is told to stop."""
        life = self._lives[stream]
        if life.run == run:
            life.came.wait(_WAIT_S)
        self._look_at_executors()
        with self._lock:
            if life.run != run:
                command: dict[str, Any] = {"command": messages.STOP_RECEIVER}
            else:
                command = life.commands.popleft() if life.commands else {"command": None}
                if not life.commands:
                    life.came.clear()
        if command["command"] == messages.CLEANUP_OLD_BLOCKS:
            command = {**command, "threshold": self._blocks.needed_from(stream, command["threshold"])}
        return {**command, "peers": self._peers()}

    # -- runs

    def _run(self, stream: int, candidates: Sequence[Location]) -> None:
        with self._lock:
            life = self._lives[stream]
            if self._stopping:
                return
            life.run += 1
            life.began = self._clock.monotonic_ms()
            life.running, life.executor = True, None
            life.commands.clear()
            life.came.clear()
            life.info = ReceiverTrackingInfo(stream, ReceiverState.SCHEDULED, tuple(candidates))
            run = life.run
        self._runner.run(life.receiver, stream, run, candidates, lambda reason: self._ended(stream, run, reason))

    def _preferred(self, stream: int) -> str | None:
        try:
            return self._lives[stream].receiver.preferredLocation()
        except Exception as e:  # the user's
            self._report_error(stream, "preferredLocation of the receiver failed: it may run anywhere", f"{type(e).__name__}: {e}")
            return None

    def _ended(self, stream: int, run: int, reason: str) -> None:
        with self._lock:
            life = self._lives[stream]
            if life.run != run:
                return
            life.running = False
            lasted = (self._clock.monotonic_ms() - life.began) / 1000
        self._deregister(stream, run, "Its task has ended", reason)
        with self._lock:
            infos = {s: other.info for s, other in self._lives.items()}
            if self._stopping and not any(other.running for other in self._lives.values()):
                self._all_ended.set()
        executors = self._known_executors() or []  # then it may run anywhere
        self._over.wait(max(0.0, self._restart_delay - lasted))  # one that ends as it begins is not to be tried a hundred times a second
        candidates = ReceiverSchedulingPolicy.restartReceiver(stream, self._preferred(stream), infos, executors)
        self._run(stream, candidates)

    def _known_executors(self) -> list[ExecutorLocation] | None:
        """None if they cannot be looked at: Spark is being stopped, or is gone."""
        try:
            return self._look_at_executors()
        except Exception:
            logger.warning("the executors cannot be looked at", exc_info=True)
            return None

    def _look_at_executors(self) -> list[ExecutorLocation]:
        """Executors come and go: the stores of those that are gone are forgotten, new ones are given one, by a thread of its own."""
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
        try:
            self._runner.start_stores(at_least)
        finally:
            with self._lock:
                self._starting_stores = False

    def _command(self, life: _Life, command: dict[str, Any]) -> None:
        with self._lock:
            life.commands.append(command)
            life.came.set()

    def _peers(self) -> list[list[Any]]:
        with self._lock:
            sound = (store for executor, store in self._stores.items() if executor not in self._doubtful)
            return [[store.executor_id, store.host, store.port] for store in sound]

    def _info(self, stream: int, life: _Life) -> ReceiverInfo:
        running = life.info.running
        where = (running.host, running.executor_id) if running is not None else ("", "")
        name = f"{type(life.receiver).__name__}-{stream}"
        return ReceiverInfo(stream, name, life.info.state is ReceiverState.ACTIVE, *where, *life.last_error)
