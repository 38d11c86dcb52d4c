"""StateMap: the states of one partition, as a mapping over its bytes. It decodes only the keys of a look-up, and writes only changes."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kstream.errors import StateNotStorableError
from kstream.rdd.stable_hash import stable_hash
from kstream.rdd.state_form import Change, Place, Row, StateForm, fitting, form_of

PICKLE_PROTOCOL = 5
EMPTY = form_of((), 1)

_READ, _TOUCHED, _PUT, _REMOVED = range(4)


class _Nothing:
    """The class of NOTHING, which stands for "no state", because None is a valid state."""

    def __repr__(self) -> str:
        return "<state not set>"


NOTHING: Final = _Nothing()


class _Entry:
    """A key that was looked up, with its state and the change since. `place` is None if the key is not stored."""

    __slots__ = ("change", "key", "mark", "place", "updated", "value")

    def __init__(self, key: Any, mark: int, place: Place | None, value: Any, updated: int) -> None:
        self.key, self.mark, self.place, self.value, self.updated = key, mark, place, value, updated
        self.change = _READ

    def copy(self) -> _Entry:
        """Return a new entry with the same values."""
        other = _Entry(self.key, self.mark, self.place, self.value, self.updated)
        other.change = self.change
        return other

    def new_pickle(self) -> bytes | None:
        """Return the pickle for a `Change`: b"" keeps the stored pickle, None drops the entry."""
        if self.change == _REMOVED:
            return None
        return _dump(self.key, self.value) if self.change == _PUT else b""


class StateMap:
    """A mapping of key → (state, time of its last update in ms). One thread. Keys are compared as the keys of a dict.

    The bytes from which it was made do not change: `to_bytes` makes new bytes. That costs a copy of the bytes, plus the changed keys and
    their buckets. Rarely (see `fitting`) the pickles of all entries are moved to more or fewer buckets.

    Every method with a key raises TypeError for a key that is not hashable, and StateNotStorableError for another key that `stable_hash`
    refuses. Every method that decodes raises StateNotStorableError if a stored state cannot be unpickled.
    """

    def __init__(self, data: bytes = EMPTY) -> None:
        self._form = StateForm(data)
        self._count = self._form.entries
        self._known: dict[Any, _Entry] = {}

    @staticmethod
    def of(entries: Iterable[tuple[Any, Any, int]]) -> StateMap:
        """Return a map of these (key, state, update time in ms). If a key occurs twice, the later entry counts."""
        last: dict[Any, tuple[Any, int]] = {}
        for key, value, updated_ms in entries:
            try:
                last[key] = value, updated_ms
            except TypeError as e:
                raise _unhashable(key, e) from e
        rows = ((stable_hash(key) >> 32, updated_ms, _dump(key, value)) for key, (value, updated_ms) in last.items())
        return StateMap(form_of(rows, fitting(len(last), 1)) if last else EMPTY)

    def __len__(self) -> int:
        return self._count

    def get(self, key: Any) -> Any:
        """Return the state of a key, or NOTHING."""
        return self._entry(key).value

    def put(self, key: Any, value: Any, updated_ms: int) -> None:
        """Set the state of a key and its update time. The state is pickled only in `to_bytes`."""
        entry = self._entry(key)
        self._count += entry.value is NOTHING
        entry.value, entry.updated, entry.change = value, updated_ms, _PUT

    def touch(self, key: Any, updated_ms: int) -> None:
        """Set the update time of a key that has a state. The state does not change."""
        entry = self._entry(key)
        entry.updated = updated_ms
        entry.change = max(entry.change, _TOUCHED)

    def remove(self, key: Any) -> None:
        """Forget a key. A key without a state is no error."""
        entry = self._entry(key)
        self._count -= entry.value is not NOTHING
        entry.value, entry.change = NOTHING, _REMOVED

    def older_than(self, time_ms: int) -> list[tuple[Any, Any, int]]:
        """Return the (key, state, update time) of all keys last updated before `time_ms` (strictly).

        Only buckets with such a key are opened.
        """
        found: list[tuple[Any, Any, int]] = []
        for number in self._form.older_than(time_ms):
            bucket = self._form.bucket(number)
            for slot, updated in enumerate(bucket.updated):
                if updated < time_ms:
                    key, value = _load(bucket.pickle(slot))
                    if key not in self._known:
                        found.append((key, value, updated))
        return found + [(e.key, e.value, e.updated) for e in self._known.values() if e.value is not NOTHING and e.updated < time_ms]

    def items(self) -> Iterator[tuple[Any, Any, int]]:
        """Yield every (key, state, update time), in an arbitrary order. The map must not change during the iteration."""
        for number in range(self._form.buckets):
            bucket = self._form.bucket(number)
            for slot, updated in enumerate(bucket.updated):
                key, value = _load(bucket.pickle(slot))
                if key not in self._known:
                    yield key, value, updated
        for entry in self._known.values():
            if entry.value is not NOTHING:
                yield entry.key, entry.value, entry.updated

    def copy(self) -> StateMap:
        """Return an independent map with the same entries. Changes of one map do not affect the other, but both share the state objects."""
        other = StateMap.__new__(StateMap)
        other._form, other._count = self._form, self._count
        other._known = {key: entry.copy() for key, entry in self._known.items()}
        return other

    def to_bytes(self) -> bytes:
        """Return the map as bytes. If nothing has changed, the result is the object from which the map was made.

        Raises:
            StateNotStorableError: a state cannot be pickled; the error names its key.
        """
        changes: dict[int, list[Change]] = {}
        mask = self._form.buckets - 1
        for entry in self._known.values():
            if entry.change == _PUT or (entry.place is not None and entry.change):
                change = (entry.place, entry.mark, entry.updated, entry.new_pickle())
                changes.setdefault(entry.mark & mask, []).append(change)
        if not changes:
            return self._form.data
        buckets = fitting(self._count, self._form.buckets)
        if buckets == self._form.buckets:
            return self._form.replaced(changes, self._count)
        return form_of(self._rows(changes), buckets)

    def _rows(self, changes: dict[int, list[Change]]) -> Iterator[Row]:
        """Yield every entry as it is after the changes, for bytes with another number of buckets. Unchanged ones are not decoded."""
        for number in range(self._form.buckets):
            of_bucket = changes.get(number, ())
            kept = {place.slot: (new, updated) for place, _, updated, new in of_bucket if place is not None}
            for slot, row in enumerate(self._form.bucket(number).rows()):
                new, updated = kept.get(slot, (b"", row[1]))
                if new is not None:
                    yield row[0], updated, new or row[2]
            for place, mark, updated, new in of_bucket:
                if place is None and new:
                    yield mark, updated, new

    def _entry(self, key: Any) -> _Entry:
        """Return the entry of a key, from the entries looked up so far or from the bytes. It is kept, with its later changes."""
        try:
            known = self._known.get(key)
        except TypeError as e:
            raise _unhashable(key, e) from e
        if known is None:
            known = self._known[key] = self._find(key, stable_hash(key) >> 32)
        return known

    def _find(self, key: Any, mark: int) -> _Entry:
        """Look a key up in the bytes. Entries with the same mark are decoded until one has the key."""
        number = mark & (self._form.buckets - 1)
        place = self._form.place(number, mark)
        while place is not None:
            found, value = _load(self._form.pickle(place))
            if found == key:
                return _Entry(key, mark, place, value, place.updated)
            place = self._form.place(number, mark, place.slot)
        return _Entry(key, mark, None, NOTHING, 0)


def _unhashable(key: Any, error: TypeError) -> TypeError:
    return TypeError(
        f"{key!r:.200} cannot be the key of a state of mapWithState, {error}. Use text, bytes, numbers, None, tuples of these, or objects "
        "of a class with __eq__ and __hash__ (a frozen dataclass)"
    )


def _dump(key: Any, value: Any) -> bytes:
    """Pickle a (key, state). StateNotStorableError with the key if that fails."""
    try:
        return pickle.dumps((key, value), PICKLE_PROTOCOL)
    except Exception as e:
        raise StateNotStorableError(
            f"the state of key {key!r:.200} cannot be stored, {type(e).__name__}: {e}. A state is kept as a pickle: give "
            "update() plain values, or objects of a class in a module that the workers can import (not __main__)",
            key=repr(key),
            reason=str(e),
        ) from e


def _load(data: memoryview) -> tuple[Any, Any]:
    """Unpickle a (key, state). StateNotStorableError if that fails."""
    try:
        return pickle.loads(data)
    except Exception as e:
        raise StateNotStorableError(
            f"a stored state cannot be read, {type(e).__name__}: {e}. Its classes must be importable under their stored names, "
            "and accept the stored values",
            key=None,
            reason=str(e),
        ) from e
