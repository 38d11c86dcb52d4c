"""update_partition: what one batch does to the states of one partition. Pure: bytes and records in, bytes and records out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kstream.rdd.state import NOTHING, State
from kstream.rdd.state_map import EMPTY, StateMap


@dataclass(frozen=True, slots=True)
class MapWithState:
    """One batch of mapWithState: the user's function and the time. Goes to the workers.

    `idle_before_ms`: keys last updated before it (strictly) time out; None without a timeout. With `pass_time` the function gets
    the batch time as its first argument.
    """

    function: Callable[..., Any]
    time_ms: int
    time: datetime
    idle_before_ms: int | None = None
    pass_time: bool = False

    def update(self, previous: bytes, records: Iterable[tuple[Any, Any]]) -> tuple[bytes, list[Any]]:
        """The partition's states after the batch, and what the function returned, less the Nones.

        The function is called once for each record, in their order; then, with a timeout, once with the value None for each key that
        was idle too long, which is forgotten after it. With a timeout a record counts as an update of its key's time
        whatever the function does.
        """
        states = StateMap(previous)
        mapped: list[Any] = []
        for key, value in records:
            state = State(states.get(key))
            self._call(mapped, key, value, state)
            if state.is_removed:
                states.remove(key)
            elif state.is_updated:
                states.put(key, state.get(), self.time_ms)
            elif self.idle_before_ms is not None and state.exists():
                states.touch(key, self.time_ms)
        if self.idle_before_ms is not None:
            for key, value, _ in states.older_than(self.idle_before_ms):
                self._call(mapped, key, None, State(value, timing_out=True))
                states.remove(key)
        return states.to_bytes(), mapped

    def _call(self, mapped: list[Any], key: Any, value: Any, state: State) -> None:
        result = self.function(self.time, key, value, state) if self.pass_time else self.function(key, value, state)
        if result is not None:
            mapped.append(result)


def initial_states(pairs: Iterable[tuple[Any, Any]], time_ms: int) -> bytes:
    """A partition's states out of (key, state) pairs, all updated at `time_ms`. Of two with one key the later counts."""
    return StateMap.of((key, state, time_ms) for key, state in pairs).to_bytes()


def snapshot(states: bytes) -> Iterable[tuple[Any, Any]]:
    """Every (key, state) of a partition."""
    return ((key, state) for key, state, _ in StateMap(states).items())


__all__ = ["EMPTY", "NOTHING", "MapWithState", "initial_states", "snapshot"]
