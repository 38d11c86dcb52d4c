"""UnknownIds: the ids that a schema registry does not know. Pure: the clock is an argument.

Damaged records have any ids. They must become neither a request each nor a wait each, nor fill the memory of a process. But an id may be
so new that the follower which was asked does not know it yet: then it is asked again a moment later.
"""

from __future__ import annotations

UNKNOWN_FOR_S = 60.0
"""How long a process believes that the registry does not know an id."""
MOST = 1000
"""With so many unknown ids within that time, every other id that the process has not met is taken for unknown, too.

It is high, since a good schema may be among the others. The numbers of a registry are small, and a chunk asks for them in rising
order: so a good one comes before those of damaged values."""
AGAIN_AFTER_S = (0.2, 0.5)
"""The pauses before an unknown id is asked for again, and once more."""
PATIENT_FOR = 3
"""For so many unknown ids within that time the registry is asked again."""


class UnknownIds:
    """The ids that a registry did not know within the last minute. At most MOST of them. Needs the lock of its owner."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}

    @property
    def are_too_many(self) -> bool:
        """Whether no other id is asked for."""
        return len(self._until) >= MOST

    def pauses(self, schema_id: int, now: float) -> tuple[float, ...] | None:
        """Return the pauses, in seconds, after which an id is asked for again if it is unknown. None if it is not to be asked for at all.

        Args:
            schema_id: an id that the process has no schema of.
            now: the seconds of the clock.
        """
        self._until = {number: until for number, until in self._until.items() if until > now}
        if schema_id in self._until or self.are_too_many:
            return None
        return AGAIN_AFTER_S if len(self._until) < PATIENT_FOR else ()

    def add(self, schema_id: int, now: float) -> None:
        """Note that the registry does not know an id now."""
        if not self.are_too_many:
            self._until[schema_id] = now + UNKNOWN_FOR_S
