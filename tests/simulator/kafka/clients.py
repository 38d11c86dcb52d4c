"""The two clients of a simulated cluster: the driver's, and that of a job's reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstream_kafka.client.ports import FetchErrorKind, LogEnd, Subscription
from kstream_kafka.errors import BrokerUnreachableError, LeaderNotAvailableError, UnknownTopicError

from kstream.offsets.offset_range import Partition
from tests.simulator.kafka.cluster import TOPIC, Log, Record, SimulatedCluster
from tests.simulator.source import Surroundings


class SimulatedDriverClient:
    """The `DriverClient` of one driver. `seen[p]`: the records it was last told to be there."""

    def __init__(self, cluster: SimulatedCluster, surroundings: Surroundings) -> None:
        self._cluster = cluster
        self._surroundings = surroundings
        self.seen: dict[Partition, list[Record]] = {}

    def partitions(self, subscription: Subscription) -> set[Partition]:
        self._ask("partitions")
        self._must_exist()
        return {p for p in self._cluster.logs if subscription.wants(p[0])}

    def describe_topics(self, topics: Collection[str]) -> dict[str, frozenset[int]]:
        self._ask("topics by name")
        return {topic: frozenset(n for t, n in self._cluster.logs if t == topic and self._cluster.exists) for topic in topics}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of topics that are there, by name."""
        self._ask("topic ids")
        return self._cluster.topic_ids(topics)

    def latest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        self._ask("latest")
        found = self._logs(partitions)
        for p, log in found.items():
            self.seen[p] = list(log.records)
        return {p: LogEnd(log.end, log.epoch) for p, log in found.items()}

    def earliest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        self._ask("earliest")
        return {p: LogEnd(log.begin, log.epoch) for p, log in self._logs(partitions).items()}

    def at_times(self, times_ms: Sequence[int], partitions: Collection[Partition]) -> list[dict[Partition, int | None]]:
        self._ask(f"offsets of {len(times_ms)} times")
        logs = self._logs(partitions)
        return [{p: _first_since(log, ms) for p, log in logs.items()} for ms in times_ms]

    def committed(self, group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        return {}

    def commit(self, group: str, offsets: Mapping[Partition, int], on_done: Callable[[Exception | None], None]) -> None:
        on_done(None)

    def leader_hosts(self) -> dict[Partition, str]:
        return {}

    def close(self) -> None:
        """Holds nothing."""

    def _ask(self, what: str) -> None:
        self._surroundings.point(f"Kafka: {what}?")
        if self._cluster.silent > 0:
            self._cluster.silent -= 1
            raise BrokerUnreachableError("simulated:9092", 1000)

    def _must_exist(self) -> None:
        if not self._cluster.exists:
            self._cluster.noticed = True
            raise UnknownTopicError([TOPIC], 0)

    def _logs(self, partitions: Collection[Partition]) -> dict[Partition, Log]:
        """The logs asked for, by topic and number; LeaderNotAvailableError if one has no leader just now."""
        self._must_exist()
        logs = {p: self._cluster.logs[p] for p in sorted(partitions) if p in self._cluster.logs}
        missing = {p: "no leader" for p, log in logs.items() if log.leaderless > 0}
        for p in missing:
            logs[p].leaderless -= 1
        if missing:
            raise LeaderNotAvailableError(missing, 1)
        return logs


def _first_since(log: Log, ms: int) -> int | None:
    return next((r.offset for r in log.records if r.timestamp_ms >= ms), None)


@dataclass(slots=True)
class SimulatedMessage:
    """A record, or an event when `trouble` is set."""

    where: Partition
    at: int
    record: Record | None = None
    trouble: FetchErrorKind | None = None

    def error(self) -> FetchErrorKind | None:
        return self.trouble

    def topic(self) -> str:
        return self.where[0]

    def partition(self) -> int:
        return self.where[1]

    def headers(self) -> None:
        return None

    def key(self) -> None:
        return None

    def value(self) -> bytes | None:
        return None if self.record is None else self.record.ident.encode()

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return (1, 0 if self.record is None else self.record.timestamp_ms)

    def leader_epoch(self) -> int | None:
        return None if self.record is None else self.record.epoch


@dataclass(slots=True)
class _Fetch:
    where: Partition
    position: int
    epoch: int | None
    told_end: bool = False


class SimulatedConsumer:
    """The `RangeConsumer` of one job: a few records a call, so that much may happen in between."""

    def __init__(self, cluster: SimulatedCluster, surroundings: Surroundings, most: int) -> None:
        self._cluster = cluster
        self._surroundings = surroundings
        self._most = most
        self._fetches: list[_Fetch] = []

    def assign(self, begins: Sequence[tuple[str, int, int, int | None]]) -> None:
        self._fetches = [_Fetch((topic, number), at, epoch) for topic, number, at, epoch in begins]

    def reconnect(self) -> None:
        self._fetches = []

    def unassign(self) -> None:
        self._fetches = []

    def consume(self, number: int, timeout: float) -> list[Any]:
        self._surroundings.point("Kafka: fetch")
        if self._cluster.silent > 0:
            self._cluster.silent -= 1
            messages = []
        else:
            messages = [m for fetch in self._fetches for m in self._fetched(fetch)][:number]
        for message in messages:
            self._advance(message)
        if not messages and timeout > 0:
            self._surroundings.sleep(round(timeout * 1000))
        return messages

    def _fetched(self, fetch: _Fetch) -> list[SimulatedMessage]:
        """What the leader gives of one partition: some records, one event, or nothing."""
        log = self._cluster.logs.get(fetch.where) if self._cluster.exists else None
        if log is None or log.leaderless > 0:
            if log is not None:
                log.leaderless -= 1
            return [SimulatedMessage(fetch.where, fetch.position, trouble=FetchErrorKind.RETRIABLE)]
        refused = fetch.epoch is not None and fetch.position > log.end_of_epoch(fetch.epoch)
        if refused or not log.begin <= fetch.position <= log.end:
            return [SimulatedMessage(fetch.where, fetch.position, trouble=FetchErrorKind.OUT_OF_RANGE)]
        records = [r for r in log.records if r.offset >= fetch.position][: self._most]
        if not records and not fetch.told_end:
            return [SimulatedMessage(fetch.where, log.end, trouble=FetchErrorKind.END_OF_PARTITION)]
        return [SimulatedMessage(fetch.where, r.offset, r) for r in records]

    def _advance(self, message: SimulatedMessage) -> None:
        fetch = next(f for f in self._fetches if f.where == message.where)
        if message.record is not None:
            fetch.position, fetch.epoch = message.at + 1, message.record.epoch
            log = self._cluster.logs[message.where]
            log.read_to = max(log.read_to, message.at + 1)
        elif message.trouble is FetchErrorKind.END_OF_PARTITION:
            fetch.told_end = True

    def classify_error(self, error: Any) -> FetchErrorKind:
        return error

    def log_range(self, topic: str, partition: int) -> tuple[int | None, int | None]:
        self._surroundings.point("Kafka: log range?")
        log = self._cluster.logs.get((topic, partition))
        return (None, None) if log is None or self._cluster.silent > 0 or not self._cluster.exists else (log.begin, log.end)

    def topic_ids(self, topics: Collection[str], fresh: bool = False) -> dict[str, str]:
        self._surroundings.point("Kafka: topic ids?")
        return self._cluster.topic_ids(topics)

    def last_error(self) -> str:
        return ""

    def close(self) -> None:
        self._fetches = []
