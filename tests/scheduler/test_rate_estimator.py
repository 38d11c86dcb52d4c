"""The rate that the speed of the last batches allows: Spark's PID estimator, and an estimator of the user's."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kstream.batch_time import Duration
from kstream.conf import Settings
from kstream.errors import ConfigurationError
from kstream.scheduler.rate_estimator import PIDRateEstimator, RateEstimator, create_rate_estimator


def rates(estimator: RateEstimator, batches: list[tuple[int, int, int, int]]) -> list[float | None]:
    """The rate after each batch: end, records, processing delay and scheduling delay."""
    return [estimator.compute(*batch) for batch in batches]


@pytest.mark.parametrize(
    "arguments", [(0, 1, 0, 0, 10), (20, -1, 0, 0, 10), (20, 1, -1, 0, 10), (20, 1, 0, -1, 10), (20, 1, 0, 0, 0), (20, 1, 0, 0, -10)]
)
def test_figures_out_of_their_range_are_refused(arguments: tuple[Any, ...]) -> None:
    """Spark behaviour PI1."""
    with pytest.raises(ValueError, match="of a PIDRateEstimator is"):
        PIDRateEstimator(*arguments)


def test_the_first_batch_records_the_speed_and_the_second_gives_a_rate() -> None:
    """Spark behaviour PI2."""
    assert rates(PIDRateEstimator(20, 1, 0, 0, 10), [(0, 10, 10, 0), (10, 10, 10, 0)]) == [None, 1000]


def test_a_batch_that_shows_no_speed_changes_nothing() -> None:
    """Spark behaviour PI3."""
    estimator = PIDRateEstimator(20, 1, 0, 0, 10)
    estimator.compute(0, 10, 10, 0)
    for batch in [(0, 10, 10, 0), (1, 0, 10, 0), (1, -5, 10, 0), (1, 10, 0, 0), (1, 10, -5, 0)]:
        assert estimator.compute(*batch) is None
    assert estimator.compute(1, 10, 10, 0) == 1000


def test_the_rate_never_falls_below_the_minimum() -> None:
    """Spark behaviour PI4."""
    found = rates(PIDRateEstimator(20, 1, 1, 0, 5), [(20 * n, 1, 20, 100) for n in range(50)])
    assert found == [None, *[5.0] * 49]


@pytest.mark.parametrize("speeds", [[n + 1 for n in range(50)], [50 - n for n in range(50)]], ids=["rising", "falling"])
def test_without_a_scheduling_delay_the_rate_is_the_speed(speeds: list[int]) -> None:
    """Spark behaviour PI5."""
    found = rates(PIDRateEstimator(20, 1, 1, 0, 10), [(20 * n, speed * 20, 20, 0) for n, speed in enumerate(speeds)])
    assert found == [None, *[speed * 1000 for speed in speeds[1:]]]


def test_with_a_scheduling_delay_the_rate_is_below_the_speed() -> None:
    """Spark behaviour PI6."""
    draw = random.Random(7)
    batches = [(20 * n, draw.randint(1000, 1999), 20, draw.randint(1, 19)) for n in range(200)]
    found = rates(PIDRateEstimator(20, 1, 0.01, 0, 10), batches)
    assert found[0] is None
    for rate, (_, elements, processing, _delay) in zip(found[1:], batches[1:], strict=True):
        assert rate is not None and 10 <= rate < elements / processing * 1000


def test_all_three_corrections_count() -> None:
    """Spark behaviour PI7. Speed 1000, then 500 a second later, with a wait of half an interval."""
    found = rates(PIDRateEstimator(1000, 0.5, 0.2, 0.1, 100), [(1000, 1000, 1000, 0), (2000, 500, 1000, 500)])
    assert found == [None, 1000 - 0.5 * 500 - 0.2 * (500 * 500 / 1000) - 0.1 * 500]


# -- by the settings


class Fixed(RateEstimator):
    """An estimator of the user's."""

    def __init__(self, batchIntervalMillis: int) -> None:
        self.interval = batchIntervalMillis

    def compute(self, time: int, elements: int, processingDelay: int, schedulingDelay: int) -> float | None:
        return 42.0


class NoEstimator:
    def __init__(self, batchIntervalMillis: int) -> None: ...


def made(**settings: str) -> RateEstimator:
    values = {f"spark.streaming.backpressure.{key.replace('_', '.')}": value for key, value in settings.items()}
    return create_rate_estimator(Settings(values), Duration(1000))


def test_the_estimator_is_sparks_with_its_figures_unless_a_setting_says_otherwise() -> None:
    """Spark behaviours PI1, PI7: P 1, I 0.2, D 0 and a minimum of 100."""
    batches = [(1000, 1000, 1000, 0), (2000, 500, 1000, 500), (3000, 1, 1000, 0)]
    assert rates(made(), batches) == [None, 500 - 0.2 * 250, 100]
    assert rates(made(pid_proportional="0", pid_integral="0", pid_derived="1", pid_minRate="7"), batches[:2]) == [None, 500]


def test_an_estimator_of_the_user_gets_the_batch_interval() -> None:
    own = made(rateEstimator="tests.scheduler.test_rate_estimator.Fixed")
    assert isinstance(own, Fixed) and own.interval == 1000


@pytest.mark.parametrize(
    "settings",
    [
        {"rateEstimator": "PID"},
        {"rateEstimator": "no.such.Module"},
        {"rateEstimator": "tests.scheduler.test_rate_estimator.Missing"},
        {"rateEstimator": "tests.scheduler.test_rate_estimator.NoEstimator"},
        {"rateEstimator": "tests.scheduler.test_rate_estimator.rates"},
        {"pid_minRate": "0"},
        {"pid_proportional": "nan"},
    ],
    ids=lambda settings: "-".join(settings.values()),
)
def test_an_estimator_that_cannot_be_made_is_a_configuration_error(settings: dict[str, str]) -> None:
    """Spark behaviour PI1."""
    with pytest.raises(ConfigurationError, match=r"spark\.streaming\.backpressure"):
        made(**settings)
