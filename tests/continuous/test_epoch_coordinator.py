"""The driver's half: the order of a hand-over, which run is accepted, and what becomes of tasks that end."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection
from typing import Any

import pytest

from kstream.continuous import messages
from kstream.continuous.assignment import Assignment, AssignmentLog
from kstream.continuous.epoch_coordinator import CoordinatorParts, EpochCoordinator
from kstream.continuous.messages import FailedRecord
from kstream.continuous.ports import EpochReceipt, TaskRun
from kstream.continuous.position_log import PositionLog, StoredPositions
from kstream.continuous.restarts import begin_at, restart_delay_ms
from kstream.continuous.task_report import TaskReport, latencies_of
from kstream.errors import EpochTaskFailedError, FencedError, StorageError
from kstream.loop.threads import ThreadRuntime
from kstream.offsets.offset_range import Partition
from kstream.rpc import of_body, to_body
from kstream.storage import MemoryFileStore
from kstream.testing import ManualClock
from tests.stores import CountingStore, FaultyStore

T0: Partition = ("t", 0)
T1: Partition = ("t", 1)
T2: Partition = ("t", 2)
STORED = (
    b'{"checksum":"d62021db60f538a9e5ab19f9ac21f67d2d8b97b44ea85b6ac4c3da8217ef2c23","epoch":4,'
    b'"epochs":9,"generation":7,"kind":"positions","positions":[["t",0,5],["t",1,0]],"version":1}'
)


class Waits(BaseException):
    """The thread of the coordinator has nothing more to do now."""


class SteppedEvent(threading.Event):
    """A wait never blocks; one of the coordinator's thread leaves it."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def wait(self, timeout: float | None = None) -> bool:
        if self._world.is_stepping:
            raise Waits
        return self.is_set()


class World(ThreadRuntime):
    """The store, the brokers and the cluster of one driver, and the order in which they were called."""

    def __init__(self, files: Any = None, epoch: int = 1, tasks: int = 2) -> None:
        self.files = FaultyStore(MemoryFileStore(f"memory://{uuid.uuid4().hex}") if files is None else files)
        self.counted = CountingStore(self.files)
        self.calls: list[str] = []
        self.clock = ManualClock(0)
        self.is_stepping = False
        self.fenced = False
        self.known: dict[Partition, EpochReceipt] = {}
        self.started: list[TaskRun] = []
        self.ended: Callable[[TaskRun, BaseException | None], None] = lambda _run, _error: None
        self.errors: list[Exception] = []
        self.targets: list[Callable[[], None]] = []
        parts = CoordinatorParts(AssignmentLog(self, epoch), PositionLog(self.counted), self, self, self.probe, self.clock, self)  # pyright: ignore[reportArgumentType]
        self.coordinator = EpochCoordinator(parts, tasks, self.errors.append)

    def __getattr__(self, name: str) -> Any:
        """The store."""
        return getattr(self.counted, name)

    def create(self, name: str, data: bytes) -> None:
        self.calls.append(f"create {name}")
        self.counted.create(name, data)

    def event(self) -> threading.Event:
        return SteppedEvent(self)

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        self.targets.append(target)
        return threading.Thread(target=lambda: None, name=name)

    def step(self, ms: int = 0) -> list[str]:
        """Let some time pass and the coordinator's thread do what is due; return what it has called."""
        self.clock.advance(ms)
        self.calls.clear()
        self.is_stepping = True
        try:
            self.targets[0]()
        except Waits:
            pass
        finally:
            self.is_stepping = False
        return list(self.calls)

    def begin(self, *partitions: Partition) -> World:
        self.coordinator.start(dict.fromkeys(partitions, 0))
        self.step()
        return self

    def probe(self) -> None:
        if self.fenced:
            raise FencedError("another driver has taken the checkpoint")

    def fence(self, tasks: Collection[int]) -> None:
        self.calls.append(f"fence {list(tasks)}")

    def receipts(self, partitions: Collection[Partition]) -> dict[Partition, EpochReceipt]:
        self.calls.append(f"receipts {sorted(partitions)}")
        return {partition: self.known[partition] for partition in partitions if partition in self.known}

    def start(self, run: TaskRun, ended: Callable[[TaskRun, BaseException | None], None]) -> None:
        self.calls.append(f"start {run.task}")
        self.started.append(run)
        self.ended = ended

    def cancel(self, run: TaskRun) -> None:
        self.calls.append(f"cancel {run.task}")

    def ask(self, what: str, run: TaskRun, **fields: Any) -> dict[str, Any]:
        body = to_body(task=run.task, run=run.run, generation=run.generation, **fields)
        return of_body(self.coordinator.handlers[what](body))

    def register(self, run: TaskRun) -> Any:
        answer = self.ask(messages.REGISTER_TASK, run)
        return answer["positions"] if answer["accepted"] else None


def test_a_hand_over_takes_the_identities_then_reads_the_receipts_then_stores_the_assignment_then_starts() -> None:
    world = World()
    world.coordinator.start({T0: 0, T1: 0})
    assert world.step() == [
        "fence [0, 1]", f"receipts {[T0, T1]}", "create assignments/0000000001", "start 0", "start 1",
    ]  # fmt: skip
    assert world.step() == []


def test_the_next_driver_takes_the_identity_of_every_stored_task_and_stores_a_generation_of_its_own() -> None:
    first = World(tasks=3).begin(T0, T1, T2)
    second = World(first.files.inner, 2, 1)
    second.known = {T0: EpochReceipt(7, 1)}
    second.begin(T0, T1, T2)
    assert second.calls[:3] == ["fence [0, 1, 2]", f"receipts {[T0, T1, T2]}", "create assignments/0000000002"]
    assert second.register(second.started[0]) == [["t", 0, 7], ["t", 1, 0], ["t", 2, 0]]


def test_a_driver_that_meets_the_assignment_of_an_earlier_one_takes_the_identities_of_its_tasks_too() -> None:
    world = World(epoch=2, tasks=1)
    other = Assignment(1, 1, {4: (T0,)}, {T0: 0})
    world.files.fault = lambda verb, name: AssignmentLog(world.files.inner, 1).store(other) and None if verb == "create" else None
    world.begin(T0)
    assert [call for call in world.calls if not call.startswith("receipts")] == [
        "fence [0]", "create assignments/0000000001", "fence [0, 4]", "create assignments/0000000002", "start 0",
    ]  # fmt: skip


class Unlisted(World):
    """The world of a driver that had listed the assignments before there was one."""

    def list(self, _folder: str = "") -> list[str]:
        return []


def test_of_two_drivers_the_earlier_one_is_fenced_where_they_meet() -> None:
    world = Unlisted(epoch=1)
    AssignmentLog(world.files.inner, 2).store(Assignment(1, 2, {}, {}))
    world.coordinator.start({T0: 0})
    world.step()
    assert [type(error) for error in world.errors] == [FencedError] and world.started == []


def test_only_the_present_run_is_accepted_and_only_once() -> None:
    world = World(tasks=1).begin(T0)
    [first] = world.started
    assert world.register(TaskRun(0, first.run + 1, 1)) is None
    assert world.register(first) == [["t", 0, 0]]
    assert world.register(first) is None, "a second attempt of the job would begin where the first one has begun"
    world.ended(first, None)
    assert world.register(first) is None


def test_a_driver_that_finds_a_later_one_accepts_nobody_and_ends() -> None:
    world = World(tasks=1).begin(T0)
    world.fenced = True
    assert world.register(world.started[0]) is None
    assert [type(error) for error in world.errors] == [FencedError]
    assert world.ask(messages.NEXT_TASK_COMMAND, world.started[0]) == {"command": messages.STOP_TASK}


def test_a_task_that_ends_is_handed_over_and_runs_again_within_three_seconds_from_its_receipt() -> None:
    world = World(tasks=1).begin(T0)
    for times in range(8):
        world.known = {T0: EpochReceipt(times, 1)}
        world.ended(world.started[-1], ValueError("x"))
        assert world.step() == []
        assert world.step(restart_delay_ms(times + 1)) == ["fence [0]", f"receipts {[T0]}", "start 0"]
        assert world.register(world.started[-1]) == [["t", 0, times]]
    assert [restart_delay_ms(failures) for failures in (1, 2, 3, 6, 500)] == [100, 200, 400, 2000, 2000]


def test_a_new_partition_restarts_only_the_task_that_gets_it() -> None:
    world = World().begin(T0, T1)
    world.coordinator.partitions_found({T2: 3})
    assert world.step() == ["cancel 0", "fence [0]", f"receipts {[T0, T2]}", "create assignments/0000000002", "start 0"]
    assert world.register(world.started[0]) is None, "the run of before has lost its place before the receipts were read"
    assert world.register(world.started[2]) == [["t", 0, 0], ["t", 2, 3]]
    assert world.register(world.started[1]) == [["t", 1, 0]]


def test_another_number_of_tasks_moves_partitions_after_those_that_had_them_are_fenced() -> None:
    world = World(tasks=1).begin(T0, T1)
    world.coordinator.resize(2)
    assert world.step() == ["cancel 0", "fence [0, 1]", f"receipts {[T0, T1]}", "create assignments/0000000002", "start 0", "start 1"]


def test_no_run_starts_while_it_is_unknown_what_is_stored() -> None:
    world = World()
    world.files.fault = lambda verb, _name: "after" if verb == "create" else None
    world.begin(T0)
    assert world.started == []
    world.files.fault = lambda _verb, _name: None
    assert world.step(3000)[-2:] == ["create assignments/0000000002", "start 0"]


@pytest.mark.parametrize("offsets", [[7, 7, 7], [7, 8, 8, 8]])
def test_the_third_failure_at_one_record_ends_the_stream_and_names_it(offsets: list[int]) -> None:
    world = World(tasks=1).begin(T0)
    for offset in offsets:
        assert world.errors == []
        run = world.started[-1]
        world.ask(messages.TASK_FAILED, run, error="ValueError: no", record=["t", 0, offset])
        world.ended(run, ValueError("no"))
        world.step(3000)
    [error] = world.errors
    assert isinstance(error, EpochTaskFailedError) and str(FailedRecord("t", 0, offsets[-1])) in str(error)
    assert world.step(3000) == []


def test_a_stop_tells_each_task_and_starts_none() -> None:
    world = World().begin(T0, T1)
    first, second = world.started
    assert world.ask(messages.NEXT_TASK_COMMAND, first) == {"command": None}
    assert not world.coordinator.stop(0)
    assert world.ask(messages.NEXT_TASK_COMMAND, first) == {"command": messages.STOP_TASK}
    world.ended(first, None)
    world.ended(second, None)
    assert world.coordinator.stop(0) and world.step(3000) == []


def test_a_stop_cancels_what_does_not_end_in_time() -> None:
    world = World().begin(T0, T1)
    world.calls.clear()
    assert not world.coordinator.stop(0)
    assert world.calls == ["cancel 0", "cancel 1"]


def test_the_positions_are_written_once_a_second_at_most_and_a_snapshot_has_them() -> None:
    world = World(tasks=1).begin(T0)
    report = TaskReport({T0: 5}, 2, 10, 100, 1, latencies_of(4))
    for _ in range(4):
        world.ask(messages.REPORT_EPOCHS, world.started[0], **report.to_json())
        world.step(400)
    assert len([name for verb, name, _ in world.counted.calls if verb == "replace"]) == 2
    snapshot = world.coordinator.snapshot()
    assert (snapshot.generation, snapshot.positions, snapshot.epochs, snapshot.records) == (1, {T0: 5}, 8, 40)
    assert (snapshot.epochs_a_second, snapshot.latency_p50_ms, snapshot.latency_p99_ms) == (0.8, 5, 5)
    assert snapshot.tasks[0].partitions == (T0,)


def test_a_store_that_refuses_positions_holds_nobody_up() -> None:
    world = World(tasks=1).begin(T0)
    world.files.fault = lambda verb, _name: "before" if verb == "replace" else None
    world.ask(messages.REPORT_EPOCHS, world.started[0], **TaskReport({T0: 5}, 1).to_json())
    world.step(1000)
    world.ended(world.started[0], StorageError("x"))
    assert world.step(1000)[-1] == "start 0"


def test_the_receipt_is_the_truth_whatever_was_reported() -> None:
    assert begin_at(EpochReceipt(5, 1), 9, 0) == begin_at(EpochReceipt(5, 1), 2, 7) == 5
    assert (begin_at(None, None, 3), begin_at(None, 9, 3), begin_at(None, 2, 3)) == (3, 9, 3)


def test_the_bytes_and_the_name_of_the_positions() -> None:
    files = MemoryFileStore(f"memory://{uuid.uuid4().hex}")
    stored = StoredPositions(4, 7, 9, {T0: 5, T1: 0})
    PositionLog(files).write(stored)
    assert files.list("positions") == ["000004"] and files.read("positions/000004") == STORED
    assert PositionLog(files).newest() == stored
