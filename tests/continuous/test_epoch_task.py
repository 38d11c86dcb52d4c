"""The loop of a task: the order of its calls, when an epoch ends, and what it tells of an error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from kstream.continuous import messages
from kstream.continuous.epoch_task import ChunkFunction, EpochLimits, EpochTask
from kstream.continuous.messages import CoordinatorLink
from kstream.continuous.ports import Chunk, TaskRun
from kstream.continuous.task_report import TaskReport
from kstream.errors import FencedError, RpcError, RpcUnreachableError
from kstream.loop.threads import ThreadRuntime
from kstream.offsets.offset_range import Partition
from kstream.rpc import of_body, to_body
from tests.clocks import SteppedClock

T0: Partition = ("t", 0)
T1: Partition = ("t", 1)


def chunk(partition: Partition, records: Sequence[str], begin: int = 0, until: int | None = None) -> Chunk:
    offsets = range(begin, begin + len(records))
    return Chunk(partition, records, offsets.stop if until is None else until, len(records), 1000 if records else None, offsets)


class HeldThreads(ThreadRuntime):
    """Threads of the product do not begin by themselves: a test calls what they would do."""

    def __init__(self) -> None:
        self.targets: list[Callable[[], None]] = []

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        self.targets.append(target)
        return threading.Thread(target=lambda: None, name=name)


class World:
    """The log, the output and the driver of one run, and the order in which they were called."""

    def __init__(self, polls: Sequence[Sequence[Chunk] | Callable[[], Any]] = ()) -> None:
        self.calls: list[str] = []
        self.clock = SteppedClock()
        self.threads = HeldThreads()
        self.polls = list(polls)
        self.positions: Mapping[Partition, int] | None = {T0: 0, T1: 0}
        self.waits: list[float] = []
        self.added: list[Any] = []
        self.written: list[tuple[list[Any], dict[Partition, int]]] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Callable[[], dict[str, Any]]] = {}
        self.end_fails: BaseException | None = None
        self.task: EpochTask | None = None

    def run(self, function: ChunkFunction = lambda records: records, limits: EpochLimits | None = None) -> None:
        self.task = EpochTask(self, self, function, self.clock, self.threads, limits or EpochLimits())
        self.task.run(CoordinatorLink(self, TaskRun(3, 11, 2)))

    def stop(self) -> Sequence[Chunk]:
        """The driver answers with the command to stop, while a poll waits."""
        self.answers[messages.NEXT_TASK_COMMAND] = lambda: {"command": messages.STOP_TASK}
        self.threads.targets[0]()
        return ()

    def wait(self, milliseconds: int) -> Callable[[], Sequence[Chunk]]:
        def passes() -> Sequence[Chunk]:
            self.clock.advance(milliseconds)
            return ()

        return passes

    # the log

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self.calls.append(f"assign {sorted(positions.items())}")

    def poll(self, wait_s: float) -> Sequence[Chunk]:
        self.waits.append(wait_s)
        poll = self.polls.pop(0) if self.polls else self.stop
        return poll() if callable(poll) else poll

    def close(self) -> None:
        self.calls.append("close")

    # the output

    def open(self) -> None:
        self.calls.append("open")

    def add(self, made: Iterable[Any]) -> None:
        self.added += made

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.added))

    def end(self, positions: Mapping[Partition, int]) -> None:
        if self.end_fails is not None:
            raise self.end_fails
        self.written.append((self.added, dict(positions)))
        self.added = []

    # the driver

    def ask(self, what: str, body: bytes) -> bytes:
        fields = of_body(body)
        assert (fields.pop("task"), fields.pop("run"), fields.pop("generation")) == (3, 11, 2)
        self.calls.append(what)
        self.told.append((what, fields))
        if what in self.answers:
            return to_body(**self.answers[what]())
        if what == messages.REGISTER_TASK:
            rows = [[*partition, at] for partition, at in (self.positions or {}).items()]
            return to_body(accepted=self.positions is not None, positions=rows)
        return to_body(command=None)

    def heard(self, what: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.told if name == what]


def test_a_run_takes_its_identity_before_it_asks_whether_it_may_write() -> None:
    world = World()
    world.run()
    assert world.calls[:3] == ["open", messages.REGISTER_TASK, "assign [(('t', 0), 0), (('t', 1), 0)]"]
    assert world.calls[-3:] == [messages.DEREGISTER_TASK, "close", "close"]


def test_a_refused_run_reads_and_writes_nothing() -> None:
    world = World([[chunk(T0, ["a"])]])
    world.positions = None
    world.run()
    assert world.calls == ["open", messages.REGISTER_TASK, "close", "close"] and world.written == []


def test_an_epoch_has_the_outputs_of_its_records_and_the_position_of_each_partition_that_has_moved() -> None:
    world = World([[chunk(T0, ["a", "b"])], [chunk(T0, ["c"], 2)], [chunk(T1, ["d"])], lambda: world.wait(100)()])
    world.run(lambda records: (record.upper() for record in records))
    assert world.written == [(["A", "B", "C", "D"], {T0: 3, T1: 1})]


def test_an_epoch_ends_by_time_and_a_poll_waits_no_longer_than_it_lasts() -> None:
    world = World([[chunk(T0, ["a"])], lambda: world.wait(60)(), lambda: world.wait(40)(), [chunk(T0, ["b"], 1)]])
    world.run(limits=EpochLimits(epoch_ms=100, idle_ms=200))
    assert world.written == [(["a"], {T0: 1}), (["b"], {T0: 2})]
    assert world.waits == [0.2, 0.1, 0.04, 0.2, 0.1]


def test_an_epoch_ends_by_the_bytes_of_its_outputs() -> None:
    world = World([[chunk(T0, ["aa"]), chunk(T1, ["bb"]), chunk(T0, ["c"], 1)]])
    world.run(limits=EpochLimits(epoch_bytes=4))
    assert world.written == [(["aa", "bb"], {T0: 1, T1: 1}), (["c"], {T0: 2})]


def test_without_records_there_is_no_epoch_also_where_the_position_moves() -> None:
    world = World([[chunk(T0, [], until=9)], lambda: world.wait(500)()])
    world.run()
    assert world.written == []


def test_what_is_passed_over_behind_records_belongs_to_their_epoch() -> None:
    world = World([[chunk(T0, ["a"]), chunk(T0, [], until=9)]])
    world.run()
    assert world.written == [(["a"], {T0: 9})]


def test_records_without_outputs_have_an_epoch() -> None:
    world = World([[chunk(T0, ["a"])]])
    world.run(lambda _records: ())
    assert world.written == [([], {T0: 1})]


def test_a_command_to_stop_ends_the_epoch_and_the_last_report_is_sent() -> None:
    world = World([[chunk(T0, ["a"])]])
    world.run()
    assert world.written == [(["a"], {T0: 1})]
    [report] = world.heard(messages.REPORT_EPOCHS)
    assert TaskReport.from_json(report).positions == {T0: 1}


def test_epochs_are_reported_at_most_once_a_second() -> None:
    def command() -> dict[str, Any]:
        world.clock.advance(250)
        asked.append(len(world.heard(messages.REPORT_EPOCHS)))
        return {"command": messages.STOP_TASK if len(asked) == 12 else None}

    def follow() -> Sequence[Chunk]:
        world.answers[messages.NEXT_TASK_COMMAND] = command
        world.threads.targets[0]()
        return ()

    asked: list[int] = []
    world = World([*([chunk(T0, ["a"], n)] for n in range(3)), follow])
    world.run(limits=EpochLimits(epoch_bytes=1))
    assert asked == [0] * 4 + [1] * 8, "all that is known goes with one report, and without news there is none"
    [report] = world.heard(messages.REPORT_EPOCHS)
    assert (report["epochs"], report["records"], sum(report["latencies"])) == (3, 3, 3)


def test_a_report_that_was_not_answered_goes_with_the_next_one() -> None:
    def lost() -> dict[str, Any]:
        world.answers.pop(messages.REPORT_EPOCHS)
        raise RpcError("lost")

    def command() -> dict[str, Any]:
        world.clock.advance(1000)
        return {"command": messages.STOP_TASK if len(world.heard(messages.REPORT_EPOCHS)) == 2 else None}

    def follow() -> Sequence[Chunk]:
        world.answers = {messages.NEXT_TASK_COMMAND: command, messages.REPORT_EPOCHS: lost}
        world.threads.targets[0]()
        return ()

    world = World([[chunk(T0, ["a"])], follow])
    world.run(limits=EpochLimits(epoch_bytes=1))
    first, second = world.heard(messages.REPORT_EPOCHS)
    assert first == second


def test_a_run_whose_driver_is_gone_for_a_minute_ends_itself_and_a_shorter_silence_does_not() -> None:
    def silent() -> dict[str, Any]:
        if world.clock.time_ms() == 30_000:
            world.clock.advance(1)
            return {"command": None}
        raise RpcUnreachableError("nobody")

    def follow() -> Sequence[Chunk]:
        world.answers[messages.NEXT_TASK_COMMAND] = silent
        world.threads.targets[0]()
        return ()

    world = World([follow])
    world.run()
    assert 90_000 <= world.clock.time_ms() <= 92_000


@pytest.mark.parametrize("lazily", [True, False])
def test_an_error_of_the_users_function_names_the_record(lazily: bool) -> None:
    def fails(records: Iterator[str]) -> Iterator[str]:
        for record in records:
            if record == "c":
                raise ValueError("no c")
            yield record

    world = World([[chunk(T0, ["a", "b", "c", "d"], 20)]])
    with pytest.raises(ValueError, match="no c"):
        world.run(fails if lazily else lambda records: list(fails(records)))
    assert world.heard(messages.TASK_FAILED) == [{"error": "ValueError: no c", "record": ["t", 0, 22]}]
    assert world.written == [], "nothing of its epoch is stored"


def test_an_error_of_the_output_names_no_record() -> None:
    world = World([[chunk(T0, ["a"])]])
    world.end_fails = FencedError("another run has taken the identity")
    with pytest.raises(FencedError):
        world.run()
    assert world.heard(messages.TASK_FAILED) == [{"error": "FencedError: another run has taken the identity", "record": None}]
    assert world.calls[-2:] == ["close", "close"]


def test_a_log_that_knows_no_offsets_names_where_the_chunk_begins() -> None:
    world = World([[Chunk(T0, ["1"], 5, 1, None)], [Chunk(T0, ["b"], 9, 1, None)]])
    with pytest.raises(ValueError, match="invalid literal"):
        world.run(lambda records: [str(int(record)) for record in records])
    assert world.heard(messages.TASK_FAILED)[0]["record"] == ["t", 0, 5]
