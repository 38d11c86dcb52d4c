"""Exactness through death: a driver killed anywhere, started again, and again; compared by the record of every attempt.

Kills are items of the input: at each named crash point, and before and after each single write to the store.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kstream import crash_point
from kstream.checkpoint import history, read_log
from kstream.checkpoint.reader import has_checkpoint
from kstream.storage import LocalFileStore
from tests.scheduler.stories import Story, check, nth

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("occurrences", [(1,), (2,), (3,), (5,), (1, 2), (2, 3, 5)], ids=str)
@pytest.mark.parametrize("point", crash_point.CRASH_POINTS)
def test_a_driver_killed_at_a_crash_point_misses_nothing_and_repeats_only_the_same(
    point: str, occurrences: tuple[int, ...], jobs: int
) -> None:
    story = Story(nth(point, *occurrences), jobs)
    check(story.run())
    assert story.deaths == len(occurrences)


MOMENTS = [
    f"{when} {what}"
    for what in ("create epoch", "create meta", "create plans", "create done", "delete plans", "delete done")
    for when in ("before", "after")
]


@pytest.mark.parametrize("occurrence", [1, 2, 4])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_driver_killed_around_a_write_misses_nothing_and_repeats_only_the_same(moment: str, occurrence: int) -> None:
    once_a_life = "meta" in moment or "epoch" in moment
    story = Story(nth(moment, 1 if once_a_life else occurrence), jobs=1 + occurrence % 2)
    check(story.run())
    assert story.deaths == 1


def test_a_driver_killed_at_every_single_moment_of_its_life_in_turn() -> None:
    counts = []
    for target in range(1, 40):
        seen = iter(range(1, 1_000_000))
        story = Story(lambda _name, seen=seen, target=target: next(seen) == target, jobs=1)
        check(story.run())
        counts.append(story.deaths)
    assert counts == [1] * len(counts)


@pytest.mark.parametrize("moment", ["before create history", "after create history", "after delete plans", "before delete done"])
def test_a_driver_killed_while_it_puts_plans_into_the_history_loses_none(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SEGMENT", 2)
    for occurrence in (1, 2):
        story = Story(nth(moment, occurrence), jobs=1, history="1h")
        check(story.run())
        assert story.deaths == 1
        kept = {batch.plan.time for batch in history.read_history(story.world.store)} | read_log(story.world.store).plans.keys()
        assert {time.milliseconds for time in kept} >= set(story.world.times())


@pytest.mark.parametrize("seed", range(12))
def test_drivers_killed_at_random_again_and_again(seed: int) -> None:
    chance = random.Random(seed)
    story = Story(lambda _moment: chance.random() < 0.06, jobs=1 + seed % 2)
    check(story.run())


@pytest.mark.parametrize("seed", range(6))
def test_windows_after_kills_are_those_of_the_batches_that_stand(seed: int) -> None:
    """Each window is the concatenation of consecutive batches and no batch is ever seen in two forms."""
    chance = random.Random(1000 + seed)
    story = Story(lambda _moment: chance.random() < 0.05, jobs=1, window=3)
    world = story.run()
    for time, records in world.records_by_time().items():
        first = records[0] if records else 0
        assert list(records) == list(range(first, first + len(records))), time
    assert {r for a in world.attempts if a.finished for r in a.records} == set(world.log)


def test_a_checkpoint_of_a_driver_that_died_at_once_is_none_or_whole() -> None:
    for moment in ("before create epoch", "before create meta", "after create meta"):
        story = Story(nth(moment, 1), jobs=1)
        story._life()
        assert has_checkpoint(story.world.store) is (moment == "after create meta")
        story.driver.kill()
        check(story.run())


def test_the_local_disk_keeps_the_same_promise(tmp_path: Path) -> None:
    for target in range(1, 25, 3):
        seen = iter(range(1, 1_000_000))
        directory = tmp_path / str(target)
        story = Story(lambda _name, seen=seen, target=target: next(seen) == target, jobs=2, store=LocalFileStore(directory))
        check(story.run())
        assert story.deaths == 1
