"""EpochCoordinator: the driver's half of continuous processing (the name is that of Spark's).

Only its own thread hands over partitions, one hand-over at a time: it takes the identities of the tasks concerned, reads the receipts of
their partitions, stores the assignment if it is a new one, and starts the runs. What a run may do is decided when it registers.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from kstream.clock import Clock
from kstream.continuous import messages
from kstream.continuous.assignment import Assignment, AssignmentLog, TaskPartitions, assign, changed_tasks
from kstream.continuous.messages import FailedRecord
from kstream.continuous.ports import HandOver, TaskRun, TaskRunner
from kstream.continuous.position_log import PositionLog, StoredPositions
from kstream.continuous.restarts import RecordFailures, begin_at, restart_delay_ms
from kstream.continuous.task_report import TaskReport, positions_to_json
from kstream.errors import FencedError, KStreamError, StorageError, one_line
from kstream.loop import THREADS, Runtime
from kstream.offsets.offset_range import Partition
from kstream.rpc import of_body, to_body

logger = logging.getLogger(__name__)
_HELD_BACK_S = 1.0
"""Seconds for which the answer to `NextTaskCommand` is held back."""
_IDLE_MS = 1000
"""The longest pause between two looks at what is to be done, and the least between two writes of the positions."""
_RECENT_MS = 10_000
"""The time of which a snapshot tells rates and latencies."""


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """One task: its number, its run (None between two runs), whether that has registered, and its partitions."""

    task: int
    run: int | None
    is_registered: bool
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class EpochSnapshot:
    """How a continuous stream is. Rates and latencies are those of the last ten seconds.

    Attributes:
        generation: of the newest assignment; 0 before the first one.
        tasks: its tasks.
        positions: the position of each partition, as reported last.
        epochs, records: those that were reported, since the start of this driver.
        epochs_a_second: of all tasks.
        latency_p50_ms, latency_p99_ms: from the newest record of an epoch until it was stored; None without epochs.
    """

    generation: int
    tasks: tuple[TaskSnapshot, ...]
    positions: Mapping[Partition, int]
    epochs: int
    records: int
    epochs_a_second: float
    latency_p50_ms: int | None
    latency_p99_ms: int | None


@dataclass(frozen=True, slots=True)
class CoordinatorParts:
    """What a coordinator works with. `probe` raises FencedError if a later driver has taken the checkpoint; it may block."""

    assignments: AssignmentLog
    positions: PositionLog
    hand_over: HandOver
    runner: TaskRunner
    probe: Callable[[], None]
    clock: Clock
    runtime: Runtime = THREADS


@dataclass(slots=True)
class _Task:
    """A task of this driver. Read and changed under the lock."""

    run: TaskRun | None = None
    """Its present run; None between two runs. Only this one is accepted."""
    is_registered: bool = False
    positions: dict[Partition, int] = field(default_factory=dict[Partition, int])
    due_ms: int = 0
    """When it may run again, by the monotonic clock."""
    failures: int = 0
    """How many runs have ended since its last report."""


@dataclass(frozen=True, slots=True)
class _Move:
    """A hand-over that is due: the tasks that are concerned, and the assignment after it."""

    tasks: Set[int]
    before: Assignment
    after: TaskPartitions
    starts: Mapping[Partition, int]
    stores: bool
    cancelled: tuple[TaskRun, ...]


def tasks_to_fence(move_tasks: Set[int], before: TaskPartitions, after: TaskPartitions) -> Set[int]:
    """Return the tasks whose identities a hand-over takes: all that are concerned, so above all those that had a partition. Pure."""
    return move_tasks


class EpochCoordinator:
    """The coordinator of one continuous stream. It is started once.

    `_lock` guards all fields. Decisions are made under it; the store, Kafka and Spark are called without it, on the coordinator's thread.
    The `handlers` answer the messages of the tasks, each on the thread of its connection.
    """

    def __init__(self, parts: CoordinatorParts, tasks: int, over: Callable[[Exception], None] = lambda _error: None) -> None:
        """Make a coordinator; `start` starts it.

        Args:
            parts: what it works with.
            tasks: the most tasks that run.
            over: called once when an error has ended the stream, on any thread, such as a FencedError or an EpochTaskFailedError.
        """
        self._parts = parts
        self._clock = parts.clock
        self._over = over
        self._lock = threading.Lock()
        self._wanted: dict[Partition, int] = {}
        self._most_tasks = tasks
        self._current = Assignment(0, 0, {}, {})
        """The newest assignment that is known to be stored."""
        self._adopted = False
        """Whether every task of it was handed over to this driver."""
        self._in_doubt = False
        """Whether the outcome of the last store is unknown. Until it is known no run is started."""
        self._tasks: dict[int, _Task] = {}
        self._runs = 0
        self._reported: dict[Partition, int] = {}
        self._total = TaskReport()
        self._recent: deque[tuple[int, TaskReport]] = deque()
        self._record_failures = RecordFailures()
        self._stopping = False
        self._written = StoredPositions(0, 0, 0, {})
        self._written_ms = -_IDLE_MS
        self._wake = parts.runtime.event()
        self._stop = parts.runtime.event()
        self._all_ended = parts.runtime.event()
        self._thread = parts.runtime.thread(self._live, "EpochCoordinator")
        self.handlers: Mapping[str, Callable[[bytes], bytes]] = {
            messages.REGISTER_TASK: self._answering(self._register),
            messages.REPORT_EPOCHS: self._answering(self._report),
            messages.NEXT_TASK_COMMAND: self._answering(self._next_command),
            messages.TASK_FAILED: self._answering(self._task_failed),
            messages.DEREGISTER_TASK: self._answering(self._deregister),
        }

    # -- for the context

    def start(self, partitions: Mapping[Partition, int]) -> None:
        """Hand over the tasks of the stored assignment, and run tasks for these partitions. Returns at once. Call once.

        The epoch of this driver must be taken before.

        Args:
            partitions: the partitions that are read, each with the position at which it begins if it has no receipt.
        """
        with self._lock:
            self._wanted = dict(partitions)
        self._thread.start()

    def partitions_found(self, partitions: Mapping[Partition, int]) -> None:
        """Read these partitions, too, each from its position. Only tasks that get one are restarted. Returns at once; any thread."""
        with self._lock:
            self._wanted = {**partitions, **self._wanted}
        self._wake.set()

    def resize(self, tasks: int) -> None:
        """Run so many tasks at most from now on. Only tasks whose partitions change are restarted. Returns at once; any thread."""
        with self._lock:
            self._most_tasks = tasks
        self._wake.set()

    def stop(self, timeout: float) -> bool:
        """Let every task end its epoch, and end. Blocks.

        Args:
            timeout: seconds after which the jobs of the tasks are cancelled.

        Returns:
            Whether all tasks have ended in time.
        """
        self._begin_stop()
        in_time = self._all_ended.wait(timeout)
        with self._lock:
            left = [task.run for task in self._tasks.values() if task.run is not None]
        for run in left:
            self._parts.runner.cancel(run)
        if self._thread.is_alive() and not self._parts.runtime.is_current(self._thread):
            self._thread.join(timeout)
        self._try_write_positions()
        return in_time

    def snapshot(self) -> EpochSnapshot:
        """Return how the stream is now. Any thread."""
        with self._lock:
            recent = TaskReport()
            for _, report in self._recent_reports():
                recent = recent.plus(report)
            tasks = tuple(self._task_snapshot(task, partitions) for task, partitions in sorted(self._current.tasks.items()))
            return EpochSnapshot(
                self._current.generation,
                tasks,
                dict(self._reported),
                self._total.epochs,
                self._total.records,
                recent.epochs * 1000 / _RECENT_MS,
                recent.percentile_ms(0.5),
                recent.percentile_ms(0.99),
            )

    def _task_snapshot(self, number: int, partitions: tuple[Partition, ...]) -> TaskSnapshot:
        task = self._tasks.get(number, _Task())
        return TaskSnapshot(number, None if task.run is None else task.run.run, task.is_registered, partitions)

    # -- hand-overs, on the own thread

    def _live(self) -> None:
        failures, known = 0, False
        while not self._stop.is_set():
            pause_ms = _IDLE_MS
            try:
                if not known:
                    self._read_stored()
                    known = True
                if self._hand_over():
                    pause_ms = 0
                failures = 0
                self._try_write_positions()
            except FencedError as e:
                self._end(e)
            except KStreamError as e:
                failures += 1
                pause_ms = restart_delay_ms(failures)
                logger.warning("a hand-over of continuous tasks has failed and is tried again: %s", one_line(e))
            except Exception as e:
                self._end(e)
            if failures:
                self._stop.wait(pause_ms / 1000)
            elif pause_ms:
                self._wake.wait(self._pause_ms(pause_ms) / 1000)
                self._wake.clear()

    def _read_stored(self) -> None:
        newest, stored = self._parts.assignments.newest(), self._parts.positions.newest()
        with self._lock:
            if newest is not None:
                self._current = newest
            if stored is not None:
                self._reported = {**stored.positions, **self._reported}

    def _pause_ms(self, most: int) -> int:
        """Return how long nothing is due."""
        with self._lock:
            now = self._clock.monotonic_ms()
            due = [task.due_ms - now for task in self._tasks.values() if task.run is None]
        return max(1, min([most, *(ms for ms in due if ms > 0)]))

    def _hand_over(self) -> bool:
        """Do the hand-over that is due, if one is. Return whether to look again at once."""
        move = self._due()
        if move is None:
            return False
        parts = self._parts
        for run in move.cancelled:
            parts.runner.cancel(run)
        parts.probe()
        parts.hand_over.fence(sorted(tasks_to_fence(move.tasks, move.before.tasks, move.after)))
        partitions = [partition for task in sorted(move.tasks) for partition in move.after.get(task, ())]
        receipts = parts.hand_over.receipts(partitions)
        assignment = self._stored(move) if move.stores else move.before
        if assignment is None:
            return True
        with self._lock:
            if self._stopping:
                return False
            self._current, self._adopted, self._in_doubt = assignment, True, False
            at = {p: begin_at(receipts.get(p), self._reported.get(p), assignment.positions[p]) for p in partitions}
            runs = [self._next_run(task, assignment, at) for task in sorted(move.tasks & move.after.keys())]
            for task in move.tasks - move.after.keys():
                self._tasks.pop(task, None)
        for run in runs:
            parts.runner.start(run, self._ended)
        return False

    def _due(self) -> _Move | None:
        """Decide which tasks are handed over now. Their present runs are accepted no more from here on."""
        with self._lock:
            if self._stopping:
                return None
            before, now = self._current, self._clock.monotonic_ms()
            after = assign(self._wanted, self._most_tasks, before.tasks)
            changed = changed_tasks(before.tasks, after)
            if self._adopted:
                waiting = {number for number, task in self._tasks.items() if task.run is None and task.due_ms <= now}
                tasks = changed | (waiting & (before.tasks.keys() | after.keys()))
            else:
                tasks = {*before.tasks, *after, *self._tasks}
            if not tasks:
                return None
            cancelled: list[TaskRun] = []
            for number in tasks:
                task = self._tasks.setdefault(number, _Task())
                if task.run is not None:
                    cancelled.append(task.run)
                task.run, task.is_registered = None, False
            starts = {partition: before.positions.get(partition, start) for partition, start in self._wanted.items()}
            stores = bool(changed) or not self._adopted or self._in_doubt
            return _Move(tasks, before, after, starts, stores, tuple(cancelled))

    def _stored(self, move: _Move) -> Assignment | None:
        """Store the assignment after a move. None if another one has its generation: that one is handed over, too, before a higher one."""
        log = self._parts.assignments
        assignment = Assignment(move.before.generation + 1, log.epoch, move.after, move.starts)
        try:
            found = log.store(assignment)
        except StorageError:
            with self._lock:
                self._in_doubt = True
            raise
        if found is None:
            return assignment
        with self._lock:
            self._current, self._adopted = found, False
        return None

    def _next_run(self, number: int, assignment: Assignment, at: Mapping[Partition, int]) -> TaskRun:
        """Make the next run of a task the one that is accepted. Call this under the lock."""
        self._runs += 1
        task = self._tasks[number]
        task.run = TaskRun(number, self._runs, assignment.generation)
        task.positions = {partition: at[partition] for partition in assignment.tasks[number]}
        return task.run

    def _ended(self, run: TaskRun, error: BaseException | None) -> None:
        """The job of a run has ended: the task runs again after a pause."""
        with self._lock:
            task = self._tasks.get(run.task)
            if task is None or task.run != run:
                return
            task.run, task.is_registered = None, False
            task.failures += 1
            task.due_ms = self._clock.monotonic_ms() + restart_delay_ms(task.failures)
            stopping = self._stopping
            self._note_ends()
        if not stopping:
            logger.info("run %d of continuous task %d has ended (%s)", run.run, run.task, "no error" if error is None else one_line(error))
        self._wake.set()

    # -- messages

    def _answering(self, answer: Callable[..., dict[str, Any]]) -> Callable[[bytes], bytes]:
        """Return the handler that calls `answer` with the run and the other fields of a message."""

        def handler(body: bytes) -> bytes:
            fields = of_body(body)
            run = TaskRun(fields.pop("task"), fields.pop("run"), fields.pop("generation"))
            return to_body(**answer(run, **fields))

        return handler

    def _register(self, run: TaskRun) -> dict[str, Any]:
        """Accept a run, once, if it is the present one of its task and no later driver lives. The probe comes after the request."""
        try:
            self._parts.probe()
        except FencedError as e:
            self._end(e)
        with self._lock:
            task = self._present(run)
            if task is None or task.is_registered or self._stopping:
                return {"accepted": False, "positions": []}
            task.is_registered = True
            return {"accepted": True, "positions": positions_to_json(task.positions)}

    def _report(self, run: TaskRun, **fields: Any) -> dict[str, Any]:
        report = TaskReport.from_json(fields)
        with self._lock:
            task = self._present(run)
            if task is not None:
                task.failures = 0
                self._reported.update(report.positions)
                self._total = self._total.plus(report)
                self._recent.append((self._clock.monotonic_ms(), report))
                self._recent_reports()
        return {}

    def _next_command(self, run: TaskRun) -> dict[str, Any]:
        """Hold the answer back for a while. An earlier run gets the command to stop."""
        with self._lock:
            is_present = self._present(run) is not None
        if is_present:
            self._stop.wait(_HELD_BACK_S)
        with self._lock:
            stops = self._stopping or self._present(run) is None
        return {"command": messages.STOP_TASK if stops else None}

    def _task_failed(self, run: TaskRun, error: str, record: list[Any] | None) -> dict[str, Any]:
        """Count a failure at a record; too many at one end the stream."""
        with self._lock:
            counts = record is not None and self._present(run) is not None
            failure = self._record_failures.failed(FailedRecord(*record), error) if counts and record is not None else None
        logger.info("run %d of continuous task %d has failed: %s", run.run, run.task, error)
        if failure is not None:
            self._end(failure)
        return {}

    def _deregister(self, run: TaskRun) -> dict[str, Any]:
        logger.info("run %d of continuous task %d has stopped", run.run, run.task)
        return {}

    def _present(self, run: TaskRun) -> _Task | None:
        """Return the task of a run if that is its present one. Call this under the lock."""
        task = self._tasks.get(run.task)
        return task if task is not None and task.run == run else None

    # -- inside

    def _recent_reports(self) -> deque[tuple[int, TaskReport]]:
        """Return the reports of the last ten seconds, and forget older ones. Call this under the lock."""
        while self._recent and self._recent[0][0] < self._clock.monotonic_ms() - _RECENT_MS:
            self._recent.popleft()
        return self._recent

    def _try_write_positions(self) -> None:
        """Write the positions if they have changed, at most once a second. An error of the store is logged: the receipts are the truth."""
        with self._lock:
            now = self._clock.monotonic_ms()
            epoch = self._parts.assignments.epoch
            stored = StoredPositions(epoch, self._current.generation, self._total.epochs, dict(self._reported))
            if not self._total.epochs or stored == self._written or now - self._written_ms < _IDLE_MS:
                return
            self._written_ms = now
        try:
            self._parts.positions.write(stored)
        except StorageError as e:
            logger.warning("the positions of continuous tasks could not be stored: %s", one_line(e))
            return
        with self._lock:
            self._written = stored

    def _end(self, error: Exception) -> None:
        """An error ends the stream: no run is accepted or started any more, and the tasks are told to stop."""
        if self._begin_stop():
            self._over(error)

    def _begin_stop(self) -> bool:
        """Return whether this call is the first one that stops the stream."""
        with self._lock:
            first, self._stopping = not self._stopping, True
            self._note_ends()
        self._stop.set()
        self._wake.set()
        return first

    def _note_ends(self) -> None:
        """Note at a stop whether every run has ended. Call this under the lock."""
        if self._stopping and all(task.run is None for task in self._tasks.values()):
            self._all_ended.set()
