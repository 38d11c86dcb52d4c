"""A simulator that finds nothing proves nothing: bugs planted in the product are found, and by what they do, not by how they do it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulator import Faults, NumberSource, Scenario, planted, run_schedule
from tests.simulator.invariants import OUTCOME
from tests.simulator.kafka import KafkaSource

BY_OUTCOME = {"source", *(check.__name__ for check in OUTCOME)}
Plant = Callable[[pytest.MonkeyPatch], None]
STANDSTILLS = Faults(crash=1.0, freeze=12.0, second=6.0, calm=2.0)
"""Several drivers, most of them frozen most of the time."""


def first_seed_that_fails(scenario: Scenario, within: int) -> tuple[int, set[str]]:
    """The seed, and which invariants that look at the outcome only it breaks."""
    for seed in range(within):
        broken = {line.split(":")[0] for line in run_schedule(seed, scenario).broken} & BY_OUTCOME
        if broken:
            return seed, broken
    raise AssertionError(f"not found within {within} schedules")


@pytest.mark.parametrize(
    ("plant", "told_by"),
    [
        (planted.cursor_moves_before_the_plan_is_durable, {"source"}),
        (planted.epoch_is_not_checked, {"one_content_per_batch_time", "no_record_in_two_batches", "source"}),
        (planted.clean_up_goes_past_a_pending_batch, {"nothing_planned_is_forgotten", "source"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("source", [KafkaSource, NumberSource])
def test_a_planted_bug_is_found_within_a_thousand_schedules(
    plant: Plant, told_by: set[str], source: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    _, broken = first_seed_that_fails(Scenario(source), within=1000)
    assert broken & told_by


def test_what_the_simulator_found_first_is_found_within_a_thousand_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three drivers: the second, fenced, writes a plan for a batch that the third runs by the plan of the first."""
    planted.a_new_writer_does_not_say_what_it_found(monkeypatch)
    first_seed_that_fails(Scenario(NumberSource, faults=STANDSTILLS, chaos_ms=20_000), within=1000)


def test_each_planted_bug_also_breaks_the_order_of_things(monkeypatch: pytest.MonkeyPatch) -> None:
    for plant, told_by in (
        (planted.cursor_moves_before_the_plan_is_durable, "cursors_follow_durable_plans"),
        (planted.epoch_is_not_checked, "who_runs_has_looked"),
    ):
        with monkeypatch.context() as patch:
            plant(patch)
            broken = run_schedule(0, Scenario(KafkaSource)).broken
        assert told_by in {line.split(":")[0] for line in broken}
