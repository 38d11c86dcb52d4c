"""What listeners hear, when, and what they may not do (Spark behaviours SL1–SL7)."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from kstream.batch import BatchInfo, OutputOperationInfo, ReceiverInfo
from kstream.batch_time import Time
from kstream.listener import (
    StreamingListener,
    StreamingListenerBatchCompleted,
    StreamingListenerBatchStarted,
    StreamingListenerBatchSubmitted,
    StreamingListenerBus,
    StreamingListenerOutputOperationCompleted,
    StreamingListenerOutputOperationStarted,
    StreamingListenerReceiverError,
    StreamingListenerReceiverStarted,
    StreamingListenerReceiverStopped,
    StreamingListenerStreamingStarted,
)
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Driver, World, started


def infos(driver: Driver, name: str) -> list[Any]:
    return [event.batchInfo() for event in driver.listener.named(name)]


def four_batches() -> Driver:
    world = World()
    driver = started(world)
    for _ in range(4):
        driver.tick(1)
    driver.stop()
    return driver


def test_a_batch_is_told_when_submitted_started_and_completed_with_the_delays_known_by_then() -> None:
    """Spark behaviour SL1."""
    driver = four_batches()
    submitted, begun, completed = (infos(driver, f"onBatch{what}") for what in ("Submitted", "Started", "Completed"))
    assert len(submitted) == len(begun) == len(completed) == 4
    for info in submitted:
        assert (info.schedulingDelay(), info.processingDelay(), info.totalDelay()) == (-1, -1, -1)
        assert (info.scheduling_delay_ms, info.processing_delay_ms, info.total_delay_ms) == (None, None, None)
    for info in begun:
        assert info.schedulingDelay() >= 0
        assert (info.processing_delay_ms, info.total_delay_ms) == (None, None)
    for info in completed:
        assert info.schedulingDelay() >= 0 and info.processingDelay() >= 0 and info.totalDelay() >= 0


def test_the_number_of_records_is_known_from_the_beginning() -> None:
    """Spark behaviour SL1."""
    driver = four_batches()
    for what in ("Submitted", "Started", "Completed"):
        for info in infos(driver, f"onBatch{what}"):
            assert info.numRecords() == 1
            assert {i: (x.inputStreamId(), x.numRecords) for i, x in info.streamIdToInputInfo().items()} == {0: (0, 1)}


def test_times_of_batches_only_rise() -> None:
    """Spark behaviour SL1."""
    driver = four_batches()
    completed = infos(driver, "onBatchCompleted")
    for read in ("submissionTime", "processingStartTime", "processingEndTime"):
        seen = [getattr(info, read)() for info in completed]
        assert seen == sorted(seen)
    assert [info.batchTime().milliseconds() for info in completed] == [START + n * INTERVAL for n in range(1, 5)]


def test_the_start_is_told_once_and_first() -> None:
    """Spark behaviour SL2."""
    driver = four_batches()
    assert driver.listener.events[0][0] == "onStreamingStarted"
    assert [event.time for event in driver.listener.named("onStreamingStarted")] == [START]


def test_a_listener_can_hear_all_nine_events_by_sparks_names() -> None:
    """Spark behaviour SL3."""
    told: list[str] = []

    class Ear(StreamingListener):
        def __getattribute__(self, name: str) -> Any:
            return (lambda _event: told.append(name)) if name.startswith("on") else super().__getattribute__(name)

    receiver = ReceiverInfo(0, "socket", True, "host", "1", "lost it", "OSError", 5)
    batch = BatchInfo(Time(1), {}, 1, None, None, {})
    output = OutputOperationInfo(Time(1), 0, "foreachRDD", "", None, None, None)
    bus = StreamingListenerBus()
    bus.add(Ear())
    bus.start()
    bus.post(StreamingListenerStreamingStarted(1))
    for of_receiver in (
        StreamingListenerReceiverStarted,
        StreamingListenerReceiverError,
        StreamingListenerReceiverStopped,
    ):
        bus.post(of_receiver(receiver))
    for of_batch in (StreamingListenerBatchSubmitted, StreamingListenerBatchStarted, StreamingListenerBatchCompleted):
        bus.post(of_batch(batch))
    for of_output in (StreamingListenerOutputOperationStarted, StreamingListenerOutputOperationCompleted):
        bus.post(of_output(output))
    bus.stop()
    assert told == [
        "onStreamingStarted", "onReceiverStarted", "onReceiverError", "onReceiverStopped", "onBatchSubmitted", "onBatchStarted",
        "onBatchCompleted", "onOutputOperationStarted", "onOutputOperationCompleted",
    ]  # fmt: skip
    assert (receiver.streamId(), receiver.name(), receiver.active()) == (0, "socket", True)
    assert (receiver.location(), receiver.executorId()) == ("host", "1")
    assert (receiver.lastErrorMessage(), receiver.lastError(), receiver.lastErrorTime()) == ("lost it", "OSError", 5)


def three_outputs(_host: FakeHost, driver: Driver) -> None:
    for _ in range(3):
        driver.output(driver.input)


def test_output_operations_are_told_with_their_numbers_in_order() -> None:
    """Spark behaviour SL4."""
    driver = started(World(), build=three_outputs)
    time = driver.tick(1)
    for what in ("Started", "Completed"):
        told = [e.outputOperationInfo() for e in driver.listener.named(f"onOutputOperation{what}")]
        assert [(info.id(), info.batchTime().milliseconds()) for info in told] == [(0, time), (1, time), (2, time)]
        assert all(info.name().startswith("foreachRDD at ") for info in told)
    (info,) = infos(driver, "onBatchCompleted")
    assert sorted(info.outputOperationInfos()) == [0, 1, 2]
    (info,) = infos(driver, "onBatchStarted")
    assert [output.startTime() for output in info.outputOperationInfos().values()] == [-1, -1, -1]


def test_events_of_one_batch_come_in_the_order_of_its_life() -> None:
    driver = started(World())
    driver.tick(1)
    assert [name for name, _ in driver.listener.events] == [
        "onStreamingStarted",
        "onBatchSubmitted",
        "onBatchStarted",
        "onOutputOperationStarted",
        "onOutputOperationCompleted",
        "onBatchCompleted",
    ]


@pytest.mark.parametrize("failing", [set(), {0}, {1}, {0, 1}], ids=str)
def test_failures_are_told_by_output(failing: set[int]) -> None:
    """Spark behaviour SL6."""

    def build(_host: FakeHost, driver: Driver) -> None:
        for index in (0, 1):
            driver.input.foreachRDD(lambda rdd, index=index: boom(index) if index in failing else None)

    def boom(index: int) -> None:
        raise ValueError(f"output {index} failed")

    driver = started(World(), build=build)
    driver.tick(1)
    (info,) = infos(driver, "onBatchCompleted")
    reasons = {i: op.failureReason() for i, op in info.outputOperationInfos().items() if op.failureReason() is not None}
    assert set(reasons) == failing
    assert all("Traceback" in reason and f"ValueError: output {index} failed" in reason for index, reason in reasons.items())
    driver.settle()
    assert sorted(str(e) for _, e in driver.errors) == [f"output {index} failed" for index in sorted(failing)]


def test_a_batch_that_failed_is_told_as_completed_all_the_same() -> None:
    driver = Driver(World())
    driver.before_job = lambda _time: (_ for _ in ()).throw(ValueError("boom"))
    driver.start()
    time = driver.tick(1)
    assert driver.listener.completed() == [time]


def test_listeners_hear_what_an_input_posts() -> None:
    driver = started(World())
    info = ReceiverInfo(0, "an input's", True, "here", "driver")
    driver.input.services.post_event(StreamingListenerReceiverError(info))
    driver.stop()
    assert [event.receiverInfo() for event in driver.listener.named("onReceiverError")] == [info]


def test_nothing_is_told_after_stop() -> None:
    """Spark behaviour SL7."""
    driver = four_batches()
    told = len(driver.listener.events)
    driver.bus.post(StreamingListenerStreamingStarted(1))
    assert len(driver.listener.events) == told


def test_what_was_posted_before_stop_is_told() -> None:
    """Spark behaviour SL7."""
    bus, heard = StreamingListenerBus(), Heard()
    bus.add(heard)
    bus.start()
    for n in range(100):
        bus.post(StreamingListenerStreamingStarted(n))
    bus.stop()
    assert heard.times == list(range(100))


class Heard(StreamingListener):
    def __init__(self) -> None:
        self.times: list[int] = []

    def onStreamingStarted(self, streamingStarted: StreamingListenerStreamingStarted) -> None:
        self.times.append(streamingStarted.time)


class Broken(StreamingListener):
    def onStreamingStarted(self, streamingStarted: StreamingListenerStreamingStarted) -> None:
        raise ValueError("I am broken")


def test_a_listener_that_raises_is_logged_and_the_next_one_told(caplog: pytest.LogCaptureFixture) -> None:
    bus, heard = StreamingListenerBus(), Heard()
    bus.add(Broken())
    bus.add(heard)
    bus.start()
    with caplog.at_level(logging.ERROR):
        bus.post(StreamingListenerStreamingStarted(7))
        bus.stop()
    assert heard.times == [7]
    assert "I am broken" in caplog.text


def test_a_listener_that_was_taken_away_hears_no_more() -> None:
    bus, heard, other = StreamingListenerBus(), Heard(), Heard()
    bus.add(heard)
    bus.add(other)
    bus.remove(heard)
    bus.start()
    bus.post(StreamingListenerStreamingStarted(7))
    bus.stop()
    assert (heard.times, other.times) == ([], [7])


def test_a_slow_listener_does_not_hold_up_the_batches() -> None:
    world = World()
    gate = threading.Event()

    class Slow(StreamingListener):
        def onBatchSubmitted(self, batchSubmitted: StreamingListenerBatchSubmitted) -> None:
            gate.wait(20)

    driver = Driver(world)
    driver.bus.add(Slow())
    driver.start()
    for n in range(1, 4):
        driver.tick_only(1)
        world.wait(lambda n=n: len([a for a in world.attempts if a.finished]) == n)
    assert driver.listener.completed() == []
    gate.set()
    world.wait(lambda: len(driver.listener.completed()) == 3)


def test_a_listener_needs_to_override_only_what_it_wants_to_hear() -> None:
    bus = StreamingListenerBus()
    bus.add(StreamingListener())
    heard = Heard()
    bus.add(heard)
    bus.start()
    bus.post(StreamingListenerStreamingStarted(1))
    bus.stop()
    assert heard.times == [1]
