"""Cursors: the next offset of every partition a direct stream reads, and how partitions come to it.

One idea: looking is apart from moving. `survey` asks the brokers and changes no cursor; only `advance`, called when a plan is
durable, does. So a plan that could not be stored is as if it had never been: the next one starts at the same offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstream_kafka.errors import KafkaConfigError, PartitionRevokedError
from kstream_kafka.offset_range import OffsetRange
from kstream_kafka.ports import DriverClient, LogEnd, Partition, Subscription
from kstream_kafka.positions import Positions
from kstream_kafka.starts import EARLIEST, OffsetResolver

logger = logging.getLogger("kstream.kafka")


@dataclass(frozen=True, slots=True)
class Survey:
    """What a plan is made of: next offsets, ends of the logs, and partitions that wait for their log to reach the start given."""

    current: Mapping[Partition, int]
    latest: Mapping[Partition, LogEnd]
    ahead: frozenset[Partition]


class Cursors:
    """Driver only, one thread at a time. `starts` says where partitions begin that are there at the first start.

    Partitions are looked for every `max_age_ms`, unless the subscription names them one by one. One found after the start begins at
    its earliest record, whatever the reset policy says, or what was written to it before it was noticed would be lost; only an
    offset given for just that partition wins over that.
    """

    def __init__(
        self, subscription: Subscription, starts: Positions, resolver: OffsetResolver, max_age_ms: int, monotonic_ms: Callable[[], int]
    ) -> None:
        self._subscription = subscription
        self._starts = starts
        self._resolver = resolver
        self._max_age_ms = max_age_ms
        self._monotonic_ms = monotonic_ms
        self._looked_ms: int | None = None
        self._next: dict[Partition, int] = {}
        self._found: dict[Partition, int] = {}  # seen, with their beginnings, but in no durable plan yet
        self._ahead: frozenset[Partition] = frozenset()
        self.closed = False
        """Whether the partitions read are settled: no more are looked for (a bounded run)."""

    @property
    def offsets(self) -> dict[Partition, int]:
        """The next offset of each partition."""
        return dict(self._next)

    @property
    def positions(self) -> dict[Partition, int]:
        """The same, and the beginnings of partitions that are in no durable plan yet."""
        return {**self._found, **self._next}

    @property
    def ahead(self) -> frozenset[Partition]:
        """Partitions whose given start lies past the log's end as last seen."""
        return self._ahead

    def begin(self, client: DriverClient) -> None:
        """First start: every partition gets its cursor. Asks the brokers; raises what the client raises, or KafkaConfigError."""
        known = self._known(client)
        stray = sorted(self._starts.each.keys() - known)
        if stray:
            raise KafkaConfigError("fromOffsets", f"names partitions that this stream does not read or the cluster does not have: {stray}")
        self._next = self._resolver.resolve(client, {p: self._starts.of(p) for p in known})
        self._ahead = self._past_the_end(client, self._next)
        self._looked_ms = self._monotonic_ms()

    def restore(self, ranges: Sequence[OffsetRange], ahead: Sequence[Partition]) -> None:
        """Restart: the cursors stand behind the newest stored ranges. Partitions no longer asked for are let go, aloud."""
        stored = {(r.topic, r.partition): r.untilOffset for r in ranges}
        self._next = {p: at for p, at in stored.items() if self._reads(p)}
        dropped = sorted(stored.keys() - self._next.keys())
        if dropped:
            logger.warning("the checkpoint has offsets of partitions this stream no longer reads: %s", dropped)
        self._ahead = frozenset(ahead) & self._next.keys()

    def survey(self, client: DriverClient) -> Survey:
        """Looks for new partitions if it is time, and at the end of every log: one question. Moves nothing; may block."""
        self._look_for_partitions(client)
        current = self.positions
        latest = client.latest(current.keys())
        ahead = frozenset(p for p in self._ahead if p in latest and latest[p].offset < current[p])
        return Survey(current, latest, ahead)

    def advance(self, ranges: Sequence[OffsetRange], ahead: Sequence[Partition]) -> None:
        """A plan of these ranges is durable: the next one begins where they end."""
        for r in ranges:
            self._next[r.topic, r.partition] = r.untilOffset
            self._found.pop((r.topic, r.partition), None)
        self._ahead = frozenset(ahead)

    def _reads(self, partition: Partition) -> bool:
        fixed = self._subscription.fixed
        return partition in fixed if fixed else self._subscription.wants(partition[0])

    def _known(self, client: DriverClient) -> set[Partition]:
        """The partitions this stream reads, as the cluster has them now."""
        known = client.partitions(self._subscription)
        missing = sorted(set(self._subscription.fixed) - known)
        if missing and not self._next:
            raise KafkaConfigError("fromOffsets", f"names partitions the cluster does not have: {missing}")
        return {p for p in known if self._reads(p)}

    def _past_the_end(self, client: DriverClient, begins: Mapping[Partition, int]) -> frozenset[Partition]:
        """Those that begin at an offset given by the user which the log has not reached."""
        given = [p for p in begins if (position := self._starts.of(p)) is not None and position.kind == "offset"]
        latest = client.latest(given) if given else {}
        ahead = frozenset(p for p in given if begins[p] > latest[p].offset)
        for p in sorted(ahead):
            logger.warning("%s-%d starts at offset %d, past its end %d: it waits until the log is so long",
                           *p, begins[p], latest[p].offset)  # fmt: skip
        return ahead

    def _look_for_partitions(self, client: DriverClient) -> None:
        now = self._monotonic_ms()
        fixed = self._subscription.fixed
        if self.closed or (fixed and not set(fixed) - self._next.keys() - self._found.keys()):
            return
        if self._looked_ms is not None and now - self._looked_ms < self._max_age_ms:
            return
        known = self._known(client)
        gone = self._next.keys() - known
        if gone:
            raise PartitionRevokedError(gone)
        new = known - self._next.keys() - self._found.keys()
        if new:
            found = self._resolver.resolve(client, {p: self._starts.each.get(p, EARLIEST) for p in new})
            self._found.update(found)
            self._ahead |= self._past_the_end(client, {p: at for p, at in found.items() if p in self._starts.each})
            logger.info("new partitions: %s", {f"{t}-{n}": at for (t, n), at in sorted(found.items())})
        self._looked_ms = now


def ahead_of(data: Mapping[str, Any]) -> list[Partition]:
    """The waiting partitions of stored plan data."""
    return [(str(topic), int(number)) for topic, number in data.get("ahead", ())]
