"""A simulation that finds nothing proves nothing: bugs that are planted in the sink are found, and by what they do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner

from . import Chances, Kind, planted, run_life
from .__main__ import main
from .kinds import CopiedCheckpoint, LostTopic, OlderCheckpoint, OtherHashing, RemadeTopic

SEEDS = 2_000
TWICE, MISSING, WAITS, REFUSED = "times", "are missing", "which it should have ended", "was refused without a reason"


def busy(is_stale: bool) -> Chances:
    """Many things happen. `is_stale`: leaders of yesterday answer."""
    return Chances(interrupt=0.5 if is_stale else 0.2, fault=0.15, faults=9, is_stale=is_stale)


@pytest.mark.parametrize(
    ("plant", "kind", "is_stale", "told_by"),
    [
        (planted.keys_are_hashed_anew_and_that_is_seen_after_the_commit, OtherHashing, False, TWICE),
        (planted.a_topic_that_was_made_anew_is_taken_for_the_first_one, RemadeTopic, False, TWICE),
        (planted.a_topic_that_was_made_anew_is_taken_for_the_first_one, LostTopic, False, TWICE),
        (planted.an_older_checkpoint_is_as_good_as_the_newest, OlderCheckpoint, True, TWICE),
        (planted.an_older_checkpoint_is_as_good_as_the_newest, CopiedCheckpoint, False, TWICE),
        (planted.receipts_belong_to_the_position_of_an_output, Kind, False, MISSING),
        (planted.the_receipt_of_a_later_batch_is_ignored, OtherHashing, False, TWICE),
        (planted.the_receipt_of_an_earlier_batch_is_one_of_this_batch, Kind, False, MISSING),
        (planted.a_read_of_receipts_ends_at_an_open_transaction, Kind, False, TWICE),
        (planted.an_id_is_not_taken, Kind, False, WAITS),
        (planted.a_driver_writes_its_fence_after_it_has_read_the_receipts, Kind, True, TWICE),
        (planted.no_task_looks_before_it_commits, Kind, False, TWICE),
        (planted.nobody_looks_for_fences, OtherHashing, False, TWICE),
        (planted.a_commit_without_an_answer_is_taken_for_done, Kind, True, MISSING),
        (planted.all_that_could_be_written_twice_is_refused, Kind, False, REFUSED),
        (planted.an_empty_partition_is_missed, Kind, False, REFUSED),
        (planted.a_driver_that_saw_no_fence_looks_no_more, LostTopic, True, TWICE),
        (planted.all_fences_have_one_key, LostTopic, True, TWICE),
        (planted.a_read_tells_of_an_end_beyond_what_it_has_returned, Kind, True, TWICE),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], kind: type[Kind], is_stale: bool, told_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    seed = next((seed for seed in range(SEEDS) if any(told_by in line for line in run_life(seed, kind, busy(is_stale)).broken)), None)
    assert seed is not None, f"not found in {SEEDS} lives"
    monkeypatch.undo()
    assert run_life(seed, kind, busy(is_stale)).broken == [], "the life fails without the planted bug, too"


def test_the_command_prints_the_trace_of_the_seed_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.a_commit_without_an_answer_is_taken_for_done(monkeypatch)
    done = CliRunner().invoke(main, ["--lives", "100"])
    assert done.exit_code == 1
    assert "CommitUnknownError" not in done.output and "are missing, and it is completed" in done.output
    assert "starts driver 1 on the checkpoint" in done.output
