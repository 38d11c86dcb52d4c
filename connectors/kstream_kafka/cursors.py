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

logger = logging.getLogger("kstream.kafka")


@dataclass(frozen=True, slots=True)
class Survey:
    """What a plan is made of: next offsets, ends of the logs, and partitions that wait for their log to reach the start given."""

    current: Mapping[Partition, int]
    latest: Mapping[Partition, LogEnd]
    ahead: frozenset[Partition]


class Cursors:
    """Driver only, one thread at a time. `given` are start offsets by partition: then those partitions are read and no other.

    Without `given`, partitions are looked for every `max_age_ms`; one found after the start begins at its earliest record, whatever
    the reset policy says, or what was written to it before it was noticed would be lost.
    """

    def __init__(
        self, subscription: Subscription, reset: str, given: Mapping[Partition, int], max_age_ms: int, monotonic_ms: Callable[[], int]
    ) -> None:
        self._subscription = subscription
        self._reset = reset
        self._given = dict(given)
        self._max_age_ms = max_age_ms
        self._monotonic_ms = monotonic_ms
        self._looked_ms: int | None = None
        self._next: dict[Partition, int] = {}
        self._found: dict[Partition, int] = {}  # seen, with their beginnings, but in no durable plan yet
        self._ahead: frozenset[Partition] = frozenset()

    @property
    def offsets(self) -> dict[Partition, int]:
        """The next offset of each partition."""
        return dict(self._next)

    @property
    def ahead(self) -> frozenset[Partition]:
        """Partitions whose given start lies past the log's end as last seen."""
        return self._ahead

    def begin(self, client: DriverClient) -> None:
        """First start: every partition gets its cursor. Asks the brokers; raises what the client raises, or KafkaConfigError."""
        known = client.partitions(self._subscription)
        if self._given:
            self._begin_at_given(client, known)
        elif self._reset == "error":
            raise KafkaConfigError("auto.offset.reset", "is 'none' and no fromOffsets are given", "Give a start: earliest or latest.")
        else:
            ends = client.earliest(known) if self._reset == "earliest" else client.latest(known)
            self._next = {p: end.offset for p, end in ends.items()}
        self._looked_ms = self._monotonic_ms()

    def restore(self, ranges: Sequence[OffsetRange], ahead: Sequence[Partition]) -> None:
        """Restart: the cursors stand behind the newest stored ranges. Partitions no longer asked for are let go, aloud."""
        stored = {(r.topic, r.partition): r.untilOffset for r in ranges}
        kept = {p: at for p, at in stored.items() if (p in self._given if self._given else self._subscription.wants(p[0]))}
        dropped = sorted(stored.keys() - kept.keys())
        if dropped:
            logger.warning("the checkpoint has offsets of partitions this stream no longer reads: %s", dropped)
        self._next = {**{p: at for p, at in self._given.items() if p not in kept}, **kept}
        self._ahead = frozenset(ahead) & kept.keys() | (self._given.keys() - kept.keys())

    def survey(self, client: DriverClient) -> Survey:
        """Looks for new partitions if it is time, and at the end of every log: one question. Moves nothing; may block."""
        self._look_for_partitions(client)
        current = {**self._found, **self._next}
        latest = client.latest(current.keys())
        ahead = frozenset(p for p in self._ahead if p in latest and latest[p].offset < current[p])
        return Survey(current, latest, ahead)

    def advance(self, ranges: Sequence[OffsetRange], ahead: Sequence[Partition]) -> None:
        """A plan of these ranges is durable: the next one begins where they end."""
        for r in ranges:
            self._next[r.topic, r.partition] = r.untilOffset
            self._found.pop((r.topic, r.partition), None)
        self._ahead = frozenset(ahead)

    def _begin_at_given(self, client: DriverClient, known: set[Partition]) -> None:
        unknown = sorted(self._given.keys() - known)
        if unknown:
            raise KafkaConfigError("fromOffsets", f"names partitions the cluster does not have: {unknown}")
        self._next = dict(self._given)
        latest = client.latest(self._given.keys())
        self._ahead = frozenset(p for p, at in self._given.items() if at > latest[p].offset)
        for p in sorted(self._ahead):
            logger.warning("%s-%d starts at offset %d, past its end %d: it waits until the log is so long",
                           *p, self._given[p], latest[p].offset)  # fmt: skip

    def _look_for_partitions(self, client: DriverClient) -> None:
        now = self._monotonic_ms()
        if self._given or (self._looked_ms is not None and now - self._looked_ms < self._max_age_ms):
            return
        known = client.partitions(self._subscription)
        gone = self._next.keys() - known
        if gone:
            raise PartitionRevokedError(gone)
        new = known - self._next.keys() - self._found.keys()
        if new:
            self._found.update({p: end.offset for p, end in client.earliest(new).items()})
            logger.info("new partitions, read from their beginning: %s", sorted(new))
        self._looked_ms = now


def ahead_of(data: Mapping[str, Any]) -> list[Partition]:
    """The waiting partitions of stored plan data."""
    return [(str(topic), int(number)) for topic, number in data.get("ahead", ())]
