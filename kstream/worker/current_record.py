"""The record that a task is handing out: which record a user's function has got just now.

A reader notes each chunk of elements once, and where they came from. Nothing is counted for each record: the iterator of a list knows how
many elements it has left (`operator.length_hint`), so the position of the last one is found when somebody asks.

    with reading():
        for where, messages in chunks:
            yield hand_out(decode(messages), lambda i: record_at(where, messages[i]))
            between_chunks()

A Python worker of Spark runs one task at a time, in one thread. So there is one current record in a process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import length_hint
from typing import Any, TypeAlias

Position = Callable[[], int]
"""Returns the position of the element that was handed out last; -1 before the first one."""
RecordAt = Callable[[int], "CurrentRecord"]
"""Returns the record from which the element at a position was made."""
Noted: TypeAlias = "tuple[Position, RecordAt] | None"
"""How to find the current record; None while there is none."""

_noted: Noted = None
_last: CurrentRecord | None = None
_in_reader = False
_abandoned = False


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    """A record that a reader has handed out.

    Attributes:
        topic: its topic; "" if it has none, as in a received block.
        partition: its partition; None if it has none.
        offset: its offset; None if it has none, or if the reader does not know it.
        timestamp: its timestamp, in ms since the epoch; None if it has none.
        place: where it is, in words, if no offset says it: `received block input-0-1700, position 3`. Positions count from 0.
        raw: the reader's own object, untouched: for Kafka the message of confluent_kafka, with key and headers. None without one.
    """

    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    place: str = ""
    raw: Any = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.place or f"{self.topic}-{self.partition}@{self.offset}"


def current_record() -> CurrentRecord | None:
    """Return the record that was handed out last, while its chunk is being read; None before the first record and after the last one.

    A function that gets one element at a time is working on this record, if only such functions stand between the reader and it. Such
    are those of `map`, `filter`, `flatMap`, `foreach`, `mapValues`, and of the map side of a shuffle. A function that reads ahead, as
    `list(it)` in `mapPartitions`, may be working on an earlier one. Raises nothing.
    """
    if _noted is None:
        return None
    position, record_at = _noted
    try:
        index = position()
        return record_at(index) if index >= 0 else None
    except Exception:  # an error is being reported: the reader's trouble must not take its place
        return None


def last_record() -> CurrentRecord | None:
    """Return the current record, else the last one that this task's reader had handed out, without its raw object. None if neither."""
    return current_record() or _last


def hand_out(elements: list[Any], record_at: RecordAt) -> Iterator[Any]:
    """Note a chunk, and return the iterator by which its elements are to be handed out. Replaces the chunk before.

    Args:
        elements: the elements of the chunk.
        record_at: position in `elements` → its record. Called only when somebody asks. It may hold the chunk.
    """
    handed_out = iter(elements)
    count = len(elements)
    note(lambda: count - length_hint(handed_out) - 1, record_at)
    return handed_out


def note(position: Position, record_at: RecordAt) -> None:
    """Note how to find the current record, for readers that hand out no lists."""
    global _noted, _in_reader
    _noted, _in_reader = (position, record_at), False


def put_back(noted: Noted) -> Noted:
    """Let the current record be found in this way from now on, and return the way until now: for one reader within another."""
    global _noted, _in_reader
    before = _noted
    _noted, _in_reader = noted, False
    return before


def note_decoding(position: int, record_at: RecordAt) -> None:
    """Note that the reader itself decodes the element at a position. An error is then certainly of this record."""
    global _noted, _in_reader
    _noted, _in_reader = (lambda: position, record_at), True


def is_decoding() -> bool:
    """Return whether the current record is the one that the reader decodes by itself."""
    return _in_reader and _noted is not None


@contextmanager
def reading() -> Generator[None]:
    """The body of a reader's generator: when it ends, fails or is closed early, its chunk is let go.

    A task that wants no more records closes its reader; Python also closes it while an exception passes through `itertools.chain`.
    An error of the reader itself is that of no record, unless the reader was decoding one.
    """
    try:
        yield
    except GeneratorExit:
        _let_go(abandoned=True)
        raise
    except BaseException:
        if not _in_reader:
            between_chunks()
        raise
    between_chunks()


def between_chunks() -> None:
    """Note that the reader itself works now: no record is being handed out. The chunk is let go; `last_record` knows its last record."""
    _let_go(abandoned=False)


def _let_go(abandoned: bool) -> None:
    """Let the chunk go. `abandoned`: the reader was closed before its end."""
    global _noted, _last, _abandoned
    record = None if _in_reader else current_record()
    if record is not None:
        _last, _abandoned = replace(record, raw=None), abandoned
    _noted = None


def was_abandoned() -> bool:
    """Return whether the reader was closed while the last record was the current one. No later one was handed out, and none follows."""
    return _abandoned


def begin_task() -> None:
    """Forget everything. kstream's functions call this as they begin in a worker."""
    global _noted, _last, _abandoned
    _noted = _last = None
    _abandoned = False
