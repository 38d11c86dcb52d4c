"""Streams with state, and the files that their driver writes."""

from __future__ import annotations

from collections.abc import Callable

from kstream.batch_time import Duration
from kstream.checkpoint import read_log
from kstream.checkpoint.state_log import stored_states
from tests.fakes import FakeHost, FakeStateDStream
from tests.harness import INTERVAL, Driver, World

HISTORY = {"spark.streaming.kstream.history": "0"}


def with_state(*every: int) -> Callable[[FakeHost, Driver], None]:
    """A graph of one state a number, each written so often."""

    def build(_host: FakeHost, driver: Driver) -> None:
        for batches in every:
            state = FakeStateDStream(driver.input, Duration(INTERVAL))
            state.set_checkpoint_interval(Duration(INTERVAL * batches))
            driver.output(state)
        if not every:
            driver.output(driver.input)

    return build


def named(world: World) -> dict[int, dict[str, int]]:
    """Which states the completion records name: batch → stream → batch of the state."""
    contents = read_log(world.store)
    found = {t: stored_states(world.store, t, contents.plans[t].epoch) for t in sorted(contents.done)}
    return {t.milliseconds: {s: c.time.milliseconds for s, c in states.items()} for t, states in found.items() if states}


def times_of_files(world: World) -> set[int]:
    return {int(name.split("-")[0]) for name in world.store.list("state")}
