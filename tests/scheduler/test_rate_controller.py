"""The RateController of an input: after which batches it publishes a rate, and which."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from kstream.batch import BatchInfo, OutputOperationInfo, StreamInputInfo
from kstream.batch_time import Time
from kstream.errors import ConfigurationError
from kstream.scheduler.rate_controller import RateController
from kstream.scheduler.rate_estimator import RateEstimator
from tests.harness import Driver, World


class Scripted(RateEstimator):
    """Returns these rates, one after the other, and keeps what it was asked."""

    def __init__(self, *answers: float | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, int, int, int]] = []

    def compute(self, time: int, elements: int, processingDelay: int, schedulingDelay: int) -> float | None:
        self.asked.append((time, elements, processingDelay, schedulingDelay))
        return self.answers.pop(0)


class Input:
    """An input that keeps what it is told."""

    def __init__(self, number: int = 0) -> None:
        self.id = number
        self.rates: list[int] = []
        self.batches: list[int] = []

    def update_rate(self, recordsPerSecond: int) -> None:
        self.rates.append(recordsPerSecond)

    def batch_completed(self, info: BatchInfo) -> None:
        self.batches.append(info.numRecords())


def controller(stream: Any, estimator: RateEstimator | None) -> RateController:
    return RateController(stream, estimator)


def ended(failure: str | None = None, stream: int = 0, begun: int | None = 1010, end: int | None = 1500, tries: int = 1) -> BatchInfo:
    output = OutputOperationInfo(Time(1000), 0, "foreachRDD", "", begun, end, failure)
    return BatchInfo(Time(1000), {stream: StreamInputInfo(stream, 70)}, 1001, begun, end, {0: output}, tries)


def test_the_rate_after_each_batch_is_published_in_whole_records() -> None:
    """Spark behaviour RR1."""
    stream, estimator = Input(), Scripted(None, 100.9, 200, 0.3)
    made = controller(stream, estimator)
    assert made.latest_rate == -1
    for _ in range(4):
        made.batch_completed(ended())
    assert stream.rates == [100, 200, 1] and made.latest_rate == 1
    assert estimator.asked[0] == (1500, 70, 490, 9) and stream.batches == [70] * 4


@pytest.mark.parametrize(
    "event",
    [ended(failure="ValueError"), ended(stream=7), ended(begun=None, end=None), ended(end=None), ended(tries=2)],
    ids=["failed", "another input", "no job", "not ended", "succeeded in its second try"],
)
def test_a_batch_that_shows_no_speed_of_the_stream_is_not_asked_about(event: BatchInfo) -> None:
    estimator = Scripted(1)
    controller(Input(), estimator).batch_completed(event)
    assert estimator.asked == []


def test_an_input_hears_of_its_batches_without_back_pressure_also_of_failed_and_retried_ones() -> None:
    stream = Input()
    for event in (ended(), ended(failure="ValueError"), ended(tries=2)):
        controller(stream, None).batch_completed(event)
    assert stream.batches == [70] * 3 and stream.rates == []


def test_a_failed_batch_and_one_of_a_second_try_give_no_rate() -> None:
    stream, estimator = Input(), Scripted()
    for event in (ended(failure="ValueError"), ended(tries=2)):
        controller(stream, estimator).batch_completed(event)
    assert estimator.asked == [] and stream.rates == []


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0])
def test_a_rate_that_is_no_rate_is_a_warning_and_not_published(rate: float, caplog: pytest.LogCaptureFixture) -> None:
    stream = Input(3)
    with caplog.at_level(logging.WARNING, "kstream"):
        controller(stream, Scripted(rate)).batch_completed(ended(stream=3))
    assert "stream 3" in caplog.text and "keeps its rate" in caplog.text and stream.rates == []


# -- in a running driver

ON = {"spark.streaming.backpressure.enabled": "true", "spark.streaming.backpressure.rateEstimator": f"{__name__}.Counting"}


class Counting(RateEstimator):
    """100 after the first batch, 200 after the second, and so on."""

    def __init__(self, batchIntervalMillis: int) -> None:
        self.batches = 0

    def compute(self, time: int, elements: int, processingDelay: int, schedulingDelay: int) -> float | None:
        self.batches += 1
        return self.batches * 100.0


def adapting(driver: Driver) -> list[int]:
    """The rates that the input of a driver is told from now on."""
    told: list[int] = []
    driver.input.adapts_rate = True  # pyright: ignore[reportAttributeAccessIssue]
    driver.input.update_rate = told.append  # pyright: ignore[reportAttributeAccessIssue]
    return told


def test_an_input_learns_its_rate_after_each_batch_also_after_a_restart() -> None:
    """Spark behaviours RR1, CP7."""
    world = World()
    for _ in range(2):
        driver = Driver(world, ON)
        told = adapting(driver)
        driver.start()
        for _ in range(3):
            driver.tick(5)
        driver.stop()
        assert told == [100, 200, 300]


def test_without_back_pressure_no_input_learns_a_rate() -> None:
    driver = Driver(World())
    told = adapting(driver)
    driver.start()
    driver.tick(5)
    driver.stop()
    assert told == []


def test_an_estimator_that_is_not_there_is_refused_before_an_epoch_is_taken() -> None:
    world = World()
    driver = Driver(world, {**ON, "spark.streaming.backpressure.rateEstimator": "nothing.Here"})
    adapting(driver)
    with pytest.raises(ConfigurationError, match="rateEstimator"):
        driver.start()
    assert world.store.list("") == []
