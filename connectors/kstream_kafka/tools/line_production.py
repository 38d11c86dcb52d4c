"""Lines as records of a topic, for `kstream produce`: their form, their answers, and the sentences about both.

Each line has its number. A line that is refused is named by its number; the lines after it are still sent, until MOST_REFUSED are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol

from kstream.cli.terminal import count
from kstream.printable import printable
from kstream_kafka.errors import KafkaError

MOST_REFUSED = 10
"""The number of refused lines after which no more lines are read."""
MOST_PARTITIONS = 8
"""The largest number of partitions in a sentence. It counts the others."""
FLUSH_STEP_S = 0.2
"""Seconds between two looks for an interrupt while answers are awaited."""


class Sender(Protocol):
    """The part of a RecordProducer that sends lines."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        on_failure: Callable[[str], None],
        partition: int | None = None,
        on_stored: Callable[[int, int], None] | None = None,
    ) -> None:
        """Send a record; see RecordProducer."""
        ...

    def flush(self, seconds: float) -> int:
        """Wait for answers; see RecordProducer."""
        ...


class MalformedLineError(KafkaError):
    """A line has not the form that the options of the command name. Fact: reason."""


@dataclass(frozen=True, slots=True)
class LineForm:
    """How a line becomes a record. Immutable.

    Attributes:
        key_separator: what ends the key; None for lines without a key.
        headers: the headers of every record.
        partition: the partition of every record; None for that of its key, or any for a record without one.
    """

    key_separator: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None

    def key_and_value(self, line: bytes) -> tuple[bytes | None, bytes]:
        """Return key and value of a line. Pure. MalformedLineError if it lacks the separator.

        Args:
            line: the line, with its line feed if it has one. No other byte is left out.
        """
        line = line.removesuffix(b"\n")
        if self.key_separator is None:
            return None, line
        key, separator, value = line.partition(self.key_separator)
        if not separator:
            reason = f"it has no key separator {self.key_separator.decode()!r}"
            raise MalformedLineError(reason, reason=reason)
        return key, value


@dataclass(slots=True)
class StoredOffsets:
    """The acknowledged records of one partition: how many, the lowest and the highest offset."""

    records: int
    first: int
    last: int


@dataclass(slots=True)
class Answers:
    """What became of the lines that were read.

    Attributes:
        read: how many lines were read.
        stored: the acknowledged records by partition.
        refused: number of a line → why its record is not stored.
        unanswered: how many records have been sent and have no answer yet.
    """

    read: int = 0
    stored: dict[int, StoredOffsets] = field(default_factory=dict[int, StoredOffsets])
    refused: dict[int, str] = field(default_factory=dict[int, str])
    unanswered: int = 0

    @property
    def acknowledged(self) -> int:
        return sum(stored.records for stored in self.stored.values())

    def add(self, partition: int, offset: int) -> None:
        """Count an acknowledged record."""
        stored = self.stored.setdefault(partition, StoredOffsets(0, offset, offset))
        stored.records += 1
        stored.first, stored.last = min(stored.first, offset), max(stored.last, offset)


class LineProduction:
    """The lines of one command on their way to a topic. One thread.

    Attributes:
        answers: what has become of the lines so far.
    """

    def __init__(self, producer: Sender, topic: str, form: LineForm) -> None:
        """
        Args:
            producer: sends the records.
            topic: their topic.
            form: how a line becomes a record.
        """
        self._producer = producer
        self._topic = topic
        self._form = form
        self.answers = Answers()

    def send(self, lines: Iterable[bytes]) -> None:
        """Send lines until there are no more, or MOST_REFUSED were refused. Blocks on the lines, and while the producer's queue is full."""
        for line in lines:
            self.answers.read += 1
            self._send(self.answers.read, line)
            if len(self.answers.refused) >= MOST_REFUSED:
                return

    def _send(self, number: int, line: bytes) -> None:
        """Send a line, whose answer is counted when it comes. A line of the wrong form is refused at once, and nothing is sent."""
        answers = self.answers

        def stored(partition: int, offset: int) -> None:
            answers.add(partition, offset)
            answers.unanswered -= 1

        def refused(reason: str) -> None:
            answers.refused[number] = reason
            answers.unanswered -= 1

        try:
            key, value = self._form.key_and_value(line)
        except MalformedLineError as e:
            answers.refused[number] = str(e)
            return
        answers.unanswered += 1  # at each moment, for an interrupt may come at any
        self._producer.send(self._topic, key, value, self._form.headers, refused, self._form.partition, stored)

    def wait(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Wait until every record has its answer. Blocks for so many seconds at most.

        Args:
            seconds: the longest wait.
            is_over: asked every FLUSH_STEP_S whether to end the wait.
        """
        until = time.monotonic() + seconds
        while self._producer.flush(FLUSH_STEP_S) and time.monotonic() < until and not is_over():
            pass


# -- sentences


def stored_sentence(topic: str, answers: Answers) -> str:
    """Return how many records are stored, in which partitions, at which offsets. Pure."""
    said = f"{count(answers.acknowledged, 'record')} {'is' if answers.acknowledged == 1 else 'are'} stored in {printable(topic)}"
    if not answers.stored:
        return said if answers.read else f"{said}: standard input has no line"
    rows = sorted(answers.stored.items())
    shown = [f"{row.records} in partition {partition} at {_offsets(row)}" for partition, row in rows[:MOST_PARTITIONS]]
    more = len(rows) - MOST_PARTITIONS
    if more > 0:
        others = sum(row.records for _, row in rows[MOST_PARTITIONS:])
        shown.append(f"{others} in {more} more partition{'s' if more > 1 else ''}")
    return f"{said}: {', '.join(shown)}"


def _offsets(stored: StoredOffsets) -> str:
    """Return the offsets of a partition for a sentence. Other producers may have written between them."""
    return f"offset {stored.first}" if stored.first == stored.last else f"offsets {stored.first} to {stored.last}"


def trouble_sentence(answers: Answers, is_cut_short: bool = False) -> str:
    """Return which lines are not stored and why; "" if all are. Pure.

    Args:
        answers: what became of the lines.
        is_cut_short: whether an interrupt has ended the wait for answers.
    """
    said: list[str] = []
    if answers.refused:
        said.append(f"{count(len(answers.refused), 'record')} {'is' if len(answers.refused) == 1 else 'are'} not stored")
        said[0] += ": " + "; ".join(_runs(answers.refused))
    if answers.unanswered:
        why = "the command was ended first" if is_cut_short else "the brokers gave none in time"
        said.append(f"{count(answers.unanswered, 'record')} had no answer, and may be stored or not: {why}")
    if len(answers.refused) >= MOST_REFUSED:
        said.append(f"No line after line {answers.read} was read")
    return ". ".join(said)


def _runs(refused: dict[int, str]) -> list[str]:
    """Return the refused lines with their reasons. Lines that follow each other with the same reason are one text, `lines 3 to 5: …`.

    After MOST_REFUSED texts one more says in how many places the others are.
    """
    runs: list[str] = []
    rows = sorted(refused.items())
    for reason, group in groupby(enumerate(rows), key=lambda row: (row[1][0] - row[0], row[1][1])):
        numbers = [number for _, (number, _) in group]
        named = f"line {numbers[0]}" if len(numbers) == 1 else f"lines {numbers[0]} to {numbers[-1]}"
        runs.append(f"{named}: {reason[1]}")
    more = len(runs) - MOST_REFUSED
    return [*runs[:MOST_REFUSED], f"and lines in {more} more places"] if more > 0 else runs
