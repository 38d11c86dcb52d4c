"""Each received block gets into one batch, whoever dies (behaviours BT1–BT7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kstream.batch_time import Time
from kstream.errors import CorruptRecordError, FormatVersionError
from kstream.receiver.received_block_events import (
    BatchAllocationEvent,
    BatchCleanupEvent,
    BlockAdditionEvent,
    ReceivedBlockEvent,
    ReceivedBlockInfo,
    from_bytes,
    to_bytes,
)
from kstream.receiver.received_block_tracker import ReceivedBlockTracker
from kstream.testing import ManualClock
from kstream.wal import FileBasedWriteAheadLogSegment

STREAM = 1


class ListLog:
    """A log in memory that rolls each second: `files` by the second in which they begin."""

    def __init__(self) -> None:
        self.files: dict[int, list[bytes]] = {}
        self.cleaned: list[tuple[int, bool]] = []
        self.broken: Callable[[bytes], bool] = lambda record: False
        self.writes_before_it_breaks = False

    def write(self, record: bytes, time_ms: int) -> None:
        if not self.broken(record) or self.writes_before_it_breaks:
            self.files.setdefault(time_ms // 1000, []).append(record)
        if self.broken(record):
            raise OSError("disk full")

    def readAll(self) -> list[bytes]:
        return [record for second in sorted(self.files) for record in self.files[second]]

    def clean(self, threshold_ms: int, wait: bool) -> None:
        self.cleaned.append((threshold_ms, wait))
        for second in [second for second in self.files if (second + 1) * 1000 < threshold_ms]:
            del self.files[second]

    def events(self) -> list[ReceivedBlockEvent]:
        return [from_bytes(record, "the list") for record in self.readAll()]


class Driver:
    """A tracker on a log that outlives it."""

    def __init__(self, log: ListLog | None = None, recover: bool = False, now: int = 0, streams: tuple[int, ...] = (STREAM,)) -> None:
        self.log = ListLog() if log is None else log
        self.clock = ManualClock(now)
        self.streams = streams
        self.tracker = ReceivedBlockTracker(streams, self.clock, self.log, recover)

    def again(self, recover: bool = True) -> Driver:
        """This driver dies, and the next one starts."""
        return Driver(self.log, recover, self.clock.time_ms(), self.streams)

    def add(self, *names: str, stream: int = STREAM) -> list[ReceivedBlockInfo]:
        blocks = [ReceivedBlockInfo(stream, name, 10) for name in names]
        assert all(self.tracker.add_block(block) for block in blocks)
        return blocks

    def waiting(self) -> list[str]:
        return ids(self.tracker.get_unallocated_blocks(STREAM))

    def batch(self, time_ms: int) -> list[str] | None:
        """None where nothing has been given to it, not even nothing."""
        blocks = self.tracker.get_blocks_of_batch(Time(time_ms))
        return ids(blocks[STREAM]) if blocks else None

    def state(self) -> Any:
        return self.waiting(), {time: self.batch(time) for time in range(10_001) if self.batch(time) is not None}


def ids(blocks: tuple[ReceivedBlockInfo, ...]) -> list[str]:
    return [block.block_id for block in blocks]


def breaks(kind: str) -> Callable[[bytes], bool]:
    return lambda record: f'"kind":"{kind}"'.encode() in record


def test_there_is_a_log_only_if_one_is_given_and_without_one_all_is_in_memory() -> None:
    """BT1: one is given where there is a checkpoint directory."""
    assert Driver().tracker.is_write_ahead_log_enabled
    tracker = ReceivedBlockTracker([STREAM], ManualClock(), recover=True)
    assert not tracker.is_write_ahead_log_enabled
    assert tracker.add_block(ReceivedBlockInfo(STREAM, "a"))
    assert tracker.allocate_blocks_to_batch(Time(1))
    assert ids(tracker.get_blocks_of_batch_and_stream(Time(1), STREAM)) == ["a"]
    assert tracker.get_blocks_of_batch_and_stream(Time(1), 9) == ()


def test_a_batch_takes_all_that_waits_and_is_given_blocks_once() -> None:
    """BT2"""
    driver = Driver()
    driver.add(*"abcde")
    assert driver.waiting() == list("abcde") and driver.tracker.has_unallocated_blocks
    assert driver.tracker.allocate_blocks_to_batch(Time(1))
    assert (driver.batch(1), driver.waiting(), driver.tracker.has_unallocated_blocks) == (list("abcde"), [], False)
    assert driver.tracker.allocate_blocks_to_batch(Time(2))
    assert driver.tracker.get_blocks_of_batch(Time(2)) == {STREAM: ()}
    driver.add("f", "g")
    for again in (1, 2):
        assert not driver.tracker.allocate_blocks_to_batch(Time(again))
    assert driver.state() == (["f", "g"], {1: list("abcde"), 2: []})


def test_each_stream_has_its_own_blocks_and_an_unknown_one_is_refused() -> None:
    driver = Driver(streams=(1, 2))
    driver.add("a", "c", stream=1)
    driver.add("b", stream=2)
    assert not driver.tracker.add_block(ReceivedBlockInfo(7, "x"))
    driver.tracker.allocate_blocks_to_batch(Time(1))
    assert {stream: ids(blocks) for stream, blocks in driver.tracker.get_blocks_of_batch(Time(1)).items()} == {1: ["a", "c"], 2: ["b"]}
    assert "x" not in str(driver.log.readAll())


def test_a_hundred_thousand_blocks_fit_into_one_batch() -> None:
    """BT3: all additions and then one allocation, in one file."""
    names = [f"input-1-run-{number}" for number in range(100_000)]
    driver = Driver()
    driver.add(*names)
    assert driver.tracker.allocate_blocks_to_batch(Time(1))
    assert driver.batch(1) == names and len(driver.log.files) == 1
    records = driver.log.readAll()
    assert len(records) == 100_001 and all(b'"kind":"block-added"' in record for record in records[:-1])
    assert b'"kind":"batch-allocated"' in records[-1] and records[-1].count(b'"id":') == 100_000


def test_what_was_added_waits_after_a_recovery_and_is_in_no_block_store() -> None:
    """BT4"""
    driver = Driver()
    added = driver.add(*"abc")
    assert all(block.block_id_valid for block in driver.tracker.get_unallocated_blocks(STREAM))
    found = driver.again().tracker.get_unallocated_blocks(STREAM)
    assert list(found) == added and not any(block.block_id_valid for block in found)


def test_what_a_batch_has_does_not_wait_after_a_recovery() -> None:
    """BT4: and that batch, or an earlier one, is not given blocks again."""
    driver = Driver()
    driver.add(*"abc")
    driver.tracker.allocate_blocks_to_batch(Time(5))
    driver.add("d")
    twin = driver.state()
    found = driver.again()
    assert found.state() == twin == (["d"], {5: list("abc")})
    assert not found.tracker.allocate_blocks_to_batch(Time(5)) and found.waiting() == ["d"]
    assert found.tracker.allocate_blocks_to_batch(Time(6)) and found.again().batch(6) == ["d"]


def test_nothing_is_loaded_unless_it_is_said() -> None:
    """BT4"""
    driver = Driver()
    driver.add("a")
    assert driver.again(recover=False).state() == ([], {})


def test_an_allocation_that_cannot_be_logged_leaves_the_blocks_to_the_next_batch() -> None:
    """BT5"""
    driver = Driver()
    driver.add(*"ab")
    driver.log.broken = breaks("batch-allocated")
    assert not driver.tracker.allocate_blocks_to_batch(Time(1))
    assert driver.state() == (list("ab"), {}) == driver.again().state()
    driver.log.broken = lambda record: False
    assert driver.tracker.allocate_blocks_to_batch(Time(2))
    assert driver.state() == ([], {2: list("ab")}) == driver.again().state()


def test_an_allocation_that_was_logged_although_its_write_failed_gives_way_to_the_later_one() -> None:
    """BT5: a failed write may have happened."""
    driver = Driver()
    driver.add(*"ab")
    driver.log.broken, driver.log.writes_before_it_breaks = breaks("batch-allocated"), True
    assert not driver.tracker.allocate_blocks_to_batch(Time(1))
    driver.log.broken = lambda record: False
    driver.add("c")
    driver.tracker.allocate_blocks_to_batch(Time(2))
    assert driver.again().state() == ([], {1: [], 2: list("abc")})


def test_the_log_has_what_happened_in_order_and_forgets_old_batches() -> None:
    """BT6"""
    driver = Driver(now=1000)
    first = driver.add("a", "b")
    driver.tracker.allocate_blocks_to_batch(Time(1000))
    driver.clock.set_time(2500)
    second = driver.add("c")
    driver.tracker.allocate_blocks_to_batch(Time(2000))
    so_far = [
        *map(BlockAdditionEvent, first), BatchAllocationEvent(Time(1000), {STREAM: tuple(first)}),
        *map(BlockAdditionEvent, second), BatchAllocationEvent(Time(2000), {STREAM: tuple(second)}),
    ]  # fmt: skip
    assert driver.log.events() == so_far
    driver.clock.set_time(4500)
    driver.tracker.cleanup_old_batches(Time(2001), wait=True)
    driver.tracker.cleanup_old_batches(Time(2001), wait=True)
    assert driver.log.cleaned == [(2001, True), (2001, True)]
    assert driver.log.events() == [*so_far[3:], BatchCleanupEvent((Time(1000), Time(2000))), BatchCleanupEvent(())]
    assert driver.state() == ([], {}) == driver.again().state()


def test_after_a_clean_up_a_recovery_knows_the_later_batches_only() -> None:
    """BT6"""
    driver = Driver(now=5000)
    for time, name in ((1, "a"), (2, "b")):
        driver.add(name)
        driver.tracker.allocate_blocks_to_batch(Time(time))
    driver.tracker.cleanup_old_batches(Time(2))
    assert driver.state() == ([], {2: ["b"]}) == driver.again().state()
    assert driver.log.events()[-1] == BatchCleanupEvent((Time(1),))


@pytest.mark.parametrize("threshold", [5000, 5001])
def test_only_what_has_passed_can_be_forgotten(threshold: int) -> None:
    """BT6: strictly."""
    with pytest.raises(ValueError, match=f"{threshold} ms is not before 5000 ms"):
        Driver(now=5000).tracker.cleanup_old_batches(Time(threshold))


def test_a_clean_up_that_cannot_be_logged_forgets_nothing() -> None:
    driver = Driver(now=5000)
    driver.add("a")
    driver.tracker.allocate_blocks_to_batch(Time(1))
    driver.log.broken = breaks("batches-cleaned")
    driver.tracker.cleanup_old_batches(Time(2))
    assert driver.batch(1) == ["a"] and driver.log.cleaned == []


def test_deleted_files_that_are_there_again_change_nothing() -> None:
    """BT7: of five files of a second each, a clean-up up to 3000 leaves three and its own record at the end of the last."""
    driver = Driver(now=500)
    for second in range(5):
        driver.clock.set_time(second * 1000 + 500)
        driver.add(f"block-{second}")
        driver.tracker.allocate_blocks_to_batch(Time(second * 1000 + 500))
    files = dict(driver.log.files)
    driver.tracker.cleanup_old_batches(Time(3000), wait=True)
    assert sorted(driver.log.files) == [2, 3, 4]
    assert driver.log.events()[-1] == BatchCleanupEvent((Time(500), Time(1500), Time(2500)))
    twin = driver.state()
    assert twin == ([], {3500: ["block-3"], 4500: ["block-4"]}) == driver.again().state()
    driver.log.files.update({second: files[second] for second in (0, 1)})
    assert driver.again().state() == twin


def test_a_block_that_waits_keeps_the_file_that_names_it() -> None:
    """Its addition stands nowhere else."""
    driver = Driver(now=500)
    driver.add("old")
    driver.clock.set_time(9000)
    driver.tracker.cleanup_old_batches(Time(8000))
    assert driver.again().waiting() == ["old"]
    recovered = driver.again()
    recovered.tracker.cleanup_old_batches(Time(8000))
    assert recovered.again().waiting() == ["old"]
    recovered.tracker.allocate_blocks_to_batch(Time(9000))
    recovered.clock.set_time(9500)
    recovered.tracker.cleanup_old_batches(Time(8000))
    assert sorted(recovered.log.files) == [9] and recovered.again().state() == ([], {9000: ["old"]})


def test_a_block_that_could_not_be_logged_is_not_kept_and_may_come_again() -> None:
    driver = Driver()
    block = ReceivedBlockInfo(STREAM, "a", 1)
    for written in (False, True):
        driver.log.broken, driver.log.writes_before_it_breaks = breaks("block-added"), written
        assert not driver.tracker.add_block(block) and driver.waiting() == []
    driver.log.broken = lambda record: False
    assert driver.tracker.add_block(block)
    assert driver.waiting() == ["a"] == driver.again().waiting()


def test_a_block_that_is_told_twice_is_in_one_batch() -> None:
    """Its receiver had no answer and asks again, also after a batch has taken it, also of the next driver."""
    driver = Driver()
    driver.add("a", "a")
    driver.tracker.allocate_blocks_to_batch(Time(1))
    driver.add("a")
    assert driver.waiting() == [] and len(driver.log.readAll()) == 2
    found = driver.again()
    found.add("a")
    assert found.state() == ([], {1: ["a"]})


def test_blocks_added_while_batches_are_made_get_into_one_batch_each() -> None:
    driver = Driver()
    names = [[f"{thread}-{number}" for number in range(200)] for thread in range(4)]
    threads = [threading.Thread(target=driver.add, args=mine) for mine in names]
    for thread in threads:
        thread.start()
    time = 0
    while any(thread.is_alive() for thread in threads):
        time += 1
        driver.tracker.allocate_blocks_to_batch(Time(time))
    driver.tracker.allocate_blocks_to_batch(Time(time + 1))
    for tracker in (driver, driver.again()):
        given = [name for at in range(1, time + 2) for name in tracker.batch(at) or ()]
        assert sorted(given) == sorted(name for mine in names for name in mine)
        assert all([name for name in given if name in mine] == mine for mine in map(list, names))


def test_after_a_recovery_a_block_belongs_to_the_batch_whose_plan_names_it() -> None:
    """The driver died between the allocation to 3 and the plan: what it took waits again, before the rest."""
    driver = Driver()
    for time, name in ((1, "a"), (2, "b"), (3, "c")):
        driver.add(name)
        driver.tracker.allocate_blocks_to_batch(Time(time))
    driver.add("d")
    plans = {Time(2): ["b"]}
    for found in (driver.again(), driver.again()):
        found.tracker.keep_to_plans(plans)
        assert found.state() == (["c", "d"], {1: ["a"], 2: ["b"]})
    assert found.tracker.allocate_blocks_to_batch(Time(3))
    assert found.batch(3) == ["c", "d"]
    last = found.again()
    last.tracker.keep_to_plans({**plans, Time(3): ["c", "d"]})
    assert last.state() == ([], {1: ["a"], 2: ["b"], 3: ["c", "d"]})


def test_a_plan_is_right_also_where_the_log_knows_nothing_of_its_allocation_or_another_one() -> None:
    """A file of the log was lost, or the write of an allocation had failed and the plan was made without blocks."""
    driver = Driver()
    driver.add("a", "b", "c")
    driver.tracker.allocate_blocks_to_batch(Time(1))
    driver.add("d")
    found = driver.again()
    found.tracker.keep_to_plans({Time(1): [], Time(2): ["d", "a"]})
    assert found.state() == (["b", "c"], {1: [], 2: ["a", "d"]})
    assert not found.tracker.allocate_blocks_to_batch(Time(2)) and found.tracker.allocate_blocks_to_batch(Time(3))
    fresh = driver.again()
    fresh.tracker.keep_to_plans({})
    assert fresh.state() == (list("abcd"), {}) and fresh.tracker.allocate_blocks_to_batch(Time(1))


def test_blocks_of_a_stream_that_is_gone_are_warned_of_and_nobody_waits_for_them(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(streams=(1, 2))
    driver.add("a", "b", stream=2)
    driver.streams = (1,)
    assert not driver.again().tracker.has_unallocated_blocks
    assert "2 blocks wait for a batch that are of stream 2" in caplog.text


INFO = ReceivedBlockInfo(
    0, "input-0-1a2b3c4d-7", 100, {"offsets": [5, 9]}, FileBasedWriteAheadLogSegment("receivedData/0/log-0-60000", 128, 4096)
)
BARE = ReceivedBlockInfo(0, "input-0-1a2b3c4d-8")
GOLDEN: list[tuple[ReceivedBlockEvent, bytes]] = [
    (
        BlockAdditionEvent(INFO),
        b'{"block":{"handle":["receivedData/0/log-0-60000",128,4096],"id":"input-0-1a2b3c4d-7","metadata":{"offsets":[5,'
        b'9]},"records":100,"stream":0},"checksum":"f9ac078bb8ab85424d277f573750138f39de908d0e46995d4d4770ae66671835","k'
        b'ind":"block-added","version":1}',
    ),
    (
        BatchAllocationEvent(Time(1_700_000_000_000), {0: (INFO, BARE), 3: ()}),
        b'{"blocks":{"0":[{"handle":["receivedData/0/log-0-60000",128,4096],"id":"input-0-1a2b3c4d-7","metadata":{"offse'
        b'ts":[5,9]},"records":100,"stream":0},{"handle":null,"id":"input-0-1a2b3c4d-8","metadata":null,"records":null,"'
        b'stream":0}],"3":[]},"checksum":"eca904aeedff16bb3bc97e580db8e4b112ab58c1b0ba62368f9d4def74ac511e","kind":"batc'
        b'h-allocated","time":1700000000000,"version":1}',
    ),
    (
        BatchCleanupEvent((Time(1000), Time(2000))),
        b'{"checksum":"87cefc016978e85a025fdfc67f543610a934e4e2b5900461b09776f145b91ecb","kind":"batches-cleaned","times'
        b'":[1000,2000],"version":1}',
    ),
]


@pytest.mark.parametrize(("event", "stored"), GOLDEN, ids=["added", "allocated", "cleaned"])
def test_the_stored_form_of_events(event: ReceivedBlockEvent, stored: bytes) -> None:
    """Golden bytes: what a driver of this version has written a later one must read."""
    assert to_bytes(event) == stored
    assert from_bytes(stored, "x") == event


def test_a_damaged_record_is_an_error_that_says_which() -> None:
    driver = Driver()
    driver.add("a", "b")
    good = driver.log.files[0][1]
    for bad in (good.replace(b'"b"', b'"c"'), good[:-5], b"", b"[]", good.replace(b"block-added", b"block-adder")):
        driver.log.files[0][1] = bad
        with pytest.raises(CorruptRecordError, match="record 2 of the log of received blocks is damaged"):
            driver.again()
    driver.log.files[0][1] = good.replace(b'"version":1', b'"version":2')
    with pytest.raises(FormatVersionError):
        driver.again()
