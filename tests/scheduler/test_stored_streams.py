"""A restart decodes the stored plans once, and hands them on as values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kstream.batch import BatchPlan, JsonPlan
from kstream.batch_time import Time
from kstream.checkpoint import LogContents, names, read_log
from kstream.checkpoint.settled import Settled
from kstream.dstream import FileInputDStream, InputDStream, ReceiverInputDStream
from kstream.dstream.stored_stream import StoredStream
from kstream.testing import ManualClock
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Driver, LogInput, World, at
from tests.inputs import file_stream, write
from tests.receiver_driver import ReceiverDriver
from tests.stores import SteppingStore

Decoded = list[tuple[int, str]]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Decoded:
    """The stream and the data of each plan that is decoded from now on."""
    noted: Decoded = []
    for kind in (InputDStream, FileInputDStream, ReceiverInputDStream):

        def note(stream: InputDStream, data: Any, decode: Any = kind.decode) -> Any:
            noted.append((stream.id, json.dumps(dict(data), sort_keys=True)))
            return decode(stream, data)

        monkeypatch.setattr(kind, "decode", note)
    return noted


class Streams(Driver):
    """A driver with three inputs: the log of the world, another log, and the files of a directory. Each has an output."""

    def __init__(self, world: World, directory: Path, store: Any = None) -> None:
        self.other: list[int] = []

        def build(host: FakeHost, driver: Any) -> None:
            for stream in (driver.input, LogInput(host, self.other), file_stream(host, str(directory), driver.clock)):
                driver.output(stream)

        super().__init__(world, build=build, store=store)


def stored(contents: LogContents) -> Counter[tuple[int, str]]:
    """How often each stream has each data in the plans of a log, as `decode` gets it."""
    data = [(number, dict(plan.inputs[number])) for plan in contents.plans.values() for number in plan.inputs]
    return Counter((number, json.dumps(without_json(found), sort_keys=True)) for number, found in data)


def without_json(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if (key, value) != ("kind", "json")}


def test_a_restart_decodes_the_newest_plan_before_it_takes_the_epoch_and_each_stored_plan_once_after_it(
    decoded: Decoded, tmp_path: Path
) -> None:
    world = World()
    first = Streams(world, tmp_path)
    first.refuse(at(2), at(3), at(4))
    first.start()
    for number in range(1, 6):
        first.other.extend([number, number])
        write(tmp_path / f"file-{number}", "x", at(number) - INTERVAL // 2)
        first.tick_only(1)
        first.settle()
    first.kill()
    assert decoded == []
    contents = read_log(world.store)
    plans = stored(contents)
    assert len(contents.pending) == 3 and len(plans) == 3 * len(contents.plans) == plans.total(), "no two plans have the same data"
    taken: list[int] = []

    def step(verb: str, name: str, done: bool) -> None:
        if name.startswith(names.epoch(2)) and not done:
            taken.append(len(decoded))

    second = Streams(world, tmp_path, SteppingStore(world.store, step)).start()
    second.settle()
    (before,) = taken
    newest = contents.plans[max(contents.plans)]
    assert Counter(decoded[:before]) == stored(LogContents(None, {newest.time: newest}, frozenset(), frozenset(), {}, ()))
    assert Counter(decoded[before:]) == plans
    second.stop()


def test_a_restart_with_a_receiver_decodes_each_plan_once_for_its_blocks_and_its_batches(decoded: Decoded) -> None:
    world = World()
    first = ReceiverDriver(world).start()
    for number in range(3):
        first.receiver.store(number)
        first.tick(0)
    first.kill()
    plans = stored(read_log(world.store))
    second = ReceiverDriver(world).start()
    second.settle()
    assert Counter(decoded[1:]) == plans and decoded[0] in plans, "the first one was checked before the epoch"
    second.stop()


# -- the values


def plan(number: int, data: Mapping[str, Any], epoch: int = 1) -> BatchPlan:
    return BatchPlan(Time(at(number)), epoch, "n", {0: data}, {0: 0}, Time(START))


def log(*plans: BatchPlan, settled: tuple[BatchPlan, ...] = ()) -> LogContents:
    intervals = (Settled(settled[0].time, settled[-1].time, settled, 1),) if settled else ()
    return LogContents(None, {p.time: p for p in plans}, frozenset(), frozenset(), {}, (), settled=intervals)


def test_a_stream_without_plans_begins() -> None:
    stream = LogInput(FakeHost({}), [])
    begins = StoredStream.of(stream, log())
    assert begins.newest is None and begins.left_behind() is None and begins.reads_nothing() == ""
    begins.restore()
    assert stream.calls == [] and stream.planned_batches() == []


def test_an_input_continues_behind_the_newest_plan_and_keeps_all_of_them() -> None:
    stream = LogInput(FakeHost({}), [])
    found = StoredStream.of(stream, log(plan(2, {"from": 3, "until": 7}), plan(1, {"from": 0, "until": 3})))
    assert found.newest == (Time(at(2)), JsonPlan({"from": 3, "until": 7}))
    found.restore()
    assert stream.cursor == 7 and stream.planned_batches() == [Time(at(1)), Time(at(2))]


def test_nothing_is_missing_beside_a_removed_plan_of_another_kind_of_input(tmp_path: Path) -> None:
    """The newest plan is checked by itself."""
    directory = file_stream(FakeHost({}), str(tmp_path), ManualClock(START))
    removed, kept = plan(1, {"kind": "kafka", "ranges": []}), plan(4, {"files": [], "since": 0, "listed": 0})
    found = StoredStream.of(directory, log(kept, settled=(removed,)))
    assert found.removed == {(removed.time, 1): None}
    assert found.skipped_between(removed, kept) == found.skipped_between(kept, removed) == ()


def test_a_removed_plan_shows_what_lies_between_it_and_the_next_one() -> None:
    stream = LogInput(FakeHost({}), [])
    removed, kept = plan(1, {"from": 0, "until": 3}), plan(4, {"from": 5, "until": 6})
    assert StoredStream.of(stream, log(kept, settled=(removed,))).skipped_between(removed, kept) == ["[3, 5)"]
