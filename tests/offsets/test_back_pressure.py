"""Back-pressure on a simulated job: Spark's controller and the admission of a direct stream, together.

A batch of n records takes overhead + n / speed, with lognormal noise of 10 %. Batches run one after the other.
"""

from __future__ import annotations

import random
import statistics
from collections import deque
from dataclasses import dataclass

import pytest

from kstream.batch_time import Duration, Time
from kstream.offsets.admission_control import AdmissionControl, AdmissionSettings
from kstream.offsets.offset_range import OffsetRange
from kstream.scheduler.rate_estimator import PIDRateEstimator

INTERVAL = 1000
OVERHEAD_MS = 100
MIN_RATE = 100.0
A = ("t", 0)


@dataclass(frozen=True)
class Conditions:
    """From a batch on: the speed of the job and the load, in records a second."""

    speed: float
    load: float

    @property
    def capacity(self) -> float:
        """The most records a second that the job can take."""
        return self.speed * (INTERVAL - OVERHEAD_MS) / INTERVAL


class Job:
    """A job under back-pressure, batch after batch.

    Attributes:
        rates: the rate at the planning of each batch; 0 before the first measurement.
        delays: the total delay of each batch, in intervals.
        taken: the records of each batch.
    """

    def __init__(self, seed: int, overhead_ms: int = OVERHEAD_MS, empty_costs: bool = False) -> None:
        self.overhead_ms = overhead_ms
        self.empty_costs = empty_costs
        self.random = random.Random(seed)
        self.estimator = PIDRateEstimator(INTERVAL, 1.0, 0.2, 0.0, MIN_RATE)
        self.control = AdmissionControl(AdmissionSettings(backpressure=True, initial_rate=200), Duration(INTERVAL))
        self.next, self.end = 0, 0.0
        self.free_at = 0
        self.open: deque[tuple[int, Time, int, int, int]] = deque()
        self.rates: list[int] = []
        self.delays: list[float] = []
        self.taken: list[int] = []

    def run(self, batches: int, conditions: Conditions) -> Job:
        for _ in range(batches):
            self.batch(Time((len(self.rates) + 1) * INTERVAL), conditions)
        return self

    def batch(self, time: Time, conditions: Conditions) -> None:
        while self.open and self.open[0][0] <= time.milliseconds:
            ended, _, records, processing, scheduling = self.open.popleft()
            rate = self.estimator.compute(ended, records, processing, scheduling)
            if rate is not None:
                self.control.update_rate(int(rate))
        self.end += conditions.load * INTERVAL / 1000
        ends = {A: int(self.end)}
        until = self.control.admit(time, {A: self.next}, ends, [entry[1] for entry in self.open])[A]
        self.control.planned(time, [OffsetRange(*A, self.next, until)], ends)
        records, self.next = until - self.next, until
        noise = self.random.lognormvariate(0, 0.1)
        cost = self.overhead_ms + records / conditions.speed * 1000
        processing = max(1, int(cost * noise)) if records or self.empty_costs else 1
        start = max(time.milliseconds, self.free_at)
        self.free_at = start + processing
        self.open.append((self.free_at, time, records, processing, start - time.milliseconds))
        self.rates.append(int(self.control.limits_of(time).get("backpressureRate", 0)))
        self.delays.append((self.free_at - time.milliseconds) / INTERVAL)
        self.taken.append(records)


FAST, SLOW = Conditions(3000, 1e6), Conditions(1000, 1e6)
QUIET, BUSY = Conditions(1000, 600), Conditions(1000, 1800)


@pytest.mark.parametrize(
    ("before", "after"), [(FAST, SLOW), (SLOW, FAST), (QUIET, BUSY), (BUSY, QUIET)], ids=["slower", "faster", "busier", "quieter"]
)
def test_ten_batches_after_a_step_the_rate_is_near_the_capacity(before: Conditions, after: Conditions) -> None:
    """The mean rate of the batches 11 to 20 after a step by a factor of 3, for each seed. A single rate has the noise of its batch."""
    found = [statistics.mean(Job(seed).run(20, before).run(20, after).rates[-10:]) / after.capacity for seed in range(1000)]
    assert min(found) > 0.8 and max(found) < 1.2, (min(found), max(found))


def test_an_overloaded_job_is_used_and_never_late_and_its_rate_is_steady() -> None:
    jobs = [Job(seed).run(180, SLOW) for seed in range(1000)]
    steady = [job.rates[30:] for job in jobs]
    deviations = [statistics.pstdev(rates) / statistics.mean(rates) for rates in steady]
    assert statistics.mean(deviations) < 0.13 and max(deviations) < 0.15, (statistics.mean(deviations), max(deviations))
    assert max(max(job.delays[30:]) for job in jobs) < 3
    assert min(statistics.mean(job.taken[30:]) for job in jobs) > 0.9 * SLOW.capacity


def test_the_rate_is_never_below_the_minimum() -> None:
    crawling = Conditions(20, 1e6)
    rates = [rate for seed in range(100) for rate in Job(seed).run(10, SLOW).run(60, crawling).rates if rate]
    assert min(rates) == MIN_RATE


def test_after_an_overload_the_records_that_waited_are_read() -> None:
    job = Job(1).run(30, Conditions(1000, 4500)).run(200, Conditions(1000, 100))
    assert job.next == int(job.end)
    assert max(job.delays[5:]) < 3


@pytest.mark.parametrize("overhead_ms", [1000, 1200, 1500])
def test_a_job_whose_empty_batches_take_longer_than_an_interval_still_reads(overhead_ms: int) -> None:
    """It cannot keep up, whatever it reads: it took no record any more. A third of the lowest rate is left for its late batches."""
    for seed in range(50):
        job = Job(seed, overhead_ms, empty_costs=True).run(300, Conditions(10_000, 2000))
        assert sum(job.taken[100:]) > 0.33 * 200 * MIN_RATE, seed


def test_a_job_whose_empty_batches_take_most_of_an_interval_is_hardly_late() -> None:
    for seed in range(50):
        job = Job(seed, 800, empty_costs=True).run(300, Conditions(10_000, 4000))
        assert statistics.mean(job.delays[30:]) < 3 and statistics.mean(job.taken[100:]) > MIN_RATE, seed
