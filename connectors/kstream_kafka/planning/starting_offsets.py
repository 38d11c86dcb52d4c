"""OffsetResolver: turns positions into offsets. Partitions with equal positions share a request. The resolver moves no offset."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from kstream.offsets.offset_range import Partition
from kstream.offsets.positions import Position
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.errors import KafkaConfigError

logger = logging.getLogger("kstream.kafka")

EARLIEST = Position("earliest")
COMMITTED = Position("committed")


class OffsetResolver:
    """Turns positions into offsets, by requests to the brokers. Thread-safe: it holds only settings.

    If the group has no commit for a partition, or one outside of the log, `auto.offset.reset` decides, as for Kafka's consumers. A time
    after every record means the end of the log. Relative positions count from the moment of the call.
    """

    def __init__(self, reset: str, group: str | None, now_ms: Callable[[], int]) -> None:
        """Create a resolver.

        Args:
            reset: the value of auto.offset.reset: "earliest", "latest" or "error".
            group: the consumer group; None if there is none.
            now_ms: the wall clock, in ms.
        """
        self._reset = reset
        self._group = group
        self._now_ms = now_ms

    def resolve(self, client: DriverClient, positions: Mapping[Partition, Position | None]) -> dict[Partition, int]:
        """Return the offset of each partition. Blocks on the brokers.

        Args:
            client: the driver's client.
            positions: partition → position. None means `auto.offset.reset`.

        Returns:
            partition → offset.

        Raises:
            KafkaConfigError: a partition has no position or no commit, and `reset` is "error". Or it has "committed" without a group.id.
            KafkaError: an error of the client.
        """
        by_kind: dict[str, dict[Partition, int]] = defaultdict(dict)
        for partition, position in positions.items():
            chosen = self._by_reset(partition) if position is None else position
            by_kind[chosen.kind][partition] = chosen.value
        found: dict[Partition, int] = {}
        for kind, values in by_kind.items():
            found.update(self._of_kind(client, kind, values))
        return found

    def _by_reset(self, partition: Partition) -> Position:
        """Return the position by `auto.offset.reset`. KafkaConfigError, which names the partition, if that is "error"."""
        if self._reset == "error":
            topic, number = partition
            hint = "Give a start for every partition, or auto.offset.reset earliest or latest."
            raise KafkaConfigError("auto.offset.reset", f"is 'none' and {topic}-{number} is given no offset", hint)
        return Position("earliest" if self._reset == "earliest" else "latest")

    def _of_kind(self, client: DriverClient, kind: str, values: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the offsets of positions of one kind. Blocks, except for the kind "offset".

        Args:
            client: the driver's client.
            kind: the kind, of `Position`; what no other case has is "committed".
            values: partition → the value of its position, as the milliseconds of "ago".
        """
        match kind:
            case "offset":
                return dict(values)
            case "earliest":
                return _begin(client, values)
            case "latest":
                return _end(client, values)
            case "back":
                begin, end = _begin(client, values), _end(client, values)
                return {p: max(begin[p], end[p] - number) for p, number in values.items()}
            case "ago":
                now = self._now_ms()
                return _at_times(client, {p: now - ms for p, ms in values.items()})
            case "time":
                return _at_times(client, values)
            case _:
                return self._committed(client, values.keys())

    def _committed(self, client: DriverClient, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the committed offsets. Without a commit, or if it is outside of the log, `auto.offset.reset` decides. Blocks.

        KafkaConfigError without a group.
        """
        if not self._group:
            raise KafkaConfigError("group.id", "is missing", "To start at committed offsets, name the group that committed them.")
        begin, end = _begin(client, partitions), _end(client, partitions)
        committed = client.committed(self._group, partitions)
        inside = {p: at for p, at in committed.items() if begin[p] <= at <= end[p]}
        for topic, number in sorted(committed.keys() - inside.keys()):
            p = (topic, number)
            logger.warning(
                "%s-%d: the committed offset %d of group %s is outside of the log [%d, %d): auto.offset.reset decides",
                topic,
                number,
                committed[p],
                self._group,
                begin[p],
                end[p],
            )
        rest = {p: None for p in partitions if p not in inside}
        return {**inside, **(self.resolve(client, rest) if rest else {})}


def _begin(client: DriverClient, partitions: Collection[Partition]) -> dict[Partition, int]:
    """Return the first offset of each log. Blocks."""
    return {p: end.offset for p, end in client.earliest(partitions).items()}


def _end(client: DriverClient, partitions: Collection[Partition]) -> dict[Partition, int]:
    """Return the end offset of each log. Blocks."""
    return {p: end.offset for p, end in client.latest(partitions).items()}


def _at_times(client: DriverClient, times_ms: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return the first offset at or after each partition's time, or the end of its log. Blocks: each different time is a request."""
    found: dict[Partition, int] = {}
    for ms in sorted(set(times_ms.values())):
        partitions = [p for p, at in times_ms.items() if at == ms]
        [answer] = client.at_times([ms], partitions)
        late = [p for p in partitions if answer[p] is None]
        end = _end(client, late) if late else {}
        found.update({p: end[p] if (at := answer[p]) is None else at for p in partitions})
    return found
