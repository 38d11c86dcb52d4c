"""Dead letters for `kstream dlq`: reading a dead-letter topic, counting its letters, and putting records back into their topics.

What was put back is remembered as the commits of a consumer group named for the topic. The group has no members.
"""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kstream.connectors import LogRecord
from kstream.errors import ConfigurationError
from kstream.offsets.offset_range import Partition, PlannedRange, UnreadableRange
from kstream.printable import printable
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.record_producer import RecordProducer
from kstream_kafka.errors import KafkaError
from kstream_kafka.planning.dead_letter import DeadLetter, dead_letter_of
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.planning.subscription import Topics
from kstream_kafka.tools.record_reading import read_records
from kstream_kafka.tools.replay_position import ChosenExceptions, ReplayPosition

PORTION = 1000
"""The number of records that are put back before their offsets are committed."""
ALL = ChosenExceptions()
COMMIT_S = 30.0
"""Seconds to wait for the answer to a commit."""
Place = tuple[str, int | None, int | None]
"""Topic, partition and offset of origin."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of a dead-letter topic. `dead` is None if it is no dead letter."""

    record: LogRecord
    dead: DeadLetter | None


class DeadLetterTopic:
    """A dead-letter topic as a command sees it. One thread. All methods block on the brokers, and raise KafkaError."""

    def __init__(self, connection: Mapping[str, Any], topic: str) -> None:
        """
        Args:
            connection: the Kafka parameters.
            topic: the dead-letter topic.
        """
        self._connection = connection
        self._params = KafkaParams.parse(connection)
        self._client = KafkaDriverClient(self._params)
        self._topic = topic
        self.group = f"kstream-dlq-{topic}"
        """The consumer group whose offsets tell what was put back."""

    def close(self) -> None:
        self._client.close()

    def letters(self, begins: Mapping[Partition, int] | None = None) -> Iterator[Letter]:
        """Yield the letters that are in the topic now, partition by partition, oldest first.

        Args:
            begins: offsets of partitions, from which on they are read.
        """
        partitions = self._partitions()
        earliest, ends = self._client.earliest(partitions), self._client.latest(partitions)
        first = {p: min(max(earliest[p].offset, (begins or {}).get(p, 0)), ends[p].offset) for p in partitions}
        ranges = [PlannedRange(*p, first[p], ends[p].offset) for p in partitions]
        for found in read_records(self._connection, KafkaPlan([], [], []).encode(), ranges):
            if not isinstance(found, UnreadableRange):
                yield Letter(found, dead_letter_of(found.headers))

    def put_back(self, write: bool = True, chosen: ChosenExceptions = ALL) -> PutBack:
        """Put the records of letters back into their partitions of origin, without the headers of their errors.

        Letters that an earlier call has put back are left out, and so are repeats: of two letters of a record the first chosen one goes
        back. The topic is read twice, first for what was put back, because a repeat of it may be in any partition. A letter without all
        headers of its record is not put back. If the call is ended early, the next one may repeat up to PORTION records.

        Args:
            write: whether to write; otherwise the letters are only counted.
            chosen: the exceptions whose letters are put back. The others wait for a later call.

        Raises:
            ConfigurationError: no letter has an exception that `chosen` names.
        """
        result, positions = PutBack(), self._positions()
        seen = self._put_back_before(positions, chosen, result)
        producer = RecordProducer(self._params.producer()) if write else None
        read_until = dict.fromkeys(positions, 0)
        pending = 0
        for letter in self.letters({p: position.first for p, position in positions.items()}):
            record, dead = letter.record, letter.dead
            where = (record.topic, record.partition)
            waits = dead is not None and record.offset >= positions[where].of(dead.exception)
            if dead is not None and waits and result.take(dead, seen, chosen) and producer is not None:
                producer.send(dead.topic, record.key, record.value, dead.headers, result.failures.append, partition=dead.partition)
            read_until[where] = record.offset + 1
            pending += 1
            if producer is not None and pending == PORTION:
                self._commit(producer, result, after(positions, read_until, chosen))
                pending = 0
        if producer is not None:
            self._commit(producer, result, after(positions, read_until, chosen))
        return result

    def _partitions(self) -> list[Partition]:
        return sorted(self._client.partitions(Topics((self._topic,))))

    def _positions(self) -> dict[Partition, ReplayPosition]:
        """Return how far earlier calls have put letters back. KafkaError for a commit that none of them has made."""
        partitions = self._partitions()
        positions = dict.fromkeys(partitions, ReplayPosition())
        for partition, (offset, metadata) in self._client.committed_with_metadata(self.group, partitions).items():
            try:
                positions[partition] = ReplayPosition.decode(offset, metadata)
            except ValueError as e:
                words = f"the group {self.group} has a commit that `kstream dlq` has not made, with the metadata {metadata!r}"
                raise KafkaError(words, group=self.group, reason=metadata) from e
        return positions

    def _put_back_before(self, positions: Mapping[Partition, ReplayPosition], chosen: ChosenExceptions, result: PutBack) -> set[Place]:
        """Return the places of the letters that went back before, and count these and the records that are no letters. Reads the topic.

        Raises:
            ConfigurationError: no letter has an exception that `chosen` names.
        """
        places, exceptions = set[Place](), set[str]()
        for letter in self.letters():
            record, dead = letter.record, letter.dead
            if dead is None:
                result.others += 1
                continue
            exceptions.add(dead.exception)
            if record.offset < positions[record.topic, record.partition].of(dead.exception):
                places.add(dead.place)
                result.before += 1
        for name in sorted(chosen.names - exceptions):
            there = ", ".join(map(printable, sorted(exceptions)))
            words = f"no letter of {self._topic} has the exception {name!r}" + (f"; the letters have: {there}" if there else "")
            raise ConfigurationError(words, key="exception", value=name)
        return places

    def _commit(self, producer: RecordProducer, result: PutBack, positions: Mapping[Partition, ReplayPosition]) -> None:
        """Wait until all records are stored, then commit. KafkaError if a record was not stored, or for the commit."""
        unanswered = producer.flush()
        if result.failures or unanswered:
            no_answer = f"{', '.join(sorted(result.topics))}: {unanswered} records have had no answer"
            reason = result.failures[0] if result.failures else no_answer
            raise KafkaError(f"a record could not be put back into {reason}. The next run begins with it", reason=reason)
        answers: queue.Queue[Exception | None] = queue.Queue()
        offsets = {p: position.offset for p, position in positions.items()}
        self._client.commit(self.group, offsets, answers.put, {p: position.encode() for p, position in positions.items()})
        try:
            error: object = answers.get(timeout=COMMIT_S)
        except queue.Empty:
            error = "no answer"
        if error is not None:
            said = str(error)
            raise KafkaError(f"the records are put back, but the group {self.group} could not remember it: {said}", reason=said)


def after(
    positions: Mapping[Partition, ReplayPosition], read_until: Mapping[Partition, int], chosen: ChosenExceptions
) -> dict[Partition, ReplayPosition]:
    """Return the positions after the chosen letters before `read_until` went back. Pure."""
    return {p: position.after(read_until[p], chosen) for p, position in positions.items()}


@dataclass(slots=True)
class PutBack:
    """The result of putting letters back.

    Attributes:
        records: how many records went back.
        topics: the topics of origin.
        repeats: how many letters were repeats of others.
        before: how many letters an earlier call has put back.
        others: how many records of the topic are no dead letters.
        not_chosen: how many letters have an exception that is not chosen, and so wait.
        without_headers: how many letters lack headers of their record, and so stay where they are.
        failures: why records were not stored.
    """

    records: int = 0
    topics: set[str] = field(default_factory=set[str])
    repeats: int = 0
    before: int = 0
    others: int = 0
    not_chosen: int = 0
    without_headers: int = 0
    failures: list[str] = field(default_factory=list[str])

    def take(self, dead: DeadLetter, seen: set[Place], chosen: ChosenExceptions) -> bool:
        """Count a letter that did not go back before, and return whether its record goes back now. Then `seen` gets its place."""
        if dead.place in seen:
            self.repeats += 1
            return False
        if dead.exception not in chosen:
            self.not_chosen += 1
            return False
        seen.add(dead.place)
        if not dead.has_headers:
            self.without_headers += 1
            return False
        self.records += 1
        self.topics.add(dead.topic)
        return True


@dataclass(slots=True)
class LetterCount:
    """The letters of one kind: how many, and of how many records."""

    letters: int = 0
    places: set[Place] = field(default_factory=set[Place])


Kind = tuple[str, str, str, int | None]
"""Topic of origin, class of the exception, operator; batch time in ms, or None for all batches together."""


def counts_by_kind(letters: Iterable[Letter], by_batch: bool = False) -> tuple[dict[Kind, LetterCount], int]:
    """Count letters by topic of origin, exception and operator. Pure.

    Args:
        letters: the letters.
        by_batch: whether each batch counts by itself.

    Returns:
        The counts by kind, sorted; and the number of records that are no dead letters.
    """
    found: dict[Kind, LetterCount] = {}
    others = 0
    for letter in letters:
        dead = letter.dead
        if dead is None:
            others += 1
            continue
        batch_ms = dead.batch_ms if by_batch else None
        counted = found.setdefault((dead.topic, dead.exception, dead.operator, batch_ms), LetterCount())
        counted.letters += 1
        counted.places.add(dead.place)
    return dict(sorted(found.items(), key=lambda entry: (*entry[0][:3], entry[0][3] or 0))), others
