"""StoppingOffsets: the end of a bounded run, as offsets that are known at the start or when their time has come.

Once they are known, every plan has them. So a restart ends at the same offsets, and not at a later `latest`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kstream_kafka.client.ports import DriverClient, LogEnd, Partition
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.positions import Position, Positions
from kstream_kafka.source.partition_offsets import LogEndSnapshot
from kstream_kafka.source.starting_offsets import OffsetResolver

KEY = "untilOffsets"


class StoppingOffsets:
    """The stopping offsets of a stream. Driver only, one thread. Without positions nothing ends.

    A moment in the future has no offset yet: the stream runs unbounded until the first batch at or after it.
    """

    def __init__(self, given: Positions, resolver: OffsetResolver) -> None:
        """Create them from the user's positions. Sends no request."""
        self._given = given
        self._resolver = resolver
        self._ends: dict[Partition, int] | None = None
        self._checked = False

    @property
    def known(self) -> bool:
        """Whether the stopping offsets are known."""
        return self._ends is not None

    @property
    def offsets(self) -> dict[Partition, int] | None:
        """The stopping offsets, for the plan; None while they are unknown."""
        return self._ends

    def restore(self, stored: Mapping[Partition, int] | None, partitions: Collection[Partition]) -> None:
        """Take the stopping offsets of the newest plan at a restart, unless this run has none.

        Args:
            stored: those of the plan.
            partitions: the partitions that are still read. Others are left out.
        """
        self._checked = True
        if stored is not None and self._given:
            self._ends = {p: offset for p, offset in stored.items() if p in partitions}

    def reset(self) -> None:
        """Forget the stopping offsets, because the stored run has reached them. This run resolves its own, as a nightly job to `latest`."""
        self._ends = None

    def resolve(self, client: DriverClient, partitions: Mapping[Partition, int], time_ms: int) -> None:
        """Turn the positions into offsets, if that is possible by `time_ms`. Blocks on the brokers.

        Args:
            client: the driver's client.
            partitions: the next offset of each partition.
            time_ms: the wall clock.

        Raises:
            KafkaConfigError: a partition has no position.
        """
        if not self._given or self._ends is not None:
            return
        positions = {p: self._given.of(p) for p in partitions}
        missing = sorted(p for p, at in positions.items() if at is None)
        if missing and self._checked:  # found before the stopping offsets were known: not part of this run
            positions.update({p: Position("offset", partitions[p]) for p in missing})
        elif missing:
            raise KafkaConfigError(KEY, f"has no end for {missing}", "Give one for every partition, or one position for all.")
        self._checked = True
        if any(at is not None and at.kind == "time" and at.value > time_ms for at in positions.values()):
            return
        ends = self._resolver.resolve(client, positions)
        self._ends = {p: max(ends[p], at) for p, at in partitions.items()}

    def limit(self, snapshot: LogEndSnapshot) -> LogEndSnapshot:
        """Return the snapshot with no log end after its stopping offset."""
        if self._ends is None:
            return snapshot
        ends = self._ends
        latest = {p: LogEnd(min(end.offset, ends.get(p, end.offset)), end.leader_epoch) for p, end in snapshot.latest.items()}
        return LogEndSnapshot(snapshot.current, latest, snapshot.ahead)

    def reached(self, offsets: Mapping[Partition, int]) -> bool:
        """Return whether every partition is planned up to its stopping offset."""
        return self._ends is not None and all(offsets.get(p, -1) >= at for p, at in self._ends.items())
