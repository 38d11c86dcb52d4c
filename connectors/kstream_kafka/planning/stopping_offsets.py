"""StoppingOffsets: the offsets at which a bounded run ends. They become known at the start, or when their time has come.

As soon as they are known, every plan stores them. So after a restart the run ends at the same offsets, and not at a later `latest`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from kstream.offsets.offset_range import Partition
from kstream.offsets.positions import Position, Positions
from kstream_kafka.client.ports import DriverClient, LogEnd
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.missing_partitions import check_none_missing
from kstream_kafka.planning.partition_offsets import LogEndSnapshot
from kstream_kafka.planning.starting_offsets import OffsetResolver

KEY = "untilOffsets"
"""The user's parameter, for errors."""


class StoppingOffsets:
    """The stopping offsets of a stream. Used only on the driver. Not thread-safe: one thread at a time.

    Without positions the run has no end. A time in the future has no offset yet, so the stream runs without a bound until the first batch
    that is planned at or after that time.
    """

    def __init__(self, given: Positions, resolver: OffsetResolver) -> None:
        """Create the stopping offsets of a stream. Sends no request.

        Args:
            given: the user's positions, perhaps none.
            resolver: turns positions into offsets.
        """
        self._given = given
        self._resolver = resolver
        self._ends: dict[Partition, int] | None = None
        self._checked = False

    @property
    def known(self) -> bool:
        return self._ends is not None

    @property
    def offsets(self) -> dict[Partition, int] | None:
        """The stopping offset of each partition, for the plan; None while they are unknown."""
        return self._ends

    def restore(self, stored: Mapping[Partition, int] | None, partitions: Collection[Partition]) -> None:
        """Use the stopping offsets of the newest plan, at a restart. A run without positions ignores them.

        Args:
            stored: the stopping offsets of the plan; None if it has none.
            partitions: the partitions that are still read. Others are left out.
        """
        self._checked = True
        if stored is not None and self._given:
            self._ends = {p: offset for p, offset in stored.items() if p in partitions}

    def reset(self) -> None:
        """Forget the stopping offsets, because the stored run has reached them.

        The next `resolve` finds new ones for this run. A nightly job up to `latest` works so.
        """
        self._ends = None

    def resolve(self, client: DriverClient, partitions: Mapping[Partition, int], time_ms: int, missing: Collection[Partition] = ()) -> None:
        """Turn the positions into offsets, unless they are known or a position is a time after `time_ms`. Blocks on the brokers then.

        No partition ends before its next offset. One without a position was found while the run had no bound yet: it ends where it is.

        Args:
            client: the driver's client.
            partitions: the next offset of each partition.
            time_ms: the wall clock, in ms.
            missing: partitions that the brokers do not show at the moment.

        Raises:
            TopicNotAvailableError: the brokers must be asked, and a partition is missing.
            KafkaConfigError: a partition has no position, at the first call of a run that was not restored.
            KafkaError: an error of the client.
        """
        if not self._given or self._ends is not None:
            return
        positions = {p: self._given.of(p) for p in partitions}
        endless = sorted(p for p, at in positions.items() if at is None)
        if endless and self._checked:  # found before the stopping offsets were known: this run does not read them
            positions.update({p: Position("offset", partitions[p]) for p in endless})
        elif endless:
            raise KafkaConfigError(KEY, f"has no end for {endless}", "Give one for every partition, or one position for all.")
        self._checked = True
        if any(at is not None and at.kind == "time" and at.value > time_ms for at in positions.values()):
            return
        check_none_missing(missing)
        ends = self._resolver.resolve(client, positions)
        self._ends = {p: max(ends[p], at) for p, at in partitions.items()}

    def limit(self, snapshot: LogEndSnapshot) -> LogEndSnapshot:
        """Return the snapshot with each log end lowered to its stopping offset, if that is known. Pure."""
        if self._ends is None:
            return snapshot
        ends = self._ends
        latest = {p: LogEnd(min(end.offset, ends.get(p, end.offset)), end.leader_epoch) for p, end in snapshot.latest.items()}
        return replace(snapshot, latest=latest)

    def reached(self, offsets: Mapping[Partition, int]) -> bool:
        """Return whether every partition is planned up to its stopping offset. False while the stopping offsets are unknown.

        Args:
            offsets: the next offset of each partition after the last durable plan.
        """
        return self._ends is not None and all(offsets.get(p, -1) >= at for p, at in self._ends.items())
