"""Each received block gets into one batch, whoever dies (Spark behaviours BT1–BT7; the allocation is the plan, see the streams' tests)."""

from __future__ import annotations

import threading

import pytest

from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Time
from kstream.errors import CorruptRecordError, FormatVersionError
from kstream.receiver.received_block_tracker import (
    BatchCleanupEvent,
    BlockAdditionEvent,
    ReceivedBlockEvent,
    ReceivedBlockInfo,
    ReceivedBlockTracker,
    from_bytes,
    to_bytes,
)
from kstream.testing import ManualClock
from kstream.wal import FileBasedWriteAheadLogSegment
from tests.receiver.tracked_blocks import STREAM, Driver, breaks, ids


def test_there_is_a_log_only_if_one_is_given_and_without_one_all_is_in_memory() -> None:
    """BT1: one is given where there is a checkpoint directory."""
    with_log = Driver()
    with_log.add("a")
    assert len(with_log.log.events()) == 1
    tracker = ReceivedBlockTracker([STREAM], ManualClock())
    tracker.recover([])
    assert tracker.add_block(ReceivedBlockInfo(STREAM, "a"))
    tracker.allocate_blocks_to_batch(STREAM, ["a"])
    assert ids(tracker.release(Time(1), ["a"])) == ["a"] and tracker.release(Time(1), ["a"]) == []
    tracker.cleanup_old_batches(RequiredBatches(Time(1)))
    assert tracker.all_blocks() == []


def test_what_a_plan_names_waits_no_more_and_naming_it_again_changes_nothing() -> None:
    """Spark behaviour BT2."""
    driver = Driver()
    driver.add(*"abcde")
    assert driver.waiting() == list("abcde") and driver.tracker.has_unallocated_blocks
    driver.take(*"abcde")
    assert driver.waiting() == [] and not driver.tracker.has_unallocated_blocks
    driver.take()
    driver.add("f", "g")
    driver.take(*"abcde")
    assert driver.waiting() == ["f", "g"] and len(driver.tracker.all_blocks()) == 7


def test_each_stream_has_its_own_blocks_and_an_unknown_one_is_refused() -> None:
    driver = Driver(streams=(1, 2))
    driver.add("a", "c", stream=1)
    driver.add("b", stream=2)
    assert not driver.tracker.add_block(ReceivedBlockInfo(7, "x"))
    assert (driver.waiting(1), driver.waiting(2)) == (["a", "c"], ["b"])
    assert "x" not in str(driver.log.readAll())


def test_a_hundred_thousand_blocks_fit_into_one_batch() -> None:
    """BT3: all additions in one file; the allocation is in the plan, and what is forgotten is one record."""
    names = [f"input-1-run-{number}" for number in range(100_000)]
    driver = Driver(now=1)
    driver.add(*names)
    driver.take(*names)
    assert ids(driver.tracker.release(Time(1), names)) == names
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(1)))
    assert len(driver.log.files) == 1
    records = driver.log.readAll()
    assert len(records) == 100_001 and all(b'"kind":"block-added"' in record for record in records[:-1])
    assert b'"kind":"blocks-cleaned"' in records[-1] and driver.again().waiting() == []


def test_what_was_added_waits_after_a_recovery_and_is_in_no_block_store() -> None:
    """Spark behaviour BT4."""
    driver = Driver()
    added = driver.add(*"abc")
    assert all(block.block_id_valid for block in driver.tracker.get_unallocated_blocks(STREAM))
    found = driver.again().tracker.get_unallocated_blocks(STREAM)
    assert list(found) == added and not any(block.block_id_valid for block in found)


def test_what_a_stored_plan_names_does_not_wait_after_a_recovery() -> None:
    """BT4: the plan is the allocation, whatever its driver came to know of it."""
    driver = Driver()
    driver.add(*"abcd")
    found = driver.again(planned=["a", "c"])
    assert found.waiting() == ["b", "d"] and found.tracker.get("a") is not None
    found.take("b", "d")
    assert found.again(planned=list("abcd")).waiting() == []


def test_nothing_is_loaded_unless_it_is_said() -> None:
    """Spark behaviour BT4."""
    driver = Driver()
    driver.add("a")
    assert Driver(driver.log).waiting() == []


def test_what_no_plan_names_waits_again() -> None:
    """BT5: the plan could not be stored, or its driver died before."""
    driver = Driver()
    driver.add(*"ab")
    driver.take(*"ab")
    assert driver.again().waiting() == ["a", "b"]


def test_the_log_has_what_happened_in_order_and_forgets_old_blocks() -> None:
    """Spark behaviour BT6."""
    driver = Driver(now=1000)
    first = driver.add("a", "b")
    driver.take("a", "b")
    driver.clock.set_time(2500)
    second = driver.add("c")
    so_far = [*map(BlockAdditionEvent, first), *map(BlockAdditionEvent, second)]
    assert driver.log.events() == so_far
    driver.clock.set_time(4500)
    driver.tracker.release(Time(2000), ["a", "b", "c", "unheard"])
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(2000)), wait=True)
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(2000)), wait=True)
    assert driver.log.cleaned == [(2500, True), (2500, True)], "c waits"
    assert driver.log.events() == [*so_far[2:], BatchCleanupEvent(("a", "b"))]
    assert driver.waiting() == ["c"] == driver.again().waiting()


def test_after_a_clean_up_no_plan_is_needed_to_know_that_a_block_was_taken() -> None:
    """BT6: its addition lies in the log still, because of one that waits."""
    driver = Driver()
    driver.add("a", "b")
    driver.take("a")
    driver.tracker.release(Time(1), ["a"])
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(1)))
    assert driver.again().waiting() == ["b"]


def test_what_this_driver_has_forgotten_is_known_until_its_plan_may_go() -> None:
    """A restart may need it: to make a state again, or a batch that failed."""
    driver = Driver()
    blocks = driver.add("a", "b")
    driver.take("a", "b")
    driver.tracker.release(Time(1), ["a"])
    driver.tracker.release(Time(2), ["b"])
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(0)))
    assert driver.tracker.all_blocks() == blocks and len(driver.log.readAll()) == 2
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(1)))
    assert driver.tracker.all_blocks() == blocks[1:] and driver.again().waiting() == ["b"]


def test_a_clean_up_that_cannot_be_logged_raises_and_forgets_nothing() -> None:
    """So the plans that name those blocks stay."""
    driver = Driver(now=5000)
    driver.add("a")
    driver.take("a")
    driver.tracker.release(Time(1), ["a"])
    driver.log.broken = breaks("blocks-cleaned")
    with pytest.raises(OSError, match="disk full"):
        driver.tracker.cleanup_old_batches(RequiredBatches(Time(1)))
    assert driver.log.cleaned == [] and len(driver.tracker.all_blocks()) == 1
    driver.log.broken = lambda record: False
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(1)))
    assert driver.tracker.all_blocks() == [] and driver.again().waiting() == []


def test_deleted_files_that_are_there_again_change_nothing() -> None:
    """BT7: of five files of a second each, a clean-up leaves those with what is needed, and its own record in the last."""
    driver = Driver(now=500)
    for second in range(5):
        driver.clock.set_time(second * 1000 + 500)
        driver.add(f"block-{second}")
    files = dict(driver.log.files)
    gone = [f"block-{second}" for second in range(3)]
    driver.take(*gone)
    driver.tracker.release(Time(1), gone)
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(1)), wait=True)
    assert sorted(driver.log.files) == [3, 4] and driver.log.events()[-1] == BatchCleanupEvent(tuple(gone))
    driver.log.files.update({second: files[second] for second in range(3)})
    assert driver.again().waiting() == ["block-3", "block-4"]


def test_a_block_that_waits_or_that_a_plan_names_keeps_the_file_that_names_it() -> None:
    """A plan can be damaged, and let go."""
    driver = Driver(now=500)
    driver.add("old", "taken")
    driver.take("taken")
    driver.clock.set_time(9000)
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(1)))
    recovered = driver.again(planned=["taken"])
    assert recovered.waiting() == ["old"]
    recovered.tracker.cleanup_old_batches(RequiredBatches(Time(1)))
    assert recovered.again().waiting() == ["old", "taken"]
    recovered.take("old")
    recovered.tracker.release(Time(1), ["old", "taken"])
    recovered.tracker.cleanup_old_batches(RequiredBatches(Time(1)))
    assert sorted(recovered.log.files) == [9] and recovered.again().waiting() == []


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
    driver.take("a")
    driver.add("a")
    assert driver.waiting() == [] and len(driver.log.readAll()) == 1
    found = driver.again(planned=["a"])
    found.add("a")
    assert found.waiting() == []


def test_blocks_added_while_batches_are_made_get_into_one_batch_each() -> None:
    driver = Driver()
    names = [[f"{thread}-{number}" for number in range(200)] for thread in range(4)]
    threads = [threading.Thread(target=driver.add, args=mine) for mine in names]
    batches: list[list[str]] = []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or driver.waiting():
        batches.append(driver.waiting())
        driver.take(*batches[-1])
    given = [name for batch in batches for name in batch]
    assert sorted(given) == sorted(name for mine in names for name in mine)
    assert all([name for name in given if name in mine] == mine for mine in map(list, names))
    assert driver.again(planned=given).waiting() == []


def test_blocks_of_an_earlier_graph_wait_for_the_stream_that_was_theirs(caplog: pytest.LogCaptureFixture) -> None:
    """Numbers of streams belong to the graph of one driver, and each addition says whose."""
    first = Driver(streams=(1, 2))
    first.add("a", stream=1)
    first.add("b", stream=2)
    second = first.again(streams=(1,), streams_now=lambda epoch, stream: {(0, 2): 1}.get((epoch, stream)))
    assert second.waiting() == ["b"] and "1 blocks belong to the former stream 1" in caplog.text
    second.add("c")
    third = second.again(streams=(1, 2), streams_now=lambda epoch, stream: {(0, 2): 2, (1, 1): 2}.get((epoch, stream)))
    assert (third.waiting(1), third.waiting(2)) == ([], ["b", "c"])


INFO = ReceivedBlockInfo(
    0, "input-0-1a2b3c4d-7", 100, {"offsets": [5, 9]}, FileBasedWriteAheadLogSegment("receivedData/0/log-0-60000", 128, 4096)
)
BARE = ReceivedBlockInfo(0, "input-0-1a2b3c4d-8")
GOLDEN: list[tuple[ReceivedBlockEvent, bytes]] = [
    (
        BlockAdditionEvent(INFO, 3),
        b'{"block":{"handle":["receivedData/0/log-0-60000",128,4096],"id":"input-0-1a2b3c4d-7","metadata":{"offsets":[5,9]},"records":100,'
        b'"stream":0},"checksum":"84fc223c5571bed7f7c581845d5ba533d55ccecd7d7e4d0cae8ba34b1629a58e","epoch":3,"kind":"block-added","version":1}',
    ),
    (
        BlockAdditionEvent(BARE, 3),
        b'{"block":{"handle":null,"id":"input-0-1a2b3c4d-8","metadata":null,"records":null,"stream":0},'
        b'"checksum":"1e52ceca47def1397b89c16edd24018e90d1907cf82b399b14e46deaf2e203ca","epoch":3,"kind":"block-added","version":1}',
    ),
    (
        BatchCleanupEvent(("a", "b")),
        b'{"blocks":["a","b"],"checksum":"83fee193de5af96a13868c3d89b5b0e1c38a8fcd31d3075042fe4e00b6865856","kind":"blocks-cleaned","version":1}',
    ),
]


@pytest.mark.parametrize(("event", "stored"), GOLDEN, ids=["added", "bare", "cleaned"])
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
