"""Stories of drivers that crash, freeze and take over from one another, on stores and brokers that fail: all must hold.

The first two thousand here, eight thousand more in integration/test_schedules.py.
"""

from __future__ import annotations

import re

import pytest

from tests.simulator import NO_FAULTS, Faults, NumberSource, Scenario, run_schedule, simulate
from tests.simulator.faults import TAKEOVERS
from tests.simulator.kafka import KafkaSource
from tests.simulator.states import StatesSource


@pytest.mark.timeout(1200)
def test_two_thousand_schedules_of_the_direct_stream_break_nothing() -> None:
    report = simulate(KafkaSource, schedules=2_000, processes=2)
    assert report.schedules == 2_000
    assert report.drivers > 4_000 and report.attempts > report.batches > 20_000  # there was something to break


@pytest.mark.timeout(1200)
def test_a_thousand_schedules_of_many_drivers_at_once_break_nothing() -> None:
    report = simulate(NumberSource, schedules=1_000, faults=TAKEOVERS, processes=2)
    assert report.drivers > 3_000


@pytest.mark.timeout(1200)
def test_two_hundred_schedules_of_states_on_executors_that_are_lost_break_nothing() -> None:
    """`python -m tests.simulator --source states --schedules 10000` runs more of them."""
    report = simulate(StatesSource, schedules=200, processes=2)
    assert report.schedules == 200
    assert report.drivers > 400 and report.attempts > report.batches > 4_000


@pytest.mark.parametrize("faults", [NO_FAULTS, Faults(slow_job=0.9)], ids=["nothing happens", "jobs are slow"])
def test_state_files_stay_few_and_no_lineage_is_cut_by_executors_when_nothing_fails(faults: Faults) -> None:
    """Also not in a backlog: slow jobs take up to four intervals each. Files of all states stay that are newer than the batch that runs."""
    for seed in range(8):
        outcome = run_schedule(seed, Scenario(StatesSource, faults=faults, conf={"spark.streaming.concurrentJobs": "1"}))
        assert (outcome.broken, outcome.history.trouble) == ([], [])
        assert most_states_at_once(outcome.trace) <= 4


def most_states_at_once(trace: list[str]) -> int:
    """Of how many batches the states of a stream were in the store at once, at most."""
    stored: dict[str, dict[int, int]] = {}
    most = 0
    for line in trace:
        if (found := re.search(r"(create|delete) state/(\d+)-\d+-(s\d+)-", line)) is not None:
            files = stored.setdefault(found[3], {})
            files[int(found[2])] = files.get(int(found[2]), 0) + (1 if found[1] == "create" else -1)
            most = max(most, sum(count > 0 for count in files.values()))
    assert most > 0
    return most


def test_without_faults_no_error_is_told_and_nothing_is_run_twice() -> None:
    for seed in range(20):
        outcome = run_schedule(seed, Scenario(KafkaSource, faults=NO_FAULTS, conf={"spark.streaming.concurrentJobs": "1"}))
        times = [attempt.time for attempt in outcome.history.attempts]
        assert (outcome.broken, outcome.history.trouble, len(times)) == ([], [], len(set(times)))
        assert times == sorted(times)
