"""State through death: drivers killed at and around every write come back to the state of one that never stopped (Spark behaviour CP5)."""

from __future__ import annotations

import operator
import random
from collections import Counter
from collections.abc import Mapping
from functools import reduce
from itertools import chain

import pytest

from kstream import DStream, State, StateSpec, crash_point
from kstream.batch_time import Duration, Time
from kstream.checkpoint import read_log
from tests.fakes import FakeHost, FakeStateDStream
from tests.harness import INTERVAL, Driver, World
from tests.scheduler.stories import Kill, Story, nth

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


class StateStory(Story):
    """The story of a stream whose output is the state: all records up to the batch. `every`: batches between two checkpoints."""

    def __init__(self, kill: Kill, jobs: int = 1, every: int = 2, window: int | None = None, chained: bool = False) -> None:
        super().__init__(kill, jobs, window)
        self.every, self.chained = every, chained

    def _build(self, host: FakeHost, driver: Driver) -> None:
        stream = FakeStateDStream(driver.input, Duration(INTERVAL))
        stream.set_checkpoint_interval(Duration(INTERVAL * self.every))
        if self.chained:
            stream = FakeStateDStream(stream, Duration(INTERVAL))
            stream.set_checkpoint_interval(Duration(INTERVAL * (self.every + 1)))
        driver.output(stream if self.window is None else DStream(stream).window(self.window))


def contents_of(world: World) -> dict[int, int]:
    """Batch time → how many records there were up to it, by the plans that stand."""
    plans = read_log(world.store).plans
    return {time.milliseconds: plan.inputs[0]["until"] for time, plan in plans.items() if not plan.void}


def check(world: World) -> None:
    """Each state is that of a twin: all records from the first to the last of its batch, once. The last state has all there is."""
    seen = world.records_by_time()
    planned = contents_of(world)
    for time, records in seen.items():
        assert records == tuple(range(len(records))), time
        assert len(records) == planned.get(time, len(records))
    assert seen[max(seen)] == tuple(world.log)
    assert read_log(world.store).pending == []


def check_files(world: World, most: int = 2) -> None:
    """Old state has been removed: what is left is of the newest checkpoints."""
    times = {name.split("-")[0] for name in world.store.list("state")}
    assert len(times) <= most, times


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("occurrences", [(1,), (2,), (3,), (1, 2), (2, 3)], ids=str)
@pytest.mark.parametrize("point", [*crash_point.CRASH_POINTS, *crash_point.STATE_CRASH_POINTS])
def test_a_driver_killed_at_a_crash_point_comes_back_to_the_state_of_one_that_never_stopped(
    point: str, occurrences: tuple[int, ...], jobs: int
) -> None:
    """Spark behaviour CP5."""
    story = StateStory(nth(point, *occurrences), jobs)
    check(story.run())
    assert story.deaths == len(occurrences)


def moments(*writes: str) -> list[str]:
    return [f"{when} {write}" for write in writes for when in ("before", "after")]


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("occurrence", [1, 2, 3, 4])
@pytest.mark.parametrize("moment", moments("create plans", "create state", "create done"))
def test_a_driver_killed_around_a_write_comes_back_to_the_same_state(moment: str, occurrence: int, window: int | None) -> None:
    """CP5, and windows over state"""
    story = StateStory(nth(moment, occurrence), window=window)
    world = story.run()
    if window is None:
        check(world)
    else:
        check_windows(world, window)
    assert story.deaths == 1


@pytest.mark.parametrize("occurrence", [1, 2])
@pytest.mark.parametrize("moment", moments("delete state", "delete plans", "delete done"))
def test_a_driver_killed_while_it_cleans_up_comes_back_to_the_same_state(moment: str, occurrence: int) -> None:
    """Spark behaviour CP2."""
    story = StateStory(nth(moment, occurrence))
    check(story.run())
    assert story.deaths == 1


def check_windows(world: World, window: int) -> None:
    """Each window over state is the states of its last batches, one after the other, as long as all of them were planned."""
    planned = contents_of(world)
    for time, records in world.records_by_time().items():
        times = [time - INTERVAL * back for back in reversed(range(window))]
        if all(t in planned for t in times):
            assert records == tuple(r for t in times for r in range(planned[t])), time


def counted(key: int, _value: int, state: State) -> tuple[int, int]:
    state.update((state.getOption() or 0) + 1)
    return key, state.get()


class KeyedStory(Story):
    """The story of five keys counted by mapWithState, in windows over that, by its snapshots, and in windows of three batches each made of
    the window before. A record of the output says what it is, the key and the count; the batch's own records are in it, too."""

    def _build(self, host: FakeHost, driver: Driver) -> None:
        pairs = driver.input.map(lambda n: (n % 5, n))
        states = pairs.mapWithState(StateSpec.function(counted).numPartitions(2)).checkpoint(Duration(INTERVAL * 2))
        ones = pairs.mapValues(lambda _n: 1)
        window = ones.reduceByKeyAndWindow(operator.add, operator.sub, 3, 1, 1, lambda pair: pair[1] > 0).checkpoint(Duration(INTERVAL * 3))
        kinds = {"own": pairs, "mapped": states, "snapshot": states.stateSnapshots(), "window": window, "of mapped": states.window(2)}
        driver.output(reduce(lambda one, other: one.union(other), (labelled(*kind) for kind in kinds.items())))


def labelled(kind: str, stream: DStream) -> DStream:
    return stream.map(lambda pair: (kind, *pair))


def check_counts(world: World) -> None:
    """Every batch of the three streams is what the records of the batches up to it make of it."""
    seen = world.records_by_time()
    own = {time: [n for kind, _, n in records if kind == "own"] for time, records in seen.items()}
    assert sorted(n for batch in own.values() for n in batch) == world.log
    for time, records in seen.items():
        found = {kind: sorted(r[1:] for r in records if r[0] == kind) for kind in ("mapped", "of mapped", "snapshot", "window")}
        until = max((n + 1 for t in own if t <= time for n in own[t]), default=0)
        keys = [n % 5 for n in range(until)]
        mapped = {t: [(n % 5, keys[: n + 1].count(n % 5)) for n in own.get(t, ())] for t in (time - INTERVAL, time)}
        assert found["mapped"] == sorted(mapped[time]) and found["of mapped"] == sorted(chain(*mapped.values()))
        assert found["snapshot"] == sorted(Counter(keys).items())
        last = [n % 5 for t in (time - 2 * INTERVAL, time - INTERVAL, time) for n in own.get(t, ())]
        assert found["window"] == sorted(Counter(last).items())


@pytest.mark.parametrize("occurrence", [1, 2, 3, 4])
@pytest.mark.parametrize("moment", moments("create plans", "create state", "create done", "delete state"))
def test_keys_and_windows_of_a_driver_killed_around_a_write_are_those_of_a_twin(moment: str, occurrence: int) -> None:
    """CP5, MS7: mapWithState, its snapshots, and windows with an inverse"""
    story = KeyedStory(nth(moment, occurrence), 1)
    check_counts(story.run())
    assert story.deaths == 1


@pytest.mark.parametrize("seed", range(6))
def test_keys_and_windows_of_drivers_killed_at_random_are_those_of_a_twin(seed: int) -> None:
    """Spark behaviours CP5 and MS7."""
    chance = random.Random(900 + seed)
    check_counts(KeyedStory(lambda _moment: chance.random() < 0.05, 1 + seed % 2).run())


def test_a_driver_killed_at_every_single_moment_of_its_life_in_turn() -> None:
    for target in range(1, 60):
        seen = iter(range(1, 1_000_000))
        story = StateStory(lambda _name, seen=seen, target=target: next(seen) == target, chained=target % 2 == 0)
        world = story.run()
        if target % 2:
            check(world)
        assert story.deaths == 1


@pytest.mark.parametrize("seed", range(12))
def test_drivers_killed_at_random_again_and_again(seed: int) -> None:
    chance = random.Random(seed)
    check(StateStory(lambda _moment: chance.random() < 0.06, 1 + seed % 2, every=1 + seed % 3).run())


@pytest.mark.parametrize("seed", range(8))
def test_chained_states_after_kills_are_those_of_a_twin(seed: int) -> None:
    """CP12: a state made of a state, each with an interval of its own."""
    chance = random.Random(500 + seed)
    world = StateStory(lambda _moment: chance.random() < 0.05, chained=True).run()
    seen, planned = dict(sorted(world.records_by_time().items())), contents_of(world)
    assert list(seen) == list(range(min(seen), max(seen) + 1, INTERVAL))
    before: tuple[int, ...] = ()
    for time, records in seen.items():
        added = records[len(before) :]
        assert records == before + tuple(range(len(added))), time
        assert len(added) == planned.get(time, len(added))
        before = records
    assert before[-len(world.log) :] == tuple(world.log)


def test_old_files_of_state_go_and_nothing_that_was_never_named_stays() -> None:
    """Spark behaviour CP2."""
    story = StateStory(nth("state-written", 2))
    world = story.run()
    check(world)
    story.driver = None
    for _ in range(2):
        driver = Driver(world, story.conf, build=story._build)
        driver.start()
        for _ in range(4):
            driver.tick(1)
        driver.stop()
    check_files(world)
    named: Mapping[int, object] = contents_of(world)
    assert named and Time(0) not in read_log(world.store).plans
