"""StateMap: the states of one partition, as a dict over its bytes. It decodes only keys that are asked for, and writes only changes."""

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
    """In place of a state where there is none; None is a state like another."""

    def __repr__(self) -> str:
        return "<state not set>"


NOTHING: Final = _Nothing()


class _Entry:
    """A key that was asked for. `place`: where it is stored, None if it is not."""

    __slots__ = ("change", "key", "mark", "place", "updated", "value")

    def __init__(self, key: Any, mark: int, place: Place | None, value: Any, updated: int) -> None:
        self.key, self.mark, self.place, self.value, self.updated = key, mark, place, value, updated
        self.change = _READ

    def copy(self) -> _Entry:
        other = _Entry(self.key, self.mark, self.place, self.value, self.updated)
        other.change = self.change
        return other

    def new_pickle(self) -> bytes | None:
        """As in `Change`: b"" if the stored one stays, None if there is to be none."""
        if self.change == _REMOVED:
            return None
        return _dump(self.key, self.value) if self.change == _PUT else b""


class StateMap:
    """Key → (state, time of its last update in ms). One thread; keys are equal as keys of a dict are.

    The bytes it was made of stay as they are: `to_bytes` makes new ones. The cost of that is a copy of the bytes, plus the keys
    that were changed and their buckets; rarely (`fitting`) all entries are moved, as pickles, to more or fewer buckets.
    """

    def __init__(self, data: bytes = EMPTY) -> None:
        self._form = StateForm(data)
        self._count = self._form.entries
        self._known: dict[Any, _Entry] = {}

    @staticmethod
    def of(entries: Iterable[tuple[Any, Any, int]]) -> StateMap:
        """A map of these (key, state, update time); of two with one key the later counts."""
        last = {key: (value, updated_ms) for key, value, updated_ms in entries}
        rows = ((stable_hash(key) >> 32, updated_ms, _dump(key, value)) for key, (value, updated_ms) in last.items())
        return StateMap(form_of(rows, fitting(len(last), 1)) if last else EMPTY)

    def __len__(self) -> int:
        return self._count

    def get(self, key: Any) -> Any:
        """The key's state, or NOTHING."""
        return self._entry(key).value

    def put(self, key: Any, value: Any, updated_ms: int) -> None:
        """Sets the key's state. It is pickled by `to_bytes`, not before."""
        entry = self._entry(key)
        self._count += entry.value is NOTHING
        entry.value, entry.updated, entry.change = value, updated_ms, _PUT

    def touch(self, key: Any, updated_ms: int) -> None:
        """Sets the update time of a key that has a state, and leaves the state as it is stored."""
        entry = self._entry(key)
        entry.updated = updated_ms
        entry.change = max(entry.change, _TOUCHED)

    def remove(self, key: Any) -> None:
        """Forgets the key; nothing if it has no state."""
        entry = self._entry(key)
        self._count -= entry.value is not NOTHING
        entry.value, entry.change = NOTHING, _REMOVED

    def older_than(self, time_ms: int) -> list[tuple[Any, Any, int]]:
        """The (key, state, update time) last updated before `time_ms`: strictly. Opens only the buckets that have one."""
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
        """Every (key, state, update time), in no order that means anything. The map must not change meanwhile."""
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
        """A map of its own with the same entries; neither sees what is put into the other. The states themselves are the same objects."""
        other = StateMap.__new__(StateMap)
        other._form, other._count = self._form, self._count
        other._known = {key: entry.copy() for key, entry in self._known.items()}
        return other

    def to_bytes(self) -> bytes:
        """The map as bytes: the very object it was made of, if nothing changed. StateNotStorableError names the key of a state that
        cannot be pickled."""
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
        """Every entry as it is to be written; those that were not changed are not decoded."""
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
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._find(key, stable_hash(key) >> 32)
        return known

    def _find(self, key: Any, mark: int) -> _Entry:
        number = mark & (self._form.buckets - 1)
        place = self._form.place(number, mark)
        while place is not None:
            found, value = _load(self._form.pickle(place))
            if found == key:
                return _Entry(key, mark, place, value, place.updated)
            place = self._form.place(number, mark, place.slot)
        return _Entry(key, mark, None, NOTHING, 0)


def _dump(key: Any, value: Any) -> bytes:
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
    try:
        return pickle.loads(data)
    except Exception as e:
        raise StateNotStorableError(
            f"a stored state cannot be read, {type(e).__name__}: {e}. What it is made of must be importable under the name it had when "
            "it was stored, and take what was stored",
            key=None,
            reason=str(e),
        ) from e
