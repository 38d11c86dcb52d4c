"""A simulation that finds nothing proves nothing: bugs that are planted in the sink of queries are found, and by what they do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kstream_kafka.sink.simulation import Chances

from . import Kind, planted, run_life
from .kinds import CopiedCheckpoint, LostTopic, OlderCheckpoint, RemadeTopic

SEEDS = 2_000
TWICE, MISSING, WAITS, REFUSED = "times", "are missing", "which it should have ended", "was refused without a reason"
AUDIT = "audit: "


def busy(is_stale: bool) -> Chances:
    """Many things happen. `is_stale`: leaders of yesterday answer."""
    return Chances(interrupt=0.5 if is_stale else 0.2, fault=0.15, faults=9, is_stale=is_stale)


@pytest.mark.parametrize(
    ("plant", "kind", "is_stale", "told_by"),
    [
        (planted.the_receipt_is_ignored, Kind, False, TWICE),
        (planted.the_receipt_is_outside_of_the_transaction, Kind, False, TWICE),
        (planted.spools_of_other_attempts_are_written_too, Kind, False, TWICE),
        (planted.a_later_batch_in_kafka_is_no_reason_to_stop, OlderCheckpoint, False, TWICE),
        (planted.a_later_batch_in_kafka_is_no_reason_to_stop, CopiedCheckpoint, False, TWICE),
        (planted.nobody_looks_before_the_commit, Kind, True, TWICE),
        (planted.a_commit_without_an_answer_is_taken_for_done, Kind, False, MISSING),
        (planted.each_process_has_an_id_of_its_own, Kind, False, WAITS),
        (planted.nobody_reads_which_topic_had_the_receipt, LostTopic, False, TWICE),
        (planted.nobody_reads_which_topic_had_the_receipt, RemadeTopic, False, TWICE),
        (planted.the_entry_of_the_audit_is_outside_of_the_transaction, Kind, False, AUDIT),
        (planted.all_that_could_be_written_twice_is_refused, Kind, False, REFUSED),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_that_is_planted_in_the_sink_of_queries_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], kind: type[Kind], is_stale: bool, told_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    seed = next((seed for seed in range(SEEDS) if any(told_by in line for line in run_life(seed, kind, busy(is_stale)).broken)), None)
    assert seed is not None, f"not found in {SEEDS} lives"
    monkeypatch.undo()
    assert run_life(seed, kind, busy(is_stale)).broken == [], "the life fails without the planted bug, too"
