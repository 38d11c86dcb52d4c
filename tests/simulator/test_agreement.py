"""After each step of a schedule the lifecycle of a driver, its views and the log agree; and planted bugs in its steps are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from kstream.scheduler.retry_policy import CONTINUE, HOLD
from kstream.scheduler.settings import FAILED_BATCH, RETRIES
from tests.simulator import Faults, NumberSource, Scenario, planted, run_schedule
from tests.simulator.kafka import KafkaSource
from tests.simulator.source import MakeSource
from tests.simulator.states import StatesSource

Plant = Callable[[pytest.MonkeyPatch], None]
FAILING = Faults(write=0.15, read=0.1, job=0.4, slow_job=0.3, crash=0.5, freeze=1.0, second=1.0, calm=4.0)
"""Jobs fail, the store refuses, and drivers are seldom lost: batches stand in many places."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("source", "faults", "conf", "schedules"),
    [
        (KafkaSource, None, {}, 100),
        (NumberSource, FAILING, {RETRIES.key: "1", FAILED_BATCH.key: HOLD}, 200),
        (NumberSource, FAILING, {RETRIES.key: "1", FAILED_BATCH.key: CONTINUE}, 200),
        (StatesSource, None, {}, 40),
    ],
    ids=["kafka", "hold", "continue", "states"],
)
def test_the_lifecycle_its_views_and_the_log_agree_after_each_step(
    source: MakeSource, faults: Faults | None, conf: Mapping[str, str], schedules: int
) -> None:
    scenario = Scenario(source, faults=faults, conf=conf, agrees=True)
    for seed in range(schedules):
        assert run_schedule(seed, scenario).broken == [], seed


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("plant", planted.TRANSITIONS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_the_steps_of_a_batch_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    scenarios = [
        Scenario(NumberSource, faults=FAILING, conf={RETRIES.key: retries, FAILED_BATCH.key: policy}, agrees=True)
        for policy in (HOLD, CONTINUE)
        for retries in ("0", "1")
    ]
    assert any(run_schedule(seed, scenario).broken for seed in range(100) for scenario in scenarios), "it was not found"
