"""SimulatedStore: the files of one schedule, and what may befall the calls. A driver holds a `StoreView` of it.

`create` stays atomic and first-wins whatever happens: that is the one thing the product asks of a store. A write may be lost, be stored
and reported as failed, or land long after it was reported as failed – also when its driver is dead and another has taken over.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstream.batch_time import Time
from kstream.checkpoint import names
from kstream.checkpoint.format import decode_plan
from kstream.errors import AlreadyExistsError, MissingFileError, StorageError
from tests.simulator.faults import Faults
from tests.simulator.history import Completed, History, Look, Stored

URL = "simulated://checkpoint"


@dataclass(frozen=True, slots=True)
class _Write:
    driver: int
    verb: str
    name: str
    data: bytes


class SimulatedStore:
    """The truth: `files`. `delayed` writes land when `land` is called."""

    def __init__(self, history: History, rng: random.Random) -> None:
        self.files: dict[str, bytes] = {}
        self.delayed: list[_Write] = []
        self.history = history
        self._rng = rng
        self.faults = Faults()
        self.now_ms: Callable[[], int] = lambda: 0
        self._going: list[str] = []

    def fault(self, writing: bool) -> str | None:
        """What befalls the next call; None: nothing."""
        if writing:
            return self._rng.choice(self.faults.kinds) if self._rng.random() < self.faults.write else None
        return "error" if self._rng.random() < self.faults.read else None

    def apply(self, driver: int, verb: str, name: str, data: bytes = b"") -> bool:
        """Does what a driver sent; False where a create comes second."""
        if verb == "create" and name in self.files:
            return False
        if verb == "delete":
            if self.files.pop(name, None) is not None:
                self._going.append(name)
            return True
        self.files[name] = data
        self._note(driver, name, data)
        return True

    def _note(self, driver: int, name: str, data: bytes) -> None:
        folder, _, key = name.partition("/")
        if folder == names.PLANS:
            self.history.plans.append(Stored(self.history.next_step(), decode_plan(data, name)))
        elif folder in (names.DONE, names.GIVEN_UP) and (parsed := names.parse_key(key)) is not None:
            time: Time = parsed[0]
            if folder == names.DONE:
                self.history.done.append(Completed(self.history.next_step(), driver, time.milliseconds))
            else:
                self.history.given_up.add(time.milliseconds)

    def land(self) -> str:
        """One of the delayed writes takes effect, not always the oldest; a line about it."""
        write = self.delayed.pop(self._rng.randrange(len(self.delayed)))
        effect = "lands" if self.apply(write.driver, write.verb, write.name, write.data) else "comes too late"
        return f"store: delayed {write.verb} {write.name} {effect}"

    def listed(self, folder: str) -> list[str]:
        """Names in a folder; with some that are just being deleted."""
        prefix = f"{folder}/" if folder else ""
        going, self._going = self._going, []
        shown = [*self.files, *(n for n in going if n not in self.files and self._rng.random() < 0.5)]
        found = (name[len(prefix) :] for name in shown if name.startswith(prefix))
        return sorted(name for name in found if "/" not in name)


class StoreView:
    """The FileStore of one driver. `point` is called before and after every effect; `note(text)` gets a line a call."""

    def __init__(self, store: SimulatedStore, driver: int, point: Callable[[], None], note: Callable[[str], None]) -> None:
        self._store = store
        self._driver = driver
        self._point = point
        self._tell = note

    @property
    def url(self) -> str:
        return URL

    def path(self, name: str) -> str:
        return f"{URL}/{name}"

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        self._write("create", name, data)

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        self._write("replace", name, data)

    def delete(self, name: str) -> None:
        self._write("delete", name, b"")

    def read(self, name: str) -> bytes:
        def found() -> bytes:
            if name not in self._store.files:
                raise MissingFileError(f"{self.path(name)} is not there", path=self.path(name))
            return self._store.files[name]

        return self._read("read", name, found)

    def exists(self, name: str) -> bool:
        try:
            found = self._read("exists", name, lambda: name in self._store.files)
        except StorageError:
            self._looked(name, "error")
            raise
        self._looked(name, "fenced" if found else "clear")
        return found

    def size(self, name: str) -> int:
        return len(self.read(name))

    def modified_ms(self, name: str) -> int | None:
        self.read(name)
        return None

    def list(self, folder: str = "") -> list[str]:
        found = self._read("list", folder, lambda: self._store.listed(folder))
        if folder == names.DONE:
            self._store.history.knew.setdefault(self._driver, self._store.history.next_step())
        return found

    def _looked(self, name: str, answer: str) -> None:
        if names.parse_epoch(name) is not None:
            history = self._store.history
            history.looks.append(Look(history.next_step(), self._store.now_ms(), self._driver, answer))

    def _read(self, verb: str, name: str, effect: Callable[[], Any]) -> Any:
        self._point()
        if self._store.fault(writing=False) is not None:
            self._tell(f"{verb} {name} → error")
            raise _error(verb, name)
        self._tell(f"{verb} {name}")
        return effect()

    def _write(self, verb: str, name: str, data: bytes) -> None:
        self._point()
        fault = self._store.fault(writing=True)
        if fault == "doubled" and verb != "create":
            fault = None
        if fault == "lost":
            done = False
        elif fault == "delayed":
            self._store.delayed.append(_Write(self._driver, verb, name, data))
            done = False
        else:
            done = self._store.apply(self._driver, verb, name, data)
        taken = verb == "create" and not done and fault not in ("lost", "delayed")
        self._tell(f"{verb} {name}{f' → {fault}' if fault else ''}{' → taken' if taken else ''}")
        self._point()
        if taken or fault == "doubled":
            raise AlreadyExistsError(f"{self.path(name)} exists already", path=self.path(name))
        if fault is not None:
            raise _error(verb, name)


def _error(verb: str, name: str) -> StorageError:
    return StorageError(f"cannot {verb} {URL}/{name}: the simulated store failed", path=f"{URL}/{name}")
