"""Continuous processing writes each record once, in order, through freezes, deaths and takeovers; and the simulator finds planted bugs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Set

import pytest

from tests.simulator.continuous import planted
from tests.simulator.continuous.cluster import Cluster
from tests.simulator.continuous.lives import Lives

LIVES = 300


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("kstream.continuous").setLevel(logging.CRITICAL)


def test_each_record_is_in_one_committed_epoch_in_order_and_none_is_lost() -> None:
    runs = 0
    for seed in range(LIVES):
        lives = Lives(seed)
        assert lives.run() == [], f"seed {seed}"
        runs += len(lives.runs)
    assert runs > 3 * LIVES


def test_a_seed_is_a_story() -> None:
    for seed in range(5):
        first, again = Lives(seed), Lives(seed)
        assert first.run() == again.run() and first.trace == again.trace


def is_found(plant: Callable[[Cluster], None], told_by: Set[str]) -> bool:
    """Whether one of three thousand seeds breaks what must hold, in one of these ways."""
    return any({line.split(":")[0] for line in Lives(seed, plant).run()} & told_by for seed in range(3000))


@pytest.mark.parametrize(("bug", "told_by"), planted.ALL, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_bug_is_found(bug: planted.Plant, told_by: Set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_found(bug(monkeypatch), told_by)
