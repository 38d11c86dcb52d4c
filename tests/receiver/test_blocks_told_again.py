"""A receiver that had no answer tells of a block again; the driver's log that failed may have it all the same."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import pytest

from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Time
from kstream.loop.threads import ThreadRuntime
from kstream.receiver.received_block_tracker import REMEMBERED_MS, ReceivedBlockInfo
from tests.receiver.tracked_blocks import STREAM, Driver, breaks


def with_a_block_worked_off() -> Driver:
    """`a` was in a batch, and is cleaned."""
    driver = Driver(now=1000)
    driver.add("a")
    driver.take("a")
    driver.tracker.release(Time(1000), ["a"])
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(1000)))
    return driver


def test_a_block_that_is_told_again_after_it_was_worked_off_and_cleaned_is_in_no_second_batch() -> None:
    """Its receiver was held up for long, and its first answer is lost."""
    driver = with_a_block_worked_off()
    assert driver.tracker.all_blocks() == []
    driver.clock.advance(REMEMBERED_MS - 1)
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(1000)))
    driver.add("a")
    assert driver.waiting() == [] and driver.again().waiting() == []


def test_blocks_that_are_gone_are_not_remembered_for_ever() -> None:
    driver = with_a_block_worked_off()
    driver.clock.advance(REMEMBERED_MS)
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(1000)))
    assert len(driver.tracker._records) == 0


def test_a_block_that_was_refused_though_the_log_has_it_is_in_no_batch_of_the_next_driver() -> None:
    driver = Driver(now=1000)
    driver.log.broken, driver.log.writes_before_it_breaks = breaks("block-added"), True
    block = ReceivedBlockInfo(STREAM, "a", 1)
    assert not driver.tracker.add_block(block) and driver.log.events() != []
    driver.log.broken = lambda record: False
    assert driver.tracker.all_blocks() == [block]  # what its receiver's log has of it stays until this log says that it is gone
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(1)))
    assert driver.tracker.all_blocks() == [] and driver.again().waiting() == []
    assert not driver.tracker.add_block(block) and driver.again().waiting() == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_refused_block_that_is_told_again_while_the_log_lets_go_of_it_is_refused(fails: bool) -> None:
    """Else its addition would be logged before that it is gone, and neither this driver nor the next had what was acknowledged."""
    driver = Driver(now=1000)
    driver.log.broken = breaks("block-added")
    block = ReceivedBlockInfo(STREAM, "a", 1)
    assert not driver.tracker.add_block(block)
    driver.log.broken = lambda record: False
    write, answers = driver.log.write, list[bool]()

    def meanwhile(record: bytes, time_ms: int) -> object:
        driver.log.write = write  # pyright: ignore[reportAttributeAccessIssue]
        answers.append(driver.tracker.add_block(block))
        if fails:
            raise OSError("full")
        return write(record, time_ms)

    driver.log.write = meanwhile  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(OSError, match="full") if fails else nullcontext():
        driver.tracker.cleanup_old_batches(RequiredBatches(Time(1)))
    assert answers == [False] and driver.waiting() == []
    assert driver.tracker.add_block(block) is fails, "what the log has not let go of may be tried again"
    assert driver.waiting() == driver.again().waiting() == (["a"] if fails else [])


class Waits(ThreadRuntime):
    """`begun` is set when somebody waits for an event."""

    def __init__(self) -> None:
        self.begun = threading.Event()

    def event(self) -> threading.Event:
        event, begun = threading.Event(), self.begun
        wait = event.wait
        event.wait = lambda timeout=None: (begun.set(), wait(timeout))[1]
        return event


@pytest.mark.parametrize("stopped", [True, False])
def test_once_no_more_is_taken_what_is_known_or_being_added_is_answered_for(stopped: bool) -> None:
    """At a stop, or of a receiver whose next run has begun: who is refused discards what he has stored, and these are in batches."""
    waits = Waits()
    driver = Driver(runtime=waits)
    driver.add("a")
    a, b, c = (ReceivedBlockInfo(STREAM, name, 1) for name in "abc")
    write, answers = driver.log.write, list[bool]()
    inside, go_on = threading.Event(), threading.Event()

    def slow(record: bytes, time_ms: int) -> object:
        inside.set()
        go_on.wait(60)
        return write(record, time_ms)

    driver.log.write = slow  # pyright: ignore[reportAttributeAccessIssue]

    def add(accept_new: bool) -> None:
        answers.append(driver.tracker.add_block(b, accept_new=accept_new))

    calls = [threading.Thread(target=add, args=(accept_new,)) for accept_new in (True, stopped)]
    stopping = threading.Thread(target=driver.tracker.stop_accepting)
    calls[0].start()
    assert inside.wait(60)
    if stopped:
        stopping.start()
        assert waits.begun.wait(60), "it waits for the block that is being added"
    assert driver.tracker.add_block(a, accept_new=stopped) and not driver.tracker.add_block(c, accept_new=stopped)
    calls[1].start()
    go_on.set()
    for call in (*calls, stopping) if stopped else calls:
        call.join(60)
    assert answers == [True, True] and driver.waiting() == ["a", "b"] and not stopping.is_alive()


def test_of_two_calls_for_one_block_the_second_waits_and_says_what_the_first_says() -> None:
    driver = Driver()
    inside, go_on, answers = threading.Event(), threading.Event(), list[bool]()
    write = driver.log.write

    def slow(record: bytes, time_ms: int) -> object:
        inside.set()
        go_on.wait(60)
        return write(record, time_ms)

    driver.log.write = slow  # pyright: ignore[reportAttributeAccessIssue]
    block = ReceivedBlockInfo(STREAM, "a", 1)
    calls = [threading.Thread(target=lambda: answers.append(driver.tracker.add_block(block))) for _ in range(2)]
    calls[0].start()
    assert inside.wait(60)
    calls[1].start()
    assert driver.tracker.all_blocks() == [block] and driver.waiting() == []
    go_on.set()
    for call in calls:
        call.join(60)
    assert answers == [True, True] and driver.waiting() == ["a"] and len(driver.log.events()) == 1


def test_metadata_that_are_no_json_are_refused_and_hold_up_no_clean_up() -> None:
    driver = Driver(now=1000)
    with pytest.raises(ValueError, match="JSON"):
        driver.tracker.add_block(ReceivedBlockInfo(STREAM, "a", 1, {"mean": float("nan")}))
    driver.clock.advance(5000)
    driver.tracker.cleanup_old_batches(RequiredBatches(Time(1)))
    assert driver.log.cleaned[-1][0] == 6000 and driver.tracker.all_blocks() == []
