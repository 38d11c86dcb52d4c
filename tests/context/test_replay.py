"""Batches of the past run again: the very ranges, the windows they had, and what is different now. No JVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kstream.batch import InputOutcome
from kstream.batch_time import Duration, Time
from kstream.checkpoint.interval_change import IntervalChange, write_change
from kstream.context.replay import CountChange, ReplayedBatch, Replayer, changed
from kstream.dstream import ForEachDStream
from kstream.dstream.base import node_of
from kstream.errors import ConfigurationError, IntervalChangedError
from tests.fakes import FakeEnvironment, FakeHost, FakeRDD, FakeStateDStream
from tests.harness import START, Driver, LogInput, World, started
from tests.stores import CountingStore

KEPT = {"spark.streaming.kstream.history": "1h"}


class Counting(LogInput):
    """Counts what it still has of each batch, as a Kafka stream does."""

    def outcome(self, time: Time, data: Mapping[str, Any]) -> InputOutcome:
        there = [record for record in self.log[data["from"] : data["until"]] if record is not None]
        return InputOutcome([len(there)], [{"from": data["from"]}] if len(there) == 0 < data["until"] - data["from"] else [])


def counted(host: FakeHost, driver: Driver) -> None:
    host.graph._inputs.clear()
    driver.input = Counting(host, driver.world.log)
    driver.output(driver.input.window(2))


def past(ticks: int = 5) -> World:
    """A stream that has run `ticks` batches of 3 records each."""
    world = World()
    driver = started(world, KEPT, build=counted)
    for _ in range(ticks):
        driver.tick(3)
    driver.stop()
    return world


class Again:
    """A graph like the stream's, and what a replay of it was handed."""

    def __init__(self, world: World, interval_ms: int = 1000, store: Any = None, shadow: bool = False) -> None:
        self.host = FakeHost(KEPT, interval_ms)
        self.input = Counting(self.host, world.log)
        self.own: list[tuple[int, list[Any]]] = []
        self.shadowed: list[tuple[int, int, list[Any]]] = []
        self.failing: int | None = None
        self.host.graph.add_output_stream(ForEachDStream(node_of(self.input.window(2)), self._own))
        self.replayer = Replayer(self.host.graph, FakeEnvironment(), store or world.store, self._shadow if shadow else None)

    def _own(self, time: Time, rdd: FakeRDD) -> None:
        if time.milliseconds == self.failing:
            raise OSError("the sink is down")
        self.own.append((time.milliseconds, rdd.records))

    def _shadow(self, number: int, time: Time, rdd: FakeRDD) -> None:
        self.shadowed.append((number, time.milliseconds, rdd.records))

    def run(self, first: int, last: int) -> list[ReplayedBatch]:
        return list(self.replayer.run(at(first), at(last)))


def at(number: int) -> Time:
    return Time(START + 1000 * number)


def test_each_batch_is_handed_what_it_was_handed_then_windows_included() -> None:
    world = past()
    then = {a.time: list(a.records) for a in world.attempts}
    again = Again(world)
    batches = again.run(2, 4)
    assert [b.time for b in batches] == [at(2), at(3), at(4)] and all(b.same and b.ended_then for b in batches)
    assert dict(again.own) == {at(n).milliseconds: then[at(n).milliseconds] for n in (2, 3, 4)}


def test_a_replay_writes_nothing_into_the_checkpoint_and_moves_no_cursor() -> None:
    world = past()
    store = CountingStore(world.store)
    again = Again(world, store=store)
    again.run(1, 5)
    assert {verb for verb, _, _ in store.take()} <= {"list", "read", "exists"}
    assert again.input.calls == [] and again.input.cursor == 0


def test_into_a_shadow_the_jobs_own_functions_do_not_run() -> None:
    world = past()
    again = Again(world, shadow=True)
    again.run(3, 3)
    assert again.own == [] and again.shadowed == [(0, at(3).milliseconds, world.log[3:9])]
    assert again.input.services.tolerate_loss and not Again(world).input.services.tolerate_loss


def test_what_the_input_has_lost_since_is_said() -> None:
    world = past()
    world.log[3] = None  # type: ignore[call-overload]
    world.log[6:9] = [None] * 3  # type: ignore[list-item]
    batches = {b.time: b for b in Again(world, shadow=True).run(1, 5)}
    assert batches[at(2)].changes == [CountChange(0, 0, 3, 2)] and not batches[at(2)].same
    assert batches[at(3)].lost == {0: [{"from": 6}]} and batches[at(3)].changes == [CountChange(0, 0, 3, 0)]
    assert batches[at(1)].same and batches[at(5)].same


def test_a_batch_that_fails_is_told_and_the_next_ones_run() -> None:
    again = Again(past())
    again.failing = at(2).milliseconds
    one, two, three = again.run(1, 3)
    assert isinstance(two.error, OSError) and not two.same
    assert one.same and three.same and [time for time, _ in again.own] == [at(1).milliseconds, at(3).milliseconds]


def test_a_batch_that_had_not_ended_is_replayed_and_said_to_be_so() -> None:
    world = past()
    world.store.delete(next(f"done/{name}" for name in world.store.list("done") if str(at(5).milliseconds) in name))
    assert [b.ended_then for b in Again(world).run(4, 5)] == [True, False]


def test_times_that_the_checkpoint_does_not_hold_are_an_error_that_names_the_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.streaming\.kstream\.history"):
        Again(past()).run(50, 60)


def test_a_job_that_carries_state_is_refused_for_the_state_of_then_is_not_kept() -> None:
    host = FakeHost(KEPT)
    state = FakeStateDStream(LogInput(host, []), Duration(1000))
    host.graph.add_output_stream(ForEachDStream(state, lambda _time, _rdd: None))
    with pytest.raises(ConfigurationError, match="carries state"):
        Replayer(host.graph, FakeEnvironment(), past(1).store, None)


def test_batches_of_a_former_interval_cannot_be_replayed() -> None:
    world = past()
    write_change(world.store, 1, IntervalChange(at(5), at(5), Duration(500)))
    with pytest.raises(ConfigurationError, match=f"batch {at(2)} is of another batch interval: only batches after {at(5)} can be replayed"):
        Again(world, interval_ms=500).run(2, 5)


def test_another_interval_is_refused() -> None:
    with pytest.raises(IntervalChangedError):
        Again(past(), interval_ms=500)


def test_only_counts_that_are_known_of_both_times_are_compared() -> None:
    now = {0: InputOutcome([3, None, 5]), 1: InputOutcome([1])}
    assert list(changed({0: [2, 4, 5, 9], 1: [None]}, now)) == [CountChange(0, 0, 2, 3)]
