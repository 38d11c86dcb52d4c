"""Stories of drivers that crash, freeze and take over from one another, on stores and brokers that fail: all must hold.

The first two thousand here, eight thousand more in integration/test_schedules.py.
"""

from __future__ import annotations

import pytest

from tests.simulator import NO_FAULTS, Faults, NumberSource, Scenario, run_schedule, simulate
from tests.simulator.kafka import KafkaSource

TAKEOVERS = Faults(write=0.1, read=0.05, crash=1.0, freeze=6.0, second=6.0, jump=0.3, calm=4.0)
"""Up to three drivers at once, standing still in the middle of things."""


@pytest.mark.timeout(300)
def test_two_thousand_schedules_of_the_direct_stream_break_nothing() -> None:
    report = simulate(KafkaSource, schedules=2_000, processes=2)
    assert report.schedules == 2_000
    assert report.drivers > 4_000 and report.attempts > report.batches > 20_000  # there was something to break


@pytest.mark.timeout(300)
def test_a_thousand_schedules_of_many_drivers_at_once_break_nothing() -> None:
    report = simulate(NumberSource, schedules=1_000, faults=TAKEOVERS, processes=2)
    assert report.drivers > 3_000


def test_without_faults_no_error_is_told_and_nothing_is_run_twice() -> None:
    for seed in range(20):
        outcome = run_schedule(seed, Scenario(KafkaSource, faults=NO_FAULTS, conf={"spark.streaming.concurrentJobs": "1"}))
        times = [attempt.time for attempt in outcome.history.attempts]
        assert (outcome.broken, outcome.history.trouble, len(times)) == ([], [], len(set(times)))
        assert times == sorted(times)
