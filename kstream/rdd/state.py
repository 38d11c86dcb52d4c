"""State: what a mapping function sees of one key's state."""

from __future__ import annotations

from typing import Any, Final

from kstream.errors import StateError


class _Nothing:
    """In place of a state where there is none; None is a state like another."""

    def __repr__(self) -> str:
        return "<state not set>"


NOTHING: Final = _Nothing()


class State:
    """The state of the key a mapping function is called for. It is read, and changed, by calls; what they did counts when the function
    returns. Good for that one call of the function, in the worker.

    What was got from `get` and changed in place is kept only if it is given to `update`.
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
        """The state. StateError if there is none."""
        if self._value is NOTHING:
            raise StateError("the key has no state: ask exists() before get(), or use getOption()", call="get")
        return self._value

    def getOption(self) -> Any:
        """The state, or None if there is none."""
        return None if self._value is NOTHING else self._value

    def update(self, newState: Any) -> None:
        """Sets the state, from now on. StateError if it was removed in this call or is timing out."""
        self._check("update")
        self._value = newState
        self._updated = True

    def remove(self) -> None:
        """Forgets the key, whether it had a state or not. StateError if that was done in this call, or if it is timing out anyway."""
        self._check("remove")
        self._value = NOTHING
        self._updated = False
        self._removed = True

    def isTimingOut(self) -> bool:
        """Whether this is the call after which the key's state goes, because it was idle for longer than the timeout."""
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
