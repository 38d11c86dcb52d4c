"""A simulator that finds nothing proves nothing: bugs planted in the product are found, and by what they do, not by how they do it."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from kstream.scheduler.retry_policy import CONTINUE, HOLD
from kstream.scheduler.settings import FAILED_BATCH, RETRIES
from tests.simulator import Faults, NumberSource, Scenario, planted, run_schedule
from tests.simulator.invariants import OUTCOME
from tests.simulator.kafka import KafkaSource

BY_OUTCOME = {"source", *(check.__name__ for check in OUTCOME)}
Plant = Callable[[pytest.MonkeyPatch], None]
STANDSTILLS = Faults(crash=1.0, freeze=12.0, second=6.0, calm=2.0)
"""Several drivers, most of them frozen most of the time."""
STRAYS = Faults(job=0.3, crash=1.0, freeze=8.0, second=6.0, calm=3.0)
"""Batches fail, and frozen drivers come back after others have gone on."""
OVERTAKEN = Faults(job=0.4, slow_job=0.5, crash=1.0, freeze=6.0, second=20.0, calm=4.0)
"""Many jobs fail or take long, drivers stand still, and others take over meanwhile."""
CUT_OFF = Faults(write=0.25, kinds=("error", "lost"), job=0.3, crash=3.0, freeze=2.0, second=2.0, calm=4.0)
"""Batches fail, and clean-ups are cut off by errors of the store and deaths of drivers."""


def first_seed_that_fails(scenario: Scenario, by: Collection[str] | None = BY_OUTCOME) -> tuple[int, set[str]]:
    """The first seed of a thousand that breaks one of these invariants, and which of them it breaks. `by` None: any invariant."""
    for seed in range(1000):
        broken = {line.split(":")[0] for line in run_schedule(seed, scenario).broken}
        if found := broken if by is None else broken & {*by}:
            return seed, found
    raise AssertionError(f"not found in the seeds 0 to 999 of {scenario}")


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
    _, broken = first_seed_that_fails(Scenario(source))
    assert broken & told_by


def test_what_the_simulator_found_first_is_found_within_a_thousand_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three drivers: the second, fenced, writes a plan for a batch that the third runs by the plan of the first."""
    planted.a_new_writer_does_not_say_what_it_found(monkeypatch)
    first_seed_that_fails(Scenario(NumberSource, faults=STANDSTILLS, chaos_ms=20_000))


@pytest.mark.parametrize(
    ("plant", "told_by", "policy"),
    [
        (planted.a_batch_between_two_tries_counts_as_ended, "nothing_planned_is_forgotten", CONTINUE),
        (planted.only_running_batches_hold_later_ones, "batches_are_held_in_order", HOLD),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_bug_planted_in_retries_or_hold_is_found_within_a_thousand_schedules(
    plant: Plant, told_by: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    _, broken = first_seed_that_fails(Scenario(NumberSource, conf={RETRIES.key: "3", FAILED_BATCH.key: policy}))
    assert told_by in broken


def test_a_batch_that_waits_behind_those_that_wait_for_it_is_found_within_a_thousand_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(NumberSource, faults=Faults(read=0.1, job=0.3), conf={RETRIES.key: "3", FAILED_BATCH.key: HOLD})
    assert [run_schedule(seed, scenario).broken for seed in range(30)] == [[]] * 30
    planted.a_batch_that_could_not_start_waits_behind_all_others(monkeypatch)
    _, broken = first_seed_that_fails(scenario, by=None)
    assert broken == {"a_graceful_stop_leaves_nothing"}


def test_a_retry_that_does_not_look_for_a_newer_writer_is_found_within_a_thousand_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job may look itself, if it waited for an interval. So the order of things tells of it, and not always the outcome."""
    planted.a_retry_does_not_look_for_a_newer_writer(monkeypatch)
    faults = Faults(job=0.5, freeze=4.0, second=4.0, crash=0.5, calm=3.0)
    _, broken = first_seed_that_fails(Scenario(NumberSource, faults=faults, conf={RETRIES.key: "3"}), by=None)
    assert broken <= {"who_runs_has_looked", *BY_OUTCOME}


@pytest.mark.parametrize(
    ("plant", "faults", "chaos_ms"),
    [
        (planted.plans_go_before_their_interval_is_stored, CUT_OFF, 20_000),
        (planted.a_stray_plan_counts_for_clean_up, OVERTAKEN, 30_000),
        (planted.an_interval_is_one_batch_too_long, STRAYS, 20_000),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_planted_in_settled_intervals_is_found_within_a_thousand_schedules(
    plant: Plant, faults: Faults, chaos_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is lost or runs twice; or no driver starts any more, because a plan seems to be missing (`stuck`)."""
    scenario = Scenario(NumberSource, faults=faults, chaos_ms=chaos_ms, conf={RETRIES.key: "0", FAILED_BATCH.key: CONTINUE})
    assert [run_schedule(seed, scenario).broken for seed in range(30)] == [[]] * 30
    plant(monkeypatch)
    seed, _ = first_seed_that_fails(scenario, by={"stuck", *BY_OUTCOME})
    monkeypatch.undo()
    assert run_schedule(seed, scenario).broken == [], "the schedule fails without the planted bug, too"


def test_each_planted_bug_also_breaks_the_order_of_things(monkeypatch: pytest.MonkeyPatch) -> None:
    for plant, told_by in (
        (planted.cursor_moves_before_the_plan_is_durable, "cursors_follow_durable_plans"),
        (planted.epoch_is_not_checked, "who_runs_has_looked"),
    ):
        with monkeypatch.context() as patch:
            plant(patch)
            broken = run_schedule(0, Scenario(KafkaSource)).broken
        assert told_by in {line.split(":")[0] for line in broken}
