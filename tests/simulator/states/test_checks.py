"""The checks of states hold of right readings and name what is wrong in others."""

from __future__ import annotations

from typing import Any

import pytest

from kstream.errors import MissingFileError
from tests.simulator.history import Attempt, History
from tests.simulator.states.checks import Reading, Shape, TaskError, violations

SHAPE = Shape(states_window=2, totals_window=2, window=2, mapped=True)
RANGES = {1000: (0, 2), 2000: (2, 2), 4000: (2, 6)}
"""By batch. That of 3000 was never planned."""


def history() -> History:
    told = History(1000)
    told.attempts = [Attempt(0, 1, time, {"from": begin, "until": end}) for time, (begin, end) in RANGES.items()]
    return told


RIGHT: dict[str, list[Any]] = {
    "state": [(2, (2,)), (0, (0, 4)), (1, (5, 1)), (3, (3,))],
    "states in a window": [(0, (0, 4)), (1, (1, 5)), (2, (2,)), (3, (3,))],
    "totals": [(0, (4,)), (1, (5,)), (2, (2,)), (3, (3,))],
    "window": [2, 3, 4, 5],
    "mapped": [(2, 2, 1), (3, 3, 1), (0, 4, 2), (1, 5, 2)],
    "snapshots": [(0, 2), (1, 2), (2, 1), (3, 1)],
}


@pytest.mark.parametrize("stream", RIGHT)
def test_what_a_recount_gives_is_right_in_any_order_and_a_part_of_it_for_a_part(stream: str) -> None:
    whole, part = (Reading(1, 4000, stream, records, whole) for records, whole in ((RIGHT[stream], True), (RIGHT[stream][:2], False)))
    assert violations(history(), SHAPE, [whole, part], [], 0, 0) == []


@pytest.mark.parametrize("stream", RIGHT)
def test_a_record_too_few_and_a_record_too_many_are_told(stream: str) -> None:
    few = Reading(1, 4000, stream, RIGHT[stream][1:], True)
    many = Reading(1, 4000, stream, [*RIGHT[stream][:1], RIGHT["mapped"][0] if stream != "mapped" else (2, 2, 2)], False)
    for reading in (few, many):
        (line,) = violations(history(), SHAPE, [reading], [], 0, 0)
        assert line.startswith(f"outputs_read_what_a_recount_gives: {stream} of batch 4000 was ")


def test_a_missing_file_is_told_and_no_other_error_of_a_task() -> None:
    errors = [TaskError(1, MissingFileError("state/x is not there", path="state/x")), TaskError(1, ValueError("another"))]
    (line,) = violations(history(), SHAPE, [], errors, 0, 5)
    assert line == "no_task_misses_a_state_file: a task of driver 1 misses it: state/x is not there"


def test_a_local_checkpoint_is_told_unless_states_could_not_be_written() -> None:
    (line,) = violations(history(), SHAPE, [], [], 2, 0)
    assert line.startswith("lineage_is_cut_where_states_are_written: 2 states")
    assert violations(history(), SHAPE, [], [], 2, 1) == []


def test_a_batch_that_fails_by_a_lost_state_is_told_unless_states_could_not_be_written_and_repairs_did_not_help() -> None:
    told = history()
    told.trouble = ["StateLostError: blocks or files of a state are gone, and 3 repairs did not help", "JobFault: of the user"]
    assert [line.split(":")[0] for line in violations(told, SHAPE, [], [], 0, 0)] == ["lost_states_are_repaired"]
    assert violations(told, SHAPE, [], [], 0, 1) == []
    told.trouble.append("Checkpoint block rdd_1_0 not found")
    assert len(violations(told, SHAPE, [], [], 0, 1)) == 1
