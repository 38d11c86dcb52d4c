"""mapWithState in a worker: State, what the mapping function sees, and what one batch does to the states of a partition.

Pure: bytes and records in, bytes and records out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kstream.errors import StateError
from kstream.rdd.state_map import NOTHING, StateMap


class State:
    """The state of the key that a mapping function is called for. Good for one call of the function, in the worker.

    Changes count when the function returns. An object from `get` that was changed in place is kept only if it is given to `update`.
    """

    __slots__ = ("_removed", "_timing_out", "_updated", "_value")

    def __init__(self, value: Any = NOTHING, timing_out: bool = False) -> None:
        self._value = value
        self._timing_out = timing_out
        self._updated = False
        self._removed = False

    def exists(self) -> bool:
        """Whether the key has a state: one from before, or one given to `update` in this call, and not removed."""
        return self._value is not NOTHING

    def get(self) -> Any:
        """Return the state.

        Raises:
            StateError: the key has none.
        """
        if self._value is NOTHING:
            raise StateError("the key has no state: ask exists() before get(), or use getOption()", call="get")
        return self._value

    def getOption(self) -> Any:
        """Return the state, or None if there is none."""
        return None if self._value is NOTHING else self._value

    def update(self, newState: Any) -> None:
        """Set the state.

        Args:
            newState: the state from now on; it is pickled at the end of the batch.

        Raises:
            StateError: the state was removed in this call, or is timing out.
        """
        self._check("update")
        self._value = newState
        self._updated = True

    def remove(self) -> None:
        """Forget the key, whether it had a state or not.

        Raises:
            StateError: it was removed in this call already, or is timing out anyway.
        """
        self._check("remove")
        self._value = NOTHING
        self._updated = False
        self._removed = True

    def isTimingOut(self) -> bool:
        """Whether the key's state goes after this call, because the key was idle for longer than the timeout."""
        return self._timing_out

    @property
    def is_updated(self) -> bool:
        return self._updated

    @property
    def is_removed(self) -> bool:
        return self._removed

    def _check(self, call: str) -> None:
        if self._removed:
            raise StateError(f"{call}() of a state that remove() has been called on in this same call of the function", call=call)
        if self._timing_out:
            raise StateError(f"{call}() of a state that is timing out: it goes after this call. Ask isTimingOut() first", call=call)

    def __repr__(self) -> str:
        return repr(self._value)


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
