"""A job that is offered five times what it can process: with back-pressure it is never late and reads everything, without it it is late.

A run that misses a bar of time or memory is repeated once, alone: another process may have had the machine meanwhile.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from integration.kafka_broker import Broker
from integration.overload import BACKLOG, DOWNTIME, INPUTS, PEAK, WITH_A_BACKLOG, Batch, Outcome
from integration.zookeeper_server import ZooKeeper


def overloaded(*arguments: str, kafka: Broker, zookeeper: ZooKeeper) -> Outcome:
    """The outcome of a run in a process of its own."""
    command = [sys.executable, "-m", "integration.overload", *arguments, "--bootstrap", kafka.bootstrap, "--zookeeper", zookeeper.hosts]
    found = subprocess.run(command, capture_output=True, text=True, timeout=400, check=True)
    outcome = Outcome(**json.loads(found.stdout.splitlines()[-1]))
    outcome.batches = [Batch(**batch) for batch in outcome.batches]  # pyright: ignore[reportCallIssue]
    return outcome


def overloaded_at_once(runs: Mapping[str, Sequence[str]], kafka: Broker, zookeeper: ZooKeeper) -> dict[str, Outcome]:
    """The outcomes of several runs at once, by name. A run sleeps most of the time; what slows it down can only make it later."""
    with ThreadPoolExecutor(len(runs)) as pool:
        outcomes = pool.map(lambda arguments: overloaded(*arguments, kafka=kafka, zookeeper=zookeeper), runs.values())
        return dict(zip(runs, outcomes, strict=True))


RUNS = {source: (source,) for source in INPUTS} | {start: (start, "--seconds", "30") for start in WITH_A_BACKLOG}
"""Input → arguments of the run that must meet the bars."""


@pytest.fixture(scope="module")
def with_a_backlog(kafka: Broker, zookeeper: ZooKeeper) -> Mapping[str, Outcome]:
    return overloaded_at_once({start: RUNS[start] for start in WITH_A_BACKLOG}, kafka, zookeeper)


@pytest.fixture(scope="module")
def without(kafka: Broker, zookeeper: ZooKeeper) -> Mapping[str, Outcome]:
    return overloaded_at_once({source: (source, "--without", "--seconds", "20") for source in INPUTS}, kafka, zookeeper)


def missed_twice(source: str, kafka: Broker, zookeeper: ZooKeeper, first: Outcome | None = None) -> list[str]:
    """The bars that a run and its repetition have missed, with both outcomes. Empty if either run has met all."""
    found: list[str] = []
    for had in (first, None):
        outcome = had or overloaded(*RUNS[source], kafka=kafka, zookeeper=zookeeper)
        assert outcome.processed == outcome.produced, str(outcome)
        missed = outcome.missed()
        if not missed:
            return []
        found += [*missed, str(outcome)]
    return found


@pytest.mark.timeout(840)
@pytest.mark.parametrize("source", INPUTS)
def test_a_job_under_back_pressure_is_never_late_is_used_keeps_its_memory_and_reads_everything(
    source: str, kafka: Broker, zookeeper: ZooKeeper
) -> None:
    assert missed_twice(source, kafka, zookeeper) == []


@pytest.mark.timeout(420)
@pytest.mark.parametrize("source", INPUTS)
def test_without_back_pressure_the_same_job_falls_behind(source: str, without: Mapping[str, Outcome]) -> None:
    outcome = without[source]
    assert max(batch.delay for batch in outcome.batches) > 3 * PEAK, str(outcome)


@pytest.mark.timeout(840)
def test_at_a_first_start_no_batch_but_the_first_takes_longer_than_two_intervals(
    with_a_backlog: Mapping[str, Outcome], kafka: Broker, zookeeper: ZooKeeper
) -> None:
    assert missed_twice(BACKLOG, kafka, zookeeper, with_a_backlog[BACKLOG]) == []


@pytest.mark.timeout(840)
def test_after_a_downtime_the_first_batch_has_some_seconds_worth_and_no_other_takes_longer_than_two_intervals(
    with_a_backlog: Mapping[str, Outcome], kafka: Broker, zookeeper: ZooKeeper
) -> None:
    assert missed_twice(DOWNTIME, kafka, zookeeper, with_a_backlog[DOWNTIME]) == []
