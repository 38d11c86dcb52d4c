"""mapWithState in a worker: State, which the mapping function gets, and MapWithState, which updates the states of a partition by one batch.

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
    """The state of one key, as a mapping function gets it in a worker. It is valid during one call of the function.

    Changes are applied when the function returns. If the function changes an object from `get` in place, it must pass it to `update`.
    """

    __slots__ = ("_removed", "_timing_out", "_updated", "_value")

    def __init__(self, value: Any = NOTHING, timing_out: bool = False) -> None:
        self._value = value
        self._timing_out = timing_out
        self._updated = False
        self._removed = False

    def exists(self) -> bool:
        """Return whether the key has a state, from before or by `update` in this call, that was not removed in this call."""
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
        """Remove the state of the key. A key without a state is no error.

        Raises:
            StateError: the state was removed in this call already, or is timing out.
        """
        self._check("remove")
        self._value = NOTHING
        self._updated = False
        self._removed = True

    def isTimingOut(self) -> bool:
        """Return whether the state is removed after this call, because the key was idle for longer than the timeout."""
        return self._timing_out

    @property
    def is_updated(self) -> bool:
        """Whether `update` was called in this call, and `remove` was not."""
        return self._updated

    @property
    def is_removed(self) -> bool:
        """Whether `remove` was called in this call."""
        return self._removed

    def _check(self, call: str) -> None:
        """Raise StateError if the state was removed in this call, or is timing out."""
        if self._removed:
            raise StateError(f"{call}() of a state that remove() has been called on in this same call of the function", call=call)
        if self._timing_out:
            raise StateError(f"{call}() of a state that is timing out: it is removed after this call. Ask isTimingOut() first", call=call)

    def __repr__(self) -> str:
        return repr(self._value)


@dataclass(frozen=True, slots=True)
class MapWithState:
    """One batch of mapWithState: the user's function and the batch time. Pickled into the tasks.

    Attributes:
        function: the mapping function.
        time_ms: the batch time in ms.
        time: the batch time, for the function.
        idle_before_ms: keys that were last updated before this time (ms) time out; None without a timeout.
        pass_time: the function gets the batch time as its first argument.
    """

    function: Callable[..., Any]
    time_ms: int
    time: datetime
    idle_before_ms: int | None = None
    pass_time: bool = False

    def update(self, previous: bytes, records: Iterable[tuple[Any, Any]]) -> tuple[bytes, list[Any]]:
        """Update the states of a partition by the records of a batch. Runs in a worker.

        The function is called once for each record, in the order of the records. With a timeout it is then called once with the value None
        for each key that was idle too long, and the key is forgotten. With a timeout a record sets its key's update time, also if the
        function does not update the state.

        Args:
            previous: the states before the batch, as bytes of a StateMap.
            records: the (key, value) records of the partition.

        Returns:
            The states after the batch, and the results of the function without those that are None.

        Raises:
            StateNotStorableError: a key or a state cannot be pickled or read. Errors of the function are raised, too.
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
        """Call the mapping function for one record, and append what it returns to `mapped`, unless that is None."""
        result = self.function(self.time, key, value, state) if self.pass_time else self.function(key, value, state)
        if result is not None:
            mapped.append(result)


def initial_states(pairs: Iterable[tuple[Any, Any]], time_ms: int) -> bytes:
    """Return the bytes of a partition's states, made of (key, state) pairs. If a key occurs twice, the later pair counts.

    Args:
        pairs: (key, state).
        time_ms: the update time of all states.
    """
    return StateMap.of((key, state, time_ms) for key, state in pairs).to_bytes()


def snapshot(states: bytes) -> Iterable[tuple[Any, Any]]:
    """Return an iterator over every (key, state) of a partition. `states` are the bytes of a StateMap."""
    return ((key, state) for key, state, _ in StateMap(states).items())
