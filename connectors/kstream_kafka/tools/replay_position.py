"""How far the letters of a dead-letter topic went back, and which of them a replay chooses by their exceptions. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ChosenExceptions:
    """The exceptions whose letters a replay puts back, by their class names: all of them, only some, or all but some.

    Attributes:
        only: the chosen ones; empty for all.
        all_but: those that are not chosen. Without `only`.
    """

    only: Collection[str] = ()
    all_but: Collection[str] = ()

    def __contains__(self, exception: str) -> bool:
        return exception in self.only if self.only else exception not in self.all_but

    @property
    def names(self) -> set[str]:
        """The exceptions that the user named."""
        return {*self.only, *self.all_but}


@dataclass(frozen=True)
class ReplayPosition:
    """The offset in a partition before which letters went back. After a replay of chosen exceptions some have an offset of their own.

    Attributes:
        offset: holds for all exceptions that `of_exception` does not have. It is the committed offset.
        of_exception: exception → its offset. It is the metadata of the commit.
    """

    offset: int = 0
    of_exception: Mapping[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def decode(cls, offset: int, metadata: str) -> ReplayPosition:
        """Return the position of a commit. ValueError for metadata that `encode` has not made."""
        if not metadata:
            return cls(offset)
        of_exception = json.loads(metadata)
        if not isinstance(of_exception, dict) or not all(isinstance(at, int) for at in of_exception.values()):
            raise ValueError(metadata)
        return cls(offset, of_exception)

    def encode(self) -> str:
        """Return the metadata of the commit, JSON; "" if one offset holds for all exceptions."""
        return json.dumps(self.of_exception, separators=(",", ":"), sort_keys=True) if self.of_exception else ""

    def of(self, exception: str) -> int:
        return self.of_exception.get(exception, self.offset)

    @property
    def first(self) -> int:
        """The offset before which no letter waits, whatever its exception."""
        return min([self.offset, *self.of_exception.values()])

    def after(self, until: int, chosen: ChosenExceptions) -> ReplayPosition:
        """Return the position after the chosen letters before `until` went back. It is nowhere earlier than this one."""
        offset = self.offset if chosen.only else max(self.offset, until)
        names = chosen.names | self.of_exception.keys()
        moved = {name: max(self.of(name), until) if name in chosen else self.of(name) for name in names}
        return ReplayPosition(offset, {name: at for name, at in moved.items() if at != offset})
