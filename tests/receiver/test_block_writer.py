"""What a receiver on an executor stores: cut, kept, told to the driver, or given up as a whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest

from kstream.clock import Clock, SystemClock
from kstream.errors import BlockNotStoredError, IllegalStateError, RpcUnreachableError
from kstream.receiver.block_generator import BlockIds, RateLimiter
from kstream.receiver.block_reading import records_of
from kstream.receiver.block_writer import MOST_BLOCK_BYTES, BlockWriterConfig, PackedLines, ReceiverBlockWriter
from kstream.receiver.received_block_handler import BlockStoreBasedBlockHandler, ReceivedBlockStoreResult
from kstream.testing import ManualClock


class OneStore:
    executor_id = "0"

    def __init__(self) -> None:
        self.blocks: dict[str, list[Any]] = {}

    def put(self, name: str, chunks: Sequence[bytes], how: str) -> None:
        self.blocks[name] = list(records_of(chunks, name))

    def remove(self, name: str) -> None:
        self.blocks.pop(name, None)


class Executor:
    """Stores of one receiver; the driver gives `answer`, which may be an error."""

    def __init__(
        self,
        answer: bool | Exception = True,
        clock: Clock | None = None,
        interval_ms: int = 60_000,
        most_bytes: int = MOST_BLOCK_BYTES,
        limiter: RateLimiter | None = None,
    ) -> None:
        self.store, self.answer = OneStore(), answer
        self.told: list[tuple[str, int | None]] = []
        self.errors: list[str] = []
        handler = BlockStoreBasedBlockHandler(self.store, list, "memory", replicas=1)
        self.blocks = ReceiverBlockWriter(
            handler,
            lambda *told: self.tell(*told),
            lambda message, error: self.errors.append(str(error)),
            BlockIds(0, "run"),
            clock or SystemClock(),
            BlockWriterConfig(interval_ms, 10, most_bytes),
            limiter,
        )

    def tell(self, name: str, stored: ReceivedBlockStoreResult, metadata: Any) -> bool:
        self.told.append((name, stored.num_records))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_an_open_block_that_has_grown_too_large_becomes_several_in_order() -> None:
    """As when the driver, or a store, has kept it waiting for long."""
    executor = Executor(most_bytes=1_000_000)
    executor.blocks.open()
    for n in range(30):
        executor.blocks.add_each([n.to_bytes(2, "big") * 50_000])
    executor.blocks.close()
    names = [name for name, _ in executor.told]
    assert len(names) == len(set(names)) == len(executor.store.blocks) > 2 and executor.errors == []
    assert sum(count or 0 for _, count in executor.told) == 30
    assert [record[:2] for name in names for record in executor.store.blocks[name]] == [n.to_bytes(2, "big") for n in range(30)]


def test_an_iterator_that_raises_stores_nothing() -> None:
    """Spark behaviour BH3."""

    def records() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    executor = Executor()
    with pytest.raises(ValueError, match="no more"):
        executor.blocks.add_all(records())
    executor.blocks.close()
    assert executor.store.blocks == {} and executor.told == []


def test_what_is_being_told_is_not_told_before_it_is() -> None:
    """A clean-up order that the driver gives meanwhile knows nothing of it."""
    clock = ManualClock(1000)
    executor = Executor(clock=clock)
    seen: list[int] = []

    def while_it_is_told(name: str, stored: ReceivedBlockStoreResult, metadata: Any) -> bool:
        clock.advance(500)
        seen.append(executor.blocks.acknowledged_before())
        return True

    executor.tell = while_it_is_told
    executor.blocks.add_all([1])
    assert seen == [1000] and executor.blocks.acknowledged_before() == 1500


class Limited:
    """A receiver that stores by `store_each`, under a limit of 50 records a second; the clock moves by hand."""

    def __init__(
        self, records: Iterable[Any], max_rate: int | None = 50, initial_rate: int | None = None, rate_while_pickling: int | None = None
    ) -> None:
        self.clock = ManualClock(1000)
        limiter = RateLimiter(self.clock, max_rate, initial_rate)
        self.executor = Executor(clock=self.clock, interval_ms=200, limiter=limiter)
        if rate_while_pickling is not None:
            packer, rate = self.executor.blocks._packer, rate_while_pickling
            pack = packer.pack
            packer.pack = lambda records: (limiter.updateRate(rate), pack(records))[1]  # type: ignore[method-assign]
        self.executor.blocks.open()
        self.refused: list[str] = []
        self._thread = threading.Thread(target=self._store, args=(records,), daemon=True)
        self._thread.start()

    def _store(self, records: Iterable[Any]) -> None:
        try:
            self.executor.blocks.add_each(records)
        except IllegalStateError as e:
            self.refused.append(str(e))

    def go(self, seconds: int) -> None:
        for _ in range(seconds * 50):
            self.clock.wait_for_waiters(2)  # the receiver, and the timer of the block interval
            self.clock.advance(20)

    def close(self) -> list[Any]:
        self.executor.blocks.close()
        self._thread.join(60)
        return [record for records in self.executor.store.blocks.values() for record in records]

    def entered(self) -> int:
        """How many records have entered a block."""
        blocks = self.executor.blocks
        while len(self.executor.told) < blocks._ids._made:  # one is being pushed
            self._thread.join(0.001)
        return len(blocks._generator._open) + sum(count or 0 for _, count in self.executor.told)


LINES = [f"line {n}" for n in range(1000)]


@pytest.mark.parametrize("rates", [(50, None), (None, 50), (400, 50)], ids=["maxRate", "initialRate", "the lower of both"])
@pytest.mark.parametrize(
    "given", [lambda: PackedLines("\n".join(LINES)), lambda: LINES, lambda: iter(LINES)], ids=["a read", "a list", "an iterator"]
)
def test_under_a_rate_limit_each_record_of_many_enters_as_it_is_permitted(
    given: Callable[[], Iterable[Any]], rates: tuple[int | None, int | None]
) -> None:
    """A chunk of 1000 lines at 50 a second is 50 records each second, not 1000 after 20 seconds."""
    run = Limited(given(), *rates)
    for second in range(1, 4):
        run.go(1)
        assert 50 * second <= run.entered() <= 50 * (second + 1)
    stored = run.close()
    assert stored == LINES[: len(stored)] and 150 <= len(stored) <= 200
    assert all(9 <= (count or 0) <= 11 for _, count in run.executor.told[1:-1]), (
        "ten in each interval of 200 ms, and one may come at its end"
    )
    assert len(run.refused) == 1 and "stopped" in run.refused[0], "the caller knows that the rest is not stored"


@pytest.mark.parametrize(
    "given", [lambda: PackedLines("\n".join(LINES)), lambda: LINES, lambda: iter(LINES)], ids=["a read", "a list", "an iterator"]
)
def test_under_a_rate_that_comes_while_lines_are_pickled_each_of_them_takes_a_permit(given: Callable[[], Iterable[Any]]) -> None:
    """Not each pack, which is a thousand lines."""
    run = Limited(given(), max_rate=None, rate_while_pickling=50)
    for second in range(1, 4):
        run.go(1)
        assert 50 * second <= run.entered() <= 50 * (second + 1)
    stored = run.close()
    assert stored == LINES[: len(stored)] and 150 <= len(stored) <= 200


def test_an_endless_iterator_is_stored_while_it_goes_on() -> None:
    run = Limited(count())
    run.go(1)
    assert 50 <= run.entered() <= 100
    assert run.close()[:3] == [0, 1, 2]


def test_of_two_blocks_that_are_being_told_the_older_one_says_what_may_be_cleaned() -> None:
    """The driver may clean the receiver's log up to that moment: a file with the older block must stay until the driver knows the block."""
    clock = ManualClock(1000)
    executor = Executor(clock=clock)
    seen: list[int] = []

    def while_the_second_is_told(name: str, stored: ReceivedBlockStoreResult, metadata: Any) -> bool:
        clock.advance(500)
        seen.append(executor.blocks.acknowledged_before())
        return True

    def while_the_first_is_told(name: str, stored: ReceivedBlockStoreResult, metadata: Any) -> bool:
        clock.advance(500)
        executor.tell = while_the_second_is_told
        executor.blocks.add_all(["second"])  # stored at 1500
        return True

    executor.tell = while_the_first_is_told
    executor.blocks.add_all(["first"])
    assert seen == [1000] and executor.blocks.acknowledged_before() == 2000


def test_a_block_that_the_driver_refuses_stays_in_no_store() -> None:
    executor = Executor(answer=False)
    with pytest.raises(BlockNotStoredError, match="the driver refused block input-0-run-1"):
        executor.blocks.add_all([1])
    assert executor.told == [("input-0-run-1", 1)] and executor.store.blocks == {}


def test_a_block_that_the_driver_may_know_stays() -> None:
    executor = Executor(answer=RpcUnreachableError("it did not answer", place=""))
    with pytest.raises(RpcUnreachableError):
        executor.blocks.add_all([1])
    assert executor.store.blocks == {"input-0-run-1": [1]}


@pytest.mark.parametrize("metadata", [{"mean": float("nan")}, {"at": object()}], ids=["no number", "an object"])
def test_metadata_that_are_no_json_are_refused_before_anything_is_stored(metadata: Any) -> None:
    executor = Executor()
    with pytest.raises((ValueError, TypeError), match="JSON"):
        executor.blocks.add_all([1], metadata)
    assert executor.told == [] and executor.store.blocks == {}


def test_no_bytes_are_no_block() -> None:
    executor = Executor()
    with pytest.raises(ValueError, match="pickled list"):
        executor.blocks.add_bytes(b"")
    assert executor.told == []


def test_the_stop_waits_for_blocks_that_are_on_their_way_to_the_driver() -> None:
    """One that is told after the receiver's end would be in no batch."""
    executor = Executor()
    executor.blocks.open()
    inside, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    tell = executor.tell

    def slow(name: str, stored: ReceivedBlockStoreResult, metadata: Any) -> bool:
        inside.set()
        go_on.wait(60)
        assert not ended.is_set()
        return tell(name, stored, metadata)

    executor.blocks._add_block = slow
    storing = threading.Thread(target=lambda: executor.blocks.add_all([1]))
    storing.start()
    assert inside.wait(60)
    stopping = threading.Thread(target=lambda: (executor.blocks.close(), ended.set()))
    stopping.start()
    while not executor.blocks._closed:
        stopping.join(0.001)
    with pytest.raises(IllegalStateError):
        executor.blocks.add_all([2])
    assert not ended.is_set()
    go_on.set()
    stopping.join(60)
    storing.join(60)
    assert ended.is_set() and executor.told == [("input-0-run-1", 1)]


def test_after_the_stop_nothing_can_be_stored() -> None:
    executor = Executor()
    executor.blocks.open()
    executor.blocks.close()
    for store in (lambda: executor.blocks.add(1), lambda: executor.blocks.add_each([1]), lambda: executor.blocks.add_all([1])):
        with pytest.raises(IllegalStateError):
            store()
    assert executor.store.blocks == {}
