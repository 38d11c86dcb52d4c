"""Ten thousand lives of a query: each number is there once, each transaction is a whole batch, and each refusal has a reason."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.kstream_kafka.sink.simulation import Chances

from . import KINDS, Kind, run_life, run_lives
from .__main__ import main
from .kinds import CopiedCheckpoint, EditedCheckpoint, LostTopic, OlderCheckpoint, OtherContent, RemadeTopic


@pytest.mark.parametrize("first", range(0, 10_000, 2_500))
def test_in_ten_thousand_lives_of_a_query_each_number_is_there_once_in_a_whole_batch(first: int) -> None:
    run_lives(range(first, first + 2_500))


@pytest.mark.parametrize(
    ("kind", "refusals"),
    [
        (OtherContent, {"OutputChangedError"}),
        (OlderCheckpoint, {"OutputChangedError"}),
        (CopiedCheckpoint, {"OutputChangedError"}),
        (EditedCheckpoint, {"OutputChangedError"}),
        (LostTopic, {"ReceiptsLostError"}),
        (RemadeTopic, {"ReceiptsLostError"}),
    ],
)
def test_each_kind_of_life_meets_the_refusals_that_it_is_about(kind: type[Kind], refusals: set[str]) -> None:
    assert kind in KINDS
    found = run_lives(range(300), kind).refusals
    assert {name for _, name in found} >= refusals


def test_where_nothing_happens_one_driver_writes_everything_and_nobody_is_refused() -> None:
    for seed in range(50):
        outcome = run_life(seed, Kind, Chances(interrupt=0.2, fault=0.0, faults=0))
        assert (outcome.broken, outcome.drivers, outcome.refusals.total()) == ([], 1, 0)


def test_a_life_is_the_same_each_time_and_another_seed_is_another_life() -> None:
    traces = [tuple(run_life(seed).trace) for seed in range(20)]
    assert traces == [tuple(run_life(seed).trace) for seed in range(20)]
    assert len(set(traces)) == 20


def test_the_command_prints_one_life_whole_and_says_what_held_over_many() -> None:
    done = CliRunner().invoke(main, ["--seed", "3"])
    assert done.exit_code == 0
    assert done.output == "\n".join([*run_life(3).trace, "seed 3: all held", ""])
    assert CliRunner().invoke(main, ["--lives", "30"]).output.startswith("30 lives, ")
