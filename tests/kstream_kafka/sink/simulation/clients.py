"""The clients of a simulated broker, in the place of those of the sink. Each request is a step of the process that makes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from kstream_kafka.client.ports import Encoded, LogEnd, Subscription
from kstream_kafka.client.topic_reader import ReadLog
from kstream_kafka.errors import BrokerUnreachableError, CommitUnknownError, KafkaError, ProducerFencedError, UnknownTopicError

from .broker import Place, SimulatedBroker, SimulatedLog, SimulatedTransaction, StoredRecord
from .turns import Turns


class SimulatedKafka:
    """A broker behind the clients of all processes."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.broker = SimulatedBroker()
        self.stale_answers = 0
        """How many answers came from a leader of yesterday."""
        self.short_reads = 0
        """How many reads have ended at an open transaction, before the end of a log."""
        self.taken: dict[tuple[int, str], int] = {}
        """The number of a process and a transactional id that it has taken → the epoch."""
        self.held_up: Callable[[SimulatedTransaction], None] = lambda _: None
        """Hears of each open transaction for which a process waits."""

    def transaction(self, _settings: Any, transactional_id: str, timeout_ms: int, _topic: str) -> TransactionOnTurns:
        return TransactionOnTurns(self, transactional_id, timeout_ms)

    def reader(self, _settings: Any) -> ReaderOnTurns:
        return ReaderOnTurns(self)

    def client(self, _params: Any) -> ClientOnTurns:
        return ClientOnTurns(self)

    def producer(self, _settings: Any) -> ProducerOnTurns:
        return ProducerOnTurns(self)

    def ask(self, what: str) -> None:
        """Make a request that may have no answer, and is not done then. BrokerUnreachableError."""
        self.turns.point(what)
        if self.turns.fails(0.3):
            self.turns.note("no answer")
            raise BrokerUnreachableError("simulated:9092", 1000)

    # -- what brokers do by themselves

    def work(self, is_idle: bool) -> bool:
        """Let the brokers do something, if the seed says so, or nobody else does anything. Return whether they have."""
        broker, rng = self.broker, self.turns.rng
        if broker.markers and (is_idle or rng.random() < 0.5):
            self._note(broker.write_marker(rng.randrange(len(broker.markers))))
            return True
        if broker.late and rng.random() < (0.3 if is_idle else 0.03):
            self.arrive()
            return True
        return False

    def arrive(self) -> None:
        """Let a request arrive whose client has given up."""
        what, happens = self.broker.late.pop(self.turns.rng.randrange(len(self.broker.late)))
        self._note(f"late: {what}")
        with suppress(ProducerFencedError):
            happens()

    def pass_time(self, next_ms: int | None) -> int | None:
        """Return the next moment at which something happens: that of the processes, or the end of a transaction, which ends then."""
        transactions = self.broker.open_transactions()
        first = min(transactions, key=lambda transaction: transaction.deadline_ms, default=None)
        if first is None or (next_ms is not None and next_ms < first.deadline_ms):
            return next_ms
        self._note(f"the transaction of {first.id} epoch {first.epoch} has timed out")
        self.broker.time_out(first)
        return first.deadline_ms

    def _note(self, what: str) -> None:
        self.turns.note(what, "brokers")


class TransactionOnTurns:
    """Stands for `Transaction`."""

    def __init__(self, kafka: SimulatedKafka, transactional_id: str, timeout_ms: int) -> None:
        self._kafka, self._turns, self._broker = kafka, kafka.turns, kafka.broker
        self._id, self._timeout_ms = transactional_id, timeout_ms
        self._epoch = 0
        self._deadline_ms = 0
        self._has_begun = False
        self._waiting: list[tuple[Place, bytes | None, bytes | None, Callable[[int, int], None] | None]] = []

    def open(self) -> None:
        self._kafka.ask(f"takes id {self._id}")
        until = self._turns.now_ms + self._timeout_ms
        while (epoch := self._broker.take(self._id)) is None:
            if not self._turns.wait(lambda: self._broker.is_free(self._id), until - self._turns.now_ms):
                raise BrokerUnreachableError("simulated:9092", self._timeout_ms)
        self._epoch = self._kafka.taken[self._turns.current.number, self._id] = epoch
        self._turns.note(f"has id {self._id} epoch {epoch}")
        if self._turns.fails(0.2):
            self._turns.note("no answer")
            raise BrokerUnreachableError("simulated:9092", self._timeout_ms)

    def begin(self) -> None:
        self._has_begun, self._deadline_ms = True, self._turns.now_ms + self._timeout_ms

    def send_all(self, records: Iterable[Encoded]) -> None:
        for record in records:
            self.send(record)

    def send(self, record: Encoded, on_stored: Callable[[int, int], None] | None = None) -> None:
        topic, key, value, _, partition, _ = record
        self._waiting.append(((topic, partition or 0), key, value, on_stored))

    def failure(self) -> None:
        """Return None: `flush` has raised the error."""

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._turns.point(f"writes {', '.join(f'{topic}-{number}' for (topic, number), *_ in waiting)}")
        is_lost = self._turns.fails(0.5)
        if not is_lost or self._turns.rng.random() < 0.5:
            records = [(place, key, value) for place, key, value, _ in waiting]
            stored = self._broker.write(self._id, self._epoch, self._deadline_ms, records)
            if len(stored) < len(waiting):
                raise KafkaError("a topic is gone", reason="unknown topic")
            if not is_lost:
                _tell(stored, [on_stored for *_, on_stored in waiting])
        if is_lost:
            self._turns.note("no answer")
            raise BrokerUnreachableError("simulated:9092", self._timeout_ms)

    def commit(self) -> None:
        """A request may be lost, or arrive late, or its answer may be lost. After a lost answer the client asks again."""
        turns, rng = self._turns, self._turns.rng
        turns.point(f"commits {self._id} epoch {self._epoch}")
        if not turns.fails(3.0):
            self._broker.end(self._id, self._epoch, is_committed=True)
            self._has_begun = False
            turns.point("the commit is answered")
            return
        self._has_begun = False
        fate = rng.choice(["lost", "late", "answer"])
        turns.note({"lost": "the commit is lost", "late": "the commit is late", "answer": "the answer to the commit is lost"}[fate])
        if fate == "late":
            self._broker.late.append((f"commit of {self._id} epoch {self._epoch}", self._end))
        elif fate == "answer":
            self._end()
            turns.point("asks again")
            self._end()
        raise CommitUnknownError(self._id, "no answer")

    def _end(self) -> None:
        self._broker.end(self._id, self._epoch, is_committed=True)

    def close(self) -> None:
        if self._turns.strands.current.killed or not self._has_begun:
            return
        self._has_begun = False
        if self._turns.fails(0.2):  # then it ends by its time-out
            return
        with suppress(ProducerFencedError):
            self._broker.end(self._id, self._epoch, is_committed=False)


def _tell(stored: Sequence[StoredRecord], listeners: Sequence[Callable[[int, int], None] | None]) -> None:
    for record, on_stored in zip(stored, listeners, strict=True):
        if on_stored is not None:
            on_stored(record.partition(), record.at)


class ReaderOnTurns:
    """Stands for `TopicReader`. The first answers for the partitions come in any order, and between them others go on."""

    def __init__(self, kafka: SimulatedKafka) -> None:
        self._kafka, self._turns = kafka, kafka.turns

    def read(
        self,
        topic: str,
        begins: Mapping[int, int],
        seconds: float,
        wants: Callable[[bytes | None], bool] = lambda _: True,
        until: Mapping[int, int] | None = None,
        waits: bool = True,
        least: Mapping[int, int] | None = None,
    ) -> ReadLog:
        turns, found, until, least = self._turns, ReadLog([], {}), until or {}, least or {}
        self._kafka.ask(f"reads {topic} from {_shown(begins)}" + (f" up to {_shown(until)}" if until else "" if waits else " as it is"))
        deadline = turns.now_ms + round(seconds * 1000)
        places = list(begins)
        if len(places) > 1 and turns.rng.random() < 0.5:
            places.reverse()
        for place in places:
            log = self._log((topic, place), begins[place], deadline)
            target = until[place] if place in until else max(self._first_end(log, begins[place]), least.get(place, 0))
            if waits:
                self._wait(log, target, deadline)
            elif log.stable_end < target:
                self._kafka.short_reads += 1
                turns.note(f"ends at an open transaction in {topic}-{place}")
            records = log.committed(begins[place], target)
            found.messages.extend(record for record in records if wants(record.its_key))
            found.ends[place] = target if waits else max(begins[place], min(target, log.stable_end))
            if len(places) > 1 and turns.rng.random() < 0.1 * turns.chances.interrupt:
                turns.point(f"reads on behind partition {place}")
        return found

    def end(self, topic: str, partition: int, _seconds: float) -> int | None:
        self._turns.point(f"asks for the end of {topic}-{partition}")
        log = self._kafka.broker.log((topic, partition))
        return None if log is None or self._turns.fails(0.3) else self._first_end(log, 0)

    def close(self) -> None:
        pass

    def _log(self, place: Place, begin: int, deadline: int) -> SimulatedLog:
        log = self._kafka.broker.log(place)
        if log is None:
            self._turns.wait(lambda: False, deadline - self._turns.now_ms)
            raise BrokerUnreachableError("simulated:9092", 1000, f"{place} is unknown")
        if begin > log.end:
            raise KafkaError(f"{place}: an offset that was there is gone", reason="out of range")
        return log

    def _first_end(self, log: SimulatedLog, begin: int) -> int:
        """The high watermark of the first answer. A leader of yesterday has an earlier one."""
        turns = self._turns
        if turns.chances.is_stale and log.end > begin and turns.fails(1.0):
            end = turns.rng.randrange(begin, log.end)
            self._kafka.stale_answers += 1
            turns.note(f"a leader of yesterday answers for {log.place[0]}-{log.place[1]}: it ends at {end}, not at {log.end}")
            return end
        return log.end

    def _wait(self, log: SimulatedLog, target: int, deadline: int) -> None:
        if log.stable_end < target:
            self._turns.note(f"waits for an open transaction in {log.place[0]}-{log.place[1]}")
            for transaction in [transaction for transaction in log.open if transaction.verdict is None]:
                self._kafka.held_up(transaction)
            if not self._turns.wait(lambda: log.stable_end >= target, deadline - self._turns.now_ms):
                raise BrokerUnreachableError("simulated:9092", 1000, "a transaction is open")


def _shown(offsets: Mapping[int, int]) -> str:
    return " ".join(f"{place}:{offset}" for place, offset in sorted(offsets.items()) if offset or place == 0 or len(offsets) < 5)


class ClientOnTurns:
    """Stands for `KafkaDriverClient`."""

    def __init__(self, kafka: SimulatedKafka) -> None:
        self._kafka, self._broker = kafka, kafka.broker

    def create_topic(self, topic: str, partitions: int, _settings: Mapping[str, str]) -> bool:
        self._kafka.ask(f"makes topic {topic}, if there is none")
        if topic in self._broker.topics:
            return False
        self._broker.create(topic, partitions)
        return True

    def latest(self, partitions: Collection[Place]) -> dict[Place, LogEnd]:
        found = {place: self._broker.log(place) for place in partitions}
        return {place: LogEnd(log.end) for place, log in found.items() if log is not None}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        self._kafka.ask("asks for the topic id")
        return {topic: self._broker.topics[topic].id for topic in topics if topic in self._broker.topics}

    def partitions(self, subscription: Subscription) -> set[Place]:
        (topic,) = subscription.names
        if topic not in self._broker.topics:
            raise UnknownTopicError([topic], 0)
        return {log.place for log in self._broker.topics[topic].logs}

    def describe_topics(self, topics: Collection[str]) -> dict[str, frozenset[int]]:
        found = {topic: self._broker.topics[topic].logs for topic in topics if topic in self._broker.topics}
        return {topic: frozenset(range(len(found.get(topic, ())))) for topic in topics}

    def cluster_id(self) -> str:
        return "simulated"

    def topic_setting(self, _topic: str, _name: str) -> str:
        return "compact"

    def close(self) -> None:
        pass


class ProducerOnTurns:
    """Stands for `RecordProducer`."""

    def __init__(self, kafka: SimulatedKafka) -> None:
        self._kafka, self._turns = kafka, kafka.turns
        self._waiting: list[tuple[Place, bytes, bytes, Callable[[int, int], None]]] = []

    def send(
        self, topic: str, key: bytes, value: bytes, _headers: Any, _on_failure: Any, partition: int, on_stored: Callable[[int, int], None]
    ) -> None:
        self._waiting.append(((topic, partition), key, value, on_stored))

    def flush(self) -> int:
        """Store what was sent. From some record on, requests may be lost, or arrive late, or their answers may be lost."""
        turns, (waiting, self._waiting) = self._turns, (self._waiting, [])
        turns.point(f"writes its fence to {', '.join(f'{topic}-{number}' for (topic, number), *_ in waiting)}")
        answered = turns.rng.randrange(len(waiting)) if turns.fails(1.0) else len(waiting)
        for place, key, value, on_stored in waiting[:answered]:
            if turns.rng.random() < 0.1 * turns.chances.interrupt:
                turns.point(f"writes its fence to {place[0]}-{place[1]}, too")
            if (log := self._kafka.broker.log(place)) is not None:
                on_stored(place[1], log.append(key, value).at)
        fate = turns.rng.choice(["lost", "late", "answer"])
        for place, key, value, _ in waiting[answered:]:
            turns.note(f"the fence in {place[0]}-{place[1]} has no answer: {fate}")
            if fate == "late":
                self._kafka.broker.late.append(("a fence", partial(self._store, place, key, value)))
            elif fate == "answer":
                self._store(place, key, value)
        return len(waiting) - answered

    def _store(self, place: Place, key: bytes, value: bytes) -> None:
        if (log := self._kafka.broker.log(place)) is not None:
            log.append(key, value)
