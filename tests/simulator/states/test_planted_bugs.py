"""Bugs that are planted in the life of states are found, by what they do to tasks and outputs; without them the same schedules hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from kstream.scheduler.settings import RETRIES
from tests.simulator import Faults, Scenario, run_schedule
from tests.simulator.states import StatesSource, planted

Plant = Callable[[pytest.MonkeyPatch], None]
MISSES_A_FILE = "no_task_misses_a_state_file"
CUTS_ELSEWHERE = "lineage_is_cut_where_states_are_written"
BACKLOG = Faults(slow_job=0.9)
"""Jobs take long, and nothing fails."""
LOSSES = Faults(outside=0.5, calm=12.0)
"""Executors are lost, writes and jobs are slow or fail for a while."""
TRIES = Faults(outside=0.6, job=0.4, calm=12.0)
"""Outputs fail besides."""


def first_seed_that_fails(scenario: Scenario, by: str) -> int:
    """The first seed that breaks this check."""
    for seed in range(300):
        if any(line.startswith(f"source: {by}: ") for line in run_schedule(seed, scenario).broken):
            return seed
    raise AssertionError(f"not found in the seeds 0 to 299 of {scenario}")


@pytest.mark.parametrize(
    ("plant", "told_by", "faults", "conf"),
    [
        (planted.files_of_a_state_go_as_soon_as_a_newer_one_is_named, MISSES_A_FILE, TRIES, {RETRIES.key: "3"}),
        (planted.a_write_counts_as_having_read_more_than_it_read, MISSES_A_FILE, TRIES, {RETRIES.key: "3"}),
        (planted.an_rdd_that_a_submitted_batch_of_a_backlog_holds_is_replaced, MISSES_A_FILE, LOSSES, {}),
        (planted.all_batches_of_a_backlog_are_generated_at_once, CUTS_ELSEWHERE, BACKLOG, {}),
        (planted.a_batch_does_not_wait_for_a_state_that_is_being_written, CUTS_ELSEWHERE, BACKLOG, {}),
        (planted.a_repair_goes_back_past_the_plans_that_are_kept, "outputs_read_what_a_recount_gives", LOSSES, {}),
        (planted.a_lost_state_is_a_failure_like_any_other, "lost_states_are_repaired", LOSSES, {}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_planted_in_the_life_of_states_is_found_within_three_hundred_schedules(
    plant: Plant, told_by: str, faults: Faults, conf: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(StatesSource, faults=faults, conf=conf)
    plant(monkeypatch)
    seed = first_seed_that_fails(scenario, told_by)
    monkeypatch.undo()
    assert run_schedule(seed, scenario).broken == [], "the schedule fails without the planted bug, too"
