"""What a batch writes is in proportion to that batch, not to history."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstream.batch_time import Time
from kstream.dstream import FileInputDStream, InputDStream, ReceiverInputDStream
from kstream.errors import PlanFailedError
from kstream.scheduler.batch_lifecycle import BatchLifecycle
from tests.harness import INTERVAL, START, Driver, World, started
from tests.inputs import FileDriver
from tests.receiver_driver import ReceiverDriver
from tests.stores import CountingStore, LateStore

Calls = list[tuple[str, str, int]]
MakeDriver = Callable[[World, Path], Driver]
PENDING = 1000


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[InputDStream]:
    """The input of each plan that is decoded from now on."""
    inputs: list[InputDStream] = []
    for kind in (InputDStream, FileInputDStream, ReceiverInputDStream):

        def noted(stream: InputDStream, data: Any, decode: Any = kind.decode) -> Any:
            inputs.append(stream)
            return decode(stream, data)

        monkeypatch.setattr(kind, "decode", noted)
    return inputs


def shape(calls: Calls) -> list[tuple[str, str]]:
    return [(verb, name.split("/")[0].split("-")[0]) for verb, name, _ in calls]


def written(calls: Calls) -> int:
    return sum(size for _, _, size in calls)


def test_a_batch_costs_one_create_before_one_probe_and_one_create_after() -> None:
    store = CountingStore(World().store)
    world = World(store)
    driver = started(world)
    for _ in range(5):
        driver.tick(1)
    driver.engine._generator._cleaner.stop(drain=True)
    store.take()
    driver.tick(1)
    assert shape(store.take()) == [("create", "plans"), ("exists", "epoch"), ("create", "done")]


def test_an_old_batch_costs_two_removals_and_no_listing() -> None:
    store = CountingStore(World().store)
    world = World(store)
    driver = started(world)
    for _ in range(20):
        driver.tick(1)
    driver.stop()
    calls = shape(store.take())
    start = calls.index(("create", "plans"))
    assert not [call for call in calls[start:] if call[0] in ("list", "read", "replace")]
    removed = calls.count(("delete", "plans"))
    assert removed == calls.count(("delete", "done"))
    assert removed >= 15


def test_bytes_and_requests_of_a_batch_do_not_grow_with_a_thousand_pending_batches() -> None:
    store = CountingStore(World().store)
    world = World(store)
    driver = started(world)
    driver.tick(1)
    gate, runs = threading.Event(), threading.Event()
    driver.before_job = lambda _time: (runs.set(), gate.wait(60))

    def one_more() -> Calls:
        store.take()
        time = driver.tick_only(1)
        world.wait(lambda: Time(time) in driver.engine.lifecycle.open())
        return [call for call in store.take() if call[0] != "delete"]

    for number in range(2, 4):  # they are generated
        driver.tick_only(1)
        world.wait(lambda number=number: len(driver.listener.named("onBatchSubmitted")) == number)
    assert runs.wait(20), "a job that starts later than an interval after its probe probes again"
    early = one_more()
    for _ in range(PENDING):
        driver.tick_only(1)
    world.wait(lambda: len(driver.engine.lifecycle.open()) == PENDING + 3)
    late = one_more()
    gate.set()
    assert shape(early) == shape(late) == [("create", "plans")]
    assert written(late) <= written(early) + 20
    driver.stop()
    world.assert_exact()


def test_a_batch_copies_the_set_of_unfinished_batches_at_most_twice_however_many_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage of a day leaves 86,400 of them. One copy is for clean-up in memory, the other one for the cleaner's thread."""
    world = World()
    driver = Driver(world, {"spark.streaming.kstream.maxHeldBatches": "1"})
    driver.refuse(*range(START, START + 10 * INTERVAL))
    driver.start()
    for _ in range(9):
        driver.tick(1)
    copies: list[str] = []

    def counted(name: str, copy: Callable[[BatchLifecycle], set[Time]]) -> None:
        monkeypatch.setattr(BatchLifecycle, name, lambda unfinished: (copies.append(name), copy(unfinished))[1])

    for copy in BatchLifecycle.unfinished, BatchLifecycle.failed, BatchLifecycle.to_come:
        counted(copy.__name__, copy)
    for _ in range(3):
        driver.settle()
        driver.engine._generator._cleaner.drain(20)
        copies.clear()
        driver.tick(1)
        driver.settle()
        driver.engine._generator._cleaner.drain(20)
        assert len(copies) <= 2
    assert len(driver.engine.lifecycle.failed()) == 9


@pytest.mark.parametrize(
    "make",
    [lambda world, _: Driver(world), FileDriver, lambda world, _: ReceiverDriver(world)],
    ids=["JSON", "files", "receiver"],
)
def test_the_driver_that_made_a_plan_never_decodes_it_and_the_next_driver_does(
    make: MakeDriver, decoded: list[InputDStream], tmp_path: Path
) -> None:
    world = World()
    first = make(world, tmp_path).start()
    for _ in range(3):
        first.tick(1)
    first.kill()
    assert decoded == []
    second = make(world, tmp_path).start()
    assert decoded
    decoded.clear()
    second.tick(1)
    second.stop()
    assert decoded == []


def test_a_plan_whose_write_was_in_doubt_and_has_happened_is_not_decoded(decoded: list[InputDStream]) -> None:
    world = World()
    late = LateStore(world.store)
    world.store = late
    driver = started(world)
    late.down = True
    driver.tick_only(2)
    driver.wait_error(PlanFailedError)
    late.down = False
    assert late.arrive() == ["stored", "refused"]
    driver.tick(1)
    world.wait(lambda: len(driver.listener.completed()) == 2)
    driver.stop()
    assert decoded == []
    world.assert_exact()
