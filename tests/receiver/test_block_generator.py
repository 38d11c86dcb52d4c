"""What a receiver stores becomes blocks (Spark behaviours BG1–BG4)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kstream.errors import ConfigurationError, IllegalStateError
from kstream.loop.threads import ThreadRuntime
from kstream.receiver.block_generator import BlockGenerator, BlockIds, RateLimiter
from kstream.testing import ManualClock

PATIENCE = 20.0


class Noting:
    """A listener that notes what it hears; `gate` closed, a push waits."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.added: list[tuple[Any, Any]] = []
        self.generated: list[str] = []
        self.pushed: list[tuple[str, list[Any]]] = []
        self.errors: list[tuple[str, BaseException]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.refuse: set[str] = set()

    def onAddData(self, data: Any, metadata: Any) -> None:
        self.added.append((data, metadata))

    def onGenerateBlock(self, blockId: str) -> None:
        if "generate" in self.refuse:
            raise ValueError("no block now")
        self.generated.append(blockId)

    def onPushBlock(self, blockId: str, arrayBuffer: list[Any]) -> None:
        assert self.gate.wait(PATIENCE)
        if blockId in self.refuse:
            raise OSError(f"no room for {blockId}")
        with self.changed:
            self.pushed.append((blockId, arrayBuffer))
            self.changed.notify_all()

    def onError(self, message: str, throwable: BaseException) -> None:
        with self.changed:
            self.errors.append((message, throwable))
            self.changed.notify_all()

    def blocks(self, count: int) -> list[list[Any]]:
        """The blocks pushed, when there are so many."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.pushed) >= count, PATIENCE), self.pushed
            return [records for _, records in self.pushed]


class Run:
    """A generator with blocks of 10 ms on a clock that a test moves."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock(1000)
        self.listener = Noting()
        arguments: dict[str, Any] = {"interval_ms": 10, **settings}
        self.generator = BlockGenerator(self.listener, BlockIds(3, "run"), self.clock, **arguments)

    def start(self) -> Run:
        self.generator.start()
        self.clock.wait_for_waiters()
        return self

    def end_block(self) -> None:
        self.clock.wait_for_waiters()
        self.clock.advance(10)

    def stop_in_thread(self) -> threading.Thread:
        """Returns when it is stopping."""
        stopper = threading.Thread(target=self.generator.stop, daemon=True)
        stopper.start()
        assert self.generator._over.wait(PATIENCE)
        return stopper


@pytest.fixture
def run() -> Iterator[Run]:
    run = Run()
    yield run
    run.listener.gate.set()
    run.generator.stop()


def states(run: Run) -> tuple[bool, bool]:
    return run.generator.isActive(), run.generator.isStopped()


def test_it_is_active_from_the_start_to_the_stop(run: Run) -> None:
    """Spark behaviours BG1 and BG2."""
    assert states(run) == (False, False)
    run.start()
    assert states(run) == (True, False)
    run.generator.stop()
    assert states(run) == (False, True)


def test_what_comes_in_an_interval_is_pushed_as_a_block_in_order(run: Run) -> None:
    """BG1: also of three ways to add; an interval without data gives no block."""
    run.start()
    for number in range(10):
        run.generator.addData(number)
    run.end_block()
    assert run.listener.blocks(1) == [list(range(10))]
    run.end_block()
    run.generator.addData("a")
    run.generator.addDataWithCallback("b", 0)
    run.generator.addMultipleDataWithCallback(iter("cd"), 1)
    run.end_block()
    assert run.listener.blocks(2)[1:] == [["a", "b", "c", "d"]]
    assert run.listener.generated == ["input-3-run-1", "input-3-run-2"] == [name for name, _ in run.listener.pushed]


def test_data_that_is_merely_added_is_not_told(run: Run) -> None:
    """Spark behaviour BG1."""
    run.start()
    run.generator.addData(1)
    assert run.listener.added == []


def test_data_with_metadata_is_told_item_by_item(run: Run) -> None:
    """Spark behaviour BG1."""
    run.start()
    for number in range(10):
        run.generator.addDataWithCallback(number, f"m{number}")
    assert run.listener.added == [(number, f"m{number}") for number in range(10)]


def test_many_data_are_told_once_with_their_one_metadata_also_when_they_are_none(run: Run) -> None:
    """Spark behaviour BG1."""
    run.start()
    run.generator.addMultipleDataWithCallback(range(100), "meta")
    run.generator.addMultipleDataWithCallback([], "none")
    assert run.listener.added == [(list(range(100)), "meta"), ([], "none")]


def test_what_is_told_between_two_blocks_is_what_the_second_holds(run: Run) -> None:
    """So that offsets noted on the way belong to a block."""
    heard: list[Any] = []
    run.listener.onAddData = lambda data, metadata: heard.append(metadata)  # type: ignore[method-assign]
    run.listener.onGenerateBlock = heard.append  # type: ignore[method-assign]
    run.start()
    together, adding = threading.Barrier(3), 500

    def add(start: int) -> None:
        together.wait(PATIENCE)
        for number in range(start, start + adding):
            run.generator.addDataWithCallback(number, number)

    threads = [threading.Thread(target=add, args=(start,)) for start in (0, 10_000)]
    for thread in threads:
        thread.start()
    together.wait(PATIENCE)
    while any(thread.is_alive() for thread in threads):
        run.end_block()
    run.generator.stop()
    blocks: dict[str, list[Any]] = {}
    since: list[Any] = []
    for item in heard:
        if isinstance(item, str):
            blocks[item], since = since, []
        else:
            since.append(item)
    assert blocks == dict(run.listener.pushed) and since == []
    assert sum(len(records) for records in blocks.values()) == 2 * adding


class TicksAfterRelease:
    """A lock: each time a thread releases it, the block interval ends in that moment."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tick: Callable[[], None] | None = None

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()
        tick, self.tick = self.tick, None  # the tick takes the lock itself
        if tick is not None:
            tick()
            self.tick = tick


def test_a_record_and_its_metadata_are_in_the_same_block_also_where_the_interval_ends_right_after_the_record() -> None:
    """Else the offset of a Kafka record is committed with the block before the record: after a crash the record is lost."""
    lock = TicksAfterRelease()

    class OneLock(ThreadRuntime):
        def lock(self) -> TicksAfterRelease:
            return lock

    run = Run(runtime=OneLock())
    heard: list[str] = []
    run.listener.onAddData = lambda data, metadata: heard.append(metadata)  # type: ignore[method-assign]
    run.listener.onGenerateBlock = heard.append  # type: ignore[method-assign]
    run.start()
    lock.tick = lambda: run.generator._tick(0)
    run.generator.addDataWithCallback("a", "offset of a")
    run.generator.addMultipleDataWithCallback("bc", "offset of c")
    lock.tick = None
    assert heard == ["offset of a", "input-3-run-1", "offset of c", "input-3-run-2"]
    assert run.listener.blocks(2) == [["a"], ["b", "c"]]
    run.generator.stop()


def test_before_the_start_and_after_the_stop_nothing_can_be_added(run: Run) -> None:
    """Spark behaviour BG2."""

    def refused() -> None:
        for call in (
            lambda: run.generator.addData(1),
            lambda: run.generator.addDataWithCallback(1, 1),
            lambda: run.generator.addMultipleDataWithCallback([1], 1),
        ):
            with pytest.raises(IllegalStateError, match="has not been started or has been stopped"):
                call()

    refused()
    run.start()
    run.generator.stop()
    refused()
    assert run.listener.pushed == [] and run.listener.added == []


def test_a_stop_waits_until_the_last_block_is_pushed(run: Run) -> None:
    """BG2: first inactive and not stopped; 1000 items all pushed; a second stop is fine."""
    run.start()
    for number in range(1000):
        run.generator.addData(number)
        if number % 300 == 299:
            run.end_block()
    run.listener.gate.clear()
    stopper = run.stop_in_thread()
    with pytest.raises(IllegalStateError):
        run.generator.addData("late")
    second = threading.Thread(target=run.generator.stop, daemon=True)
    second.start()
    assert states(run) == (False, False) and stopper.is_alive() and second.is_alive()
    run.listener.gate.set()
    stopper.join(PATIENCE)
    second.join(PATIENCE)
    assert states(run) == (False, True) and not second.is_alive()
    assert [record for records in run.listener.blocks(4) for record in records] == list(range(1000))
    run.generator.stop()
    assert states(run) == (False, True)


def test_it_cannot_be_started_twice_nor_after_a_stop() -> None:
    """Spark behaviour BG2."""
    run = Run().start()
    for state in ("active", "stopped all"):
        with pytest.raises(IllegalStateError, match="make another") as e:
            run.generator.start()
        assert e.value.facts == {"state": state}
        run.generator.stop()
    never = Run()
    never.generator.stop()
    assert states(never) == (False, True)
    with pytest.raises(IllegalStateError):
        never.generator.start()


def test_an_error_of_a_push_is_told_and_the_next_block_follows(run: Run) -> None:
    """Spark behaviour BG3."""
    run.listener.refuse.add("input-3-run-1")
    run.start()
    run.generator.addData(1)
    run.end_block()
    run.generator.addData(2)
    run.end_block()
    assert run.listener.blocks(1) == [[2]]
    ((message, error),) = run.listener.errors
    assert message == "Error in block pushing thread" and "no room for input-3-run-1" in str(error)


def test_a_block_that_could_not_be_closed_is_closed_an_interval_later_with_what_came_since(run: Run) -> None:
    run.listener.refuse.add("generate")
    run.start()
    run.generator.addData(1)
    run.end_block()
    assert [str(error) for _, error in run.listener.errors] == ["no block now"]
    run.listener.refuse.clear()
    run.generator.addData(2)
    run.end_block()
    assert run.listener.blocks(1) == [[1, 2]]


def test_what_is_pushed_slowly_waits_in_a_queue_of_the_given_size_and_then_in_the_open_block() -> None:
    run = Run(queue_size=2).start()
    run.listener.gate.clear()
    for number in range(3):  # one in the push, two in the queue
        run.generator.addData(number)
        run.end_block()
    assert len(run.listener.generated) == 3
    run.generator.addData(3)
    run.clock.wait_for_waiters()
    ticking = threading.Thread(target=run.clock.advance, args=(10,), daemon=True)
    ticking.start()  # the timer waits for a place now, so the clock has to wait for it
    run.generator.addData(4)
    assert len(run.listener.generated) == 3
    run.listener.gate.set()
    ticking.join(PATIENCE)
    run.generator.stop()
    assert run.listener.blocks(4) == [[0], [1], [2], [3, 4]]


def test_a_throttled_receiver_fills_blocks_evenly() -> None:
    """BG4: 1001 a second and blocks of 100 ms are 100 a block, within 5 %."""
    clock, listener = ManualClock(1000), Noting()
    generator = BlockGenerator(listener, BlockIds(0), clock, 100, limiter=RateLimiter(clock, 1001))
    generator.start()

    def add() -> None:
        try:
            while True:
                generator.addData(1)
        except IllegalStateError:
            return

    adder = threading.Thread(target=add, daemon=True)
    adder.start()
    for _ in range(500):
        clock.wait_for_waiters(2)
        clock.advance(1)
    generator.stop()
    adder.join(PATIENCE)
    sizes = [len(records) for records in listener.blocks(5)][:5]
    assert sizes == pytest.approx([100] * 5, rel=0.05)
    assert not adder.is_alive()


def test_a_stop_does_not_wait_for_a_receiver_that_waits_for_its_rate() -> None:
    run = Run()
    run.generator = BlockGenerator(run.listener, BlockIds(3), run.clock, 10, limiter=RateLimiter(run.clock, 1))
    run.start()
    run.generator.addData("first")
    refused: list[BaseException] = []

    def add() -> None:
        try:
            run.generator.addMultipleDataWithCallback(["second"], None)
        except IllegalStateError as e:
            refused.append(e)

    adder = threading.Thread(target=add, daemon=True)
    adder.start()
    run.clock.wait_for_waiters(2)
    run.generator.stop()
    adder.join(PATIENCE)
    assert len(refused) == 1 and run.listener.blocks(1) == [["first"]]


def test_records_that_come_from_an_iterator_meanwhile_the_rate_comes_take_a_permit_each() -> None:
    run = Run()

    def records() -> Iterator[int]:
        run.generator.updateRate(1)
        yield from (1, 2)

    run.start()
    adder = threading.Thread(target=lambda: run.generator.addMultipleData(records()), daemon=True)
    adder.start()
    run.clock.wait_for_waiters(2)
    assert run.generator._open == [1], "the second one has to wait for its permit"
    run.clock.advance(1000)
    adder.join(PATIENCE)
    run.generator.stop()
    assert [record for records in run.listener.blocks(1) for record in records] == [1, 2]


def test_who_has_permits_adds_all_records_without_a_wait_and_is_told_of_how_many_it_has_them() -> None:
    run = Run()
    run.generator = BlockGenerator(run.listener, BlockIds(3), run.clock, 10, limiter=RateLimiter(run.clock, 100))
    run.start()
    assert run.generator.take_permits(5) == 1
    run.clock.advance(60)
    assert run.generator.take_permits(9) == 5 and run.generator.take_permits(9) == 1
    run.generator.add_permitted("abc", "meta")
    assert run.listener.added == [(["a", "b", "c"], "meta")]
    run.generator.stop()
    for call in (lambda: run.generator.take_permits(1), lambda: run.generator.add_permitted("d", "late")):
        with pytest.raises(IllegalStateError):
            call()


def test_an_update_reaches_the_generator() -> None:
    run = Run()
    assert run.generator.getCurrentLimit() is None
    run.generator.updateRate(100)
    assert run.generator.getCurrentLimit() == 100


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"interval_ms": 0}, "spark.streaming.blockInterval"),
        ({"interval_ms": -5}, "spark.streaming.blockInterval"),
        ({"queue_size": 0}, "spark.streaming.blockQueueSize"),
    ],
)
def test_interval_and_queue_must_be_positive(settings: dict[str, int], key: str) -> None:
    with pytest.raises(ConfigurationError, match="must be positive") as e:
        Run(**settings)
    assert e.value.facts["key"] == key


def test_blocks_of_two_runs_never_have_the_same_name() -> None:
    names = {ids.next() for ids in [BlockIds(7) for _ in range(5)] for _ in range(3)}
    assert len(names) == 15 and all(name.startswith("input-7-") for name in names)
