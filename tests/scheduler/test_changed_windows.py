"""Which stored totals a window with an inverse may continue from. No store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kstream.batch import StateCheckpoint
from kstream.batch_time import Duration, Time
from kstream.checkpoint.state_log import StoredStates
from kstream.scheduler.changed_windows import of_these_windows, other_window


def total(time: int, window: int | None, file: str = "state/x") -> StateCheckpoint:
    return StateCheckpoint(Time(time), (file,), 7, None if window is None else Duration(window))


def empty(time: int) -> StateCheckpoint:
    return StateCheckpoint(Time(time), ())


def stored(*states: StateCheckpoint) -> StoredStates:
    return StoredStates({"s0": list(states)}, {}, (), ())


def stream(window: int | None) -> Any:
    return SimpleNamespace(state_id="s0", totals_window=None if window is None else Duration(window))


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        ([total(1, 5), total(2, 5)], [total(1, 5), total(2, 5)]),
        ([total(1, None), total(2, 5)], [total(1, None), total(2, 5)]),
        ([total(1, None)], [total(1, None)]),
        ([total(1, 3), total(2, 3)], []),
        ([total(1, 3), empty(1)], [empty(1)]),
        ([total(1, 5), total(2, 3), total(3, 5)], [total(3, 5)]),
        ([total(1, 5), total(2, 3)], []),
    ],
    ids=["same", "old record, then same", "old record", "other", "begun anew", "there and back", "newest is other"],
)
def test_only_totals_since_the_last_ones_of_another_window_count(states: list[StateCheckpoint], kept: list[StateCheckpoint]) -> None:
    assert of_these_windows(stored(*states), [stream(5)]).checkpoints.get("s0", []) == kept
    assert (other_window(states, stream(5)) is None) == bool(kept)


def test_a_stream_without_a_window_keeps_every_state() -> None:
    assert of_these_windows(stored(total(1, 3), total(2, 5)), [stream(None)]) == stored(total(1, 3), total(2, 5))
    assert other_window([total(1, 3)], stream(None)) is None
