"""SimulatedBroker: logs, transactions and their coordinator, as brokers keep them. No step of it waits, and nothing in it is by chance.

What lies between two steps of real brokers lies between two calls here: the verdict of a transaction and each of its markers, a request
and its arrival. Whoever holds the seed makes the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kstream_kafka.errors import ProducerFencedError

Place: TypeAlias = tuple[str, int]
"""A topic and one of its partitions."""


@dataclass(eq=False)
class SimulatedTransaction:
    """A transaction.

    Attributes:
        id: the transactional id.
        epoch: that of its producer.
        deadline_ms: when the coordinator aborts it.
        verdict: whether it is committed; None while it is open.
        places: where it has records.
        unmarked: where its marker is still to be written, once there is a verdict.
    """

    id: str
    epoch: int
    deadline_ms: int
    verdict: bool | None = None
    places: list[Place] = field(default_factory=list[Place])
    unmarked: list[Place] = field(default_factory=list[Place])


@dataclass(eq=False)
class StoredRecord:
    """A record of a log, or the marker at the end of a transaction. Its methods are those of a message of the client."""

    place: Place
    at: int
    its_key: bytes | None
    its_value: bytes | None
    of: SimulatedTransaction | None = None
    is_marker: bool = False

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.its_key

    def value(self) -> bytes | None:
        return self.its_value

    @property
    def is_committed(self) -> bool:
        return not self.is_marker and (self.of is None or self.of.verdict is True)


class SimulatedLog:
    """A partition. `end` is its high watermark."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.records: list[StoredRecord] = []
        self.ever: list[StoredRecord] = []
        """Also what compaction has removed."""
        self.end = 0
        self.open: dict[SimulatedTransaction, int] = {}
        """The transactions that have no marker here → the offset of their first record."""

    def append(
        self, key: bytes | None, value: bytes | None, of: SimulatedTransaction | None = None, is_marker: bool = False
    ) -> StoredRecord:
        record = StoredRecord(self.place, self.end, key, value, of, is_marker)
        if of is not None and not is_marker:
            self.open.setdefault(of, self.end)
        self.records.append(record)
        self.ever.append(record)
        self.end += 1
        return record

    @property
    def stable_end(self) -> int:
        """The last stable offset: a reader of committed records gets none from there on."""
        return min(self.open.values(), default=self.end)

    def committed(self, begin: int, end: int) -> list[StoredRecord]:
        """The committed records of a part of the log."""
        end = min(end, self.stable_end)
        return [record for record in self.records if begin <= record.at < end and record.is_committed]

    def compact(self) -> int:
        """Keep the newest committed record of each key. Return how many records are removed. What is not stable stays as it is."""
        stable = self.stable_end
        newest = {record.its_key: record.at for record in self.records if record.at < stable and record.is_committed}
        kept = [r for r in self.records if r.at >= stable or (r.is_committed and newest[r.its_key] == r.at)]
        removed = len(self.records) - len(kept)
        self.records = kept
        return removed


@dataclass
class SimulatedTopic:
    """A topic: its id and its partitions."""

    id: str
    logs: list[SimulatedLog]


@dataclass
class _Producer:
    """What the coordinator knows of a transactional id."""

    epoch: int = 0
    transaction: SimulatedTransaction | None = None


class SimulatedBroker:
    """All topics, and the coordinator of all transactions."""

    def __init__(self) -> None:
        self.topics: dict[str, SimulatedTopic] = {}
        self.markers: list[tuple[SimulatedTransaction, Place]] = []
        """Decided, and still to be written."""
        self.late: list[tuple[str, Callable[[], None]]] = []
        """Requests that are on their way although their clients have given up."""
        self._producers: dict[str, _Producer] = {}
        self._made = 0

    # -- topics

    def create(self, topic: str, partitions: int) -> None:
        self._made += 1
        self.topics[topic] = SimulatedTopic(f"id {self._made}", [SimulatedLog((topic, number)) for number in range(partitions)])

    def delete(self, topic: str) -> None:
        """Delete a topic with all that is in it."""
        self.topics.pop(topic, None)
        for producer in self._producers.values():
            if producer.transaction is not None:
                producer.transaction.places = [place for place in producer.transaction.places if place[0] != topic]
                producer.transaction.unmarked = [place for place in producer.transaction.unmarked if place[0] != topic]
        self.markers = [(transaction, place) for transaction, place in self.markers if place[0] != topic]

    def log(self, place: Place) -> SimulatedLog | None:
        topic = self.topics.get(place[0])
        return None if topic is None or place[1] >= len(topic.logs) else topic.logs[place[1]]

    def committed(self, topic: str) -> list[StoredRecord]:
        """All committed records of a topic."""
        return [record for log in self.topics[topic].logs for record in log.committed(0, log.end)]

    # -- transactions

    def take(self, transactional_id: str) -> int | None:
        """Take an id: an open transaction of it is aborted. Return the new epoch; None if markers come first: the client asks again."""
        producer = self._producers.setdefault(transactional_id, _Producer())
        transaction = producer.transaction
        if transaction is not None and transaction.verdict is None:
            producer.epoch += 1
            self._decide(transaction, is_committed=False)
        if transaction is not None and transaction.unmarked:
            return None
        producer.epoch, producer.transaction = producer.epoch + 1, None
        return producer.epoch

    def is_free(self, transactional_id: str) -> bool:
        """Whether no transaction of an id waits for its markers."""
        transaction = self._producers[transactional_id].transaction
        return transaction is None or not transaction.unmarked

    def write(
        self, transactional_id: str, epoch: int, deadline_ms: int, records: Sequence[tuple[Place, bytes | None, bytes | None]]
    ) -> list[StoredRecord]:
        """Store records in the transaction of a producer. The first ones begin it. ProducerFencedError."""
        producer = self._owned(transactional_id, epoch)
        if producer.transaction is None:
            producer.transaction = SimulatedTransaction(transactional_id, epoch, deadline_ms)
        transaction, stored = producer.transaction, list[StoredRecord]()
        for place, key, value in records:
            if (log := self.log(place)) is not None:
                stored.append(log.append(key, value, transaction))
                if place not in transaction.places:
                    transaction.places.append(place)
        return stored

    def end(self, transactional_id: str, epoch: int, is_committed: bool) -> None:
        """Decide the transaction of a producer. A second request of it changes nothing. ProducerFencedError."""
        transaction = self._owned(transactional_id, epoch).transaction
        if transaction is not None and transaction.verdict is None:
            self._decide(transaction, is_committed)

    def open_transactions(self) -> list[SimulatedTransaction]:
        return [p.transaction for p in self._producers.values() if p.transaction is not None and p.transaction.verdict is None]

    def time_out(self, transaction: SimulatedTransaction) -> None:
        """Abort a transaction that was open for too long. Its producer can write no more."""
        self._producers[transaction.id].epoch += 1
        self._decide(transaction, is_committed=False)

    def write_marker(self, number: int) -> str:
        """Write one of the markers that are still to be written. Return a line about it."""
        transaction, place = self.markers.pop(number)
        log = self.log(place)
        assert log is not None
        transaction.unmarked.remove(place)
        log.append(None, None, transaction, is_marker=True)
        log.open.pop(transaction, None)
        return (
            f"{'commit' if transaction.verdict else 'abort'} marker of {transaction.id} epoch {transaction.epoch} in {place[0]}-{place[1]}"
        )

    def _owned(self, transactional_id: str, epoch: int) -> _Producer:
        producer = self._producers[transactional_id]
        if producer.epoch != epoch:
            raise ProducerFencedError(transactional_id, f"epoch {epoch} is over")
        return producer

    def _decide(self, transaction: SimulatedTransaction, is_committed: bool) -> None:
        transaction.verdict, transaction.unmarked = is_committed, list(transaction.places)
        self.markers += [(transaction, place) for place in transaction.places]
