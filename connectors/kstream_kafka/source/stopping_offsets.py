"""Bounds: where a bounded run ends. Offsets that are known at the start, or become known when their time has come.

The ends are part of every plan once they are known, so that a restart ends at the same offsets and not at a later `latest`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kstream_kafka.client.ports import DriverClient, LogEnd, Partition
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.positions import Position, Positions
from kstream_kafka.source.partition_offsets import Survey
from kstream_kafka.source.starting_offsets import OffsetResolver

KEY = "untilOffsets"


class Bounds:
    """Driver only, one thread. Without positions nothing ends.

    A moment that lies ahead cannot be made an offset yet: the stream runs unbounded until the first batch at or after it.
    """

    def __init__(self, given: Positions, resolver: OffsetResolver) -> None:
        self._given = given
        self._resolver = resolver
        self._ends: dict[Partition, int] | None = None
        self._checked = False

    @property
    def known(self) -> bool:
        """Whether there are bounds, as offsets."""
        return self._ends is not None

    def restore(self, stored: Sequence[Sequence[Any]] | None, partitions: Collection[Partition]) -> None:
        """Restart: the ends of the newest stored plan, of the partitions still read, unless this run has no bounds."""
        self._checked = True
        if stored is not None and self._given:
            self._ends = {(str(t), int(n)): int(at) for t, n, at in stored if (str(t), int(n)) in partitions}

    def begin_again(self) -> None:
        """The run that was stored has reached its ends: this one sets its own, as a nightly job up to `latest` wants it."""
        self._ends = None

    def settle(self, client: DriverClient, partitions: Mapping[Partition, int], time_ms: int) -> None:
        """Makes the positions offsets, if that can be done by `time_ms`. `partitions` are those read, with their next offsets."""
        if not self._given or self._ends is not None:
            return
        positions = {p: self._given.of(p) for p in partitions}
        missing = sorted(p for p, at in positions.items() if at is None)
        if missing and self._checked:  # found while the ends were not known yet: they are none of this run's
            positions.update({p: Position("offset", partitions[p]) for p in missing})
        elif missing:
            raise KafkaConfigError(KEY, f"has no end for {missing}", "Give one for every partition, or one position for all.")
        self._checked = True
        if any(at is not None and at.kind == "time" and at.value > time_ms for at in positions.values()):
            return
        ends = self._resolver.resolve(client, positions)
        self._ends = {p: max(ends[p], at) for p, at in partitions.items()}

    def limit(self, survey: Survey) -> Survey:
        """The survey with no log ending past its bound."""
        if self._ends is None:
            return survey
        ends = self._ends
        latest = {p: LogEnd(min(end.offset, ends.get(p, end.offset)), end.leader_epoch) for p, end in survey.latest.items()}
        return Survey(survey.current, latest, survey.ahead)

    def reached(self, offsets: Mapping[Partition, int]) -> bool:
        """Whether every partition has been planned up to its end."""
        return self._ends is not None and all(offsets.get(p, -1) >= at for p, at in self._ends.items())

    def to_json(self) -> list[list[str | int]] | None:
        """`[[topic, partition, end], …]` for the plan; None while unknown."""
        return None if self._ends is None else [[*p, at] for p, at in sorted(self._ends.items())]
