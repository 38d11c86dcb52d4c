"""Record errors in a task: which error is a record's, and what becomes of the record under the errors policy of its stream.

A task that reads under a policy has one `TaskErrors`. The decoders of the stream, and its operators on records, pass each exception to
`tolerate`. The record is then left out; under dead-letter it is also written to the dead letters. What was left out goes to the driver
with the read report of the task.

A `TooManyRecordErrorsError` ends a task as soon as its own errors are too many for the whole batch. The driver counts those of all tasks.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import length_hint
from typing import Any, Protocol, TypeAlias

from kstream.errors import KStreamError, TooManyRecordErrorsError
from kstream.worker.current_record import CurrentRecord, current_record
from kstream.worker.record_failure import RecordFailure, RecordStep, failure_of, told_message

LEAST_RECORDS = 100
"""A batch of fewer records counts as one of this many. Otherwise one bad record of three would be too many."""
MOST_KINDS = 20
"""The most kinds of errors that a task counts one by one. Further kinds are counted together, as `OTHER`."""
OTHER = ("other operators", "other exceptions")
NOT_OF_A_RECORD = (KStreamError, MemoryError, ImportError, ConnectionError, TimeoutError)
"""Exceptions for which no record is to blame: lost data, brokers, memory, a missing module, a system that does not answer."""


ErrorKind: TypeAlias = tuple[str, str]
"""(operator, class of the exception): errors of one kind are counted together, and the first of a batch is logged."""
KindCounts: TypeAlias = dict[ErrorKind, tuple[int, str]]
"""Kind of error → (number of records, the first of them with its message, in one line and without secrets)."""


class DeadLetterWriter(Protocol):
    """Writes the dead letters of one task. One thread, that of the task."""

    def write(self, failure: RecordFailure) -> None:
        """Write a record with its failure. It need not be stored before `flush`. May block."""
        ...

    def flush(self) -> None:
        """Block until all written records are durable. KStreamError if one of them could not be stored. Called once, at the end."""
        ...


class DeadLetters(Protocol):
    """A place for records that fail. A connector implements it; it is pickled into the tasks."""

    def open(self, task: int) -> DeadLetterWriter:
        """Return the writer of a task, by the number of the task's partition. What is costly is kept in the process for later tasks."""
        ...


@dataclass(frozen=True, slots=True)
class ErrorLimit:
    """The limit of a batch for its record errors.

    Attributes:
        ratio: the largest part of the records that may fail.
        records: the number of records that the batch has at most.
    """

    ratio: float
    records: int

    def is_passed_by(self, errors: int) -> bool:
        """Return whether so many errors are too many. A batch of few records counts as one of LEAST_RECORDS."""
        return errors > self.ratio * max(self.records, LEAST_RECORDS)

    def error(self, errors: int, kinds: KindCounts) -> TooManyRecordErrorsError:
        """Return the error of a batch with too many record errors. The error names the first failure of `kinds`."""
        (operator, exception), (_, first) = next(iter(kinds.items()))
        first = f"{exception} in {operator}, {first}"
        return TooManyRecordErrorsError(
            f"{errors} of the {self.records} records of a batch failed, more than maxErrorRatio={self.ratio:g} allows, so the batch fails. "
            f"The first: {first}. Mend the job or the records; to let more records fail, raise maxErrorRatio.",
            errors=errors,
            records=self.records,
            ratio=self.ratio,
            first=first,
        )


@dataclass(frozen=True, slots=True)
class ErrorsPolicy:
    """The errors policy of a stream in the tasks of one batch; `fail` is None in place of it. Immutable; pickled into the tasks.

    Attributes:
        limit: the limit of the batch.
        dead_letters: where failed records go; None leaves them out.
        stored_property: the name of Spark's local property with the letters that are stored already; see `StoredLetters`.
        batch_ms: the batch whose ranges the tasks read, in ms. An output of a later batch may read them, for a window.
    """

    limit: ErrorLimit
    dead_letters: DeadLetters | None = None
    stored_property: str = ""
    batch_ms: int = 0


class TaskErrors:
    """The record errors of one task. One thread, that of the task."""

    def __init__(self, policy: ErrorsPolicy, task: int = -1, stored: Callable[[], StoredLetters] = dict) -> None:
        """Begin a task.

        Args:
            policy: the policy of the stream.
            task: the number of the task's partition.
            stored: returns the dead letters of the batch that are stored already. Called for the first letter of the task.
        """
        self._policy = policy
        self._task = task
        self._find_stored = stored
        self._stored: StoredLetters | None = None
        self._writer: DeadLetterWriter | None = None
        self._last: CurrentRecord | None = None
        self.count = 0
        """How many records have failed."""
        self.kinds: KindCounts = {}
        """How many of them by the kind of their error."""
        self.letters: StoredLetters = {}
        """The dead letters that this task has written. They are stored when `flush` returns."""

    def tolerate(self, error: Exception, record: CurrentRecord, step: RecordStep) -> None:
        """Note that a record is left out because of an error, and write it to the dead letters. May block.

        A record that makes several elements may fail more than once in a row. It counts once, with its first error.

        Args:
            error: the exception of the user's function.
            record: the record.
            step: the step in which it failed.

        Raises:
            Exception: `error` itself, if no record is to blame for it.
            TooManyRecordErrorsError: too many records of the batch have failed, whatever its other tasks find.
        """
        if isinstance(error, NOT_OF_A_RECORD):
            raise error
        if record == self._last:
            return
        self._last = record
        self.count += 1
        kind = (step.operator, type(error).__name__)
        if kind not in self.kinds and len(self.kinds) >= MOST_KINDS:
            kind = OTHER
        known, first = self.kinds.get(kind, (0, ""))
        self.kinds[kind] = (known + 1, first or f"{record}: {' '.join(told_message(error).split())}")
        if self._policy.limit.is_passed_by(self.count):
            self.drop_letters()
            raise self._policy.limit.error(self.count, self.kinds) from error
        if self._policy.dead_letters is not None and _writes_letters:
            self._write(self._policy.dead_letters, error, record, step)

    def _write(self, dead_letters: DeadLetters, error: Exception, record: CurrentRecord, step: RecordStep) -> None:
        """Write the dead letter of a record, unless an earlier output has stored it. May block."""
        if self._stored is None:
            self._stored = self._find_stored()
        origin = record.topic, record.partition, step.operator
        if record.offset in self._stored.get(origin, ()):
            return
        if self._writer is None:
            self._writer = dead_letters.open(self._task)
        self._writer.write(failure_of(error, record, step))
        if record.offset is not None:
            self.letters.setdefault(origin, set()).add(record.offset)

    def drop_letters(self) -> None:
        """Drop the letters that are held: the task fails. Its reader, which is closed then, would store them."""
        self._writer, self.letters = None, {}

    def flush(self) -> None:
        """Block until the dead letters of this task are durable; those of a task that has given up are dropped.

        Raises:
            KStreamError: a letter could not be stored.
        """
        if self._writer is not None:
            self._writer.flush()


_of_task: TaskErrors | None = None
_writes_letters = True


@contextmanager
def in_this_task(errors: TaskErrors) -> Generator[None]:
    """Let `leave_out_current`, which the operators of this task call, note record errors in `errors` during a `with` block."""
    global _of_task
    _of_task = errors
    try:
        yield
    finally:
        if _of_task is errors:  # a generator that was abandoned may end late, in the next task
            _of_task = None


def drop_letters_of_this_task() -> None:
    """Drop the dead letters that this task holds, because it fails: Spark drops its report, and its next attempt writes them."""
    if _of_task is not None:
        _of_task.drop_letters()


@contextmanager
def without_letters() -> Generator[None]:
    """Write no dead letters during a `with` block, because the records are read once more. What fails is counted."""
    global _writes_letters
    _writes_letters = False
    try:
        yield
    finally:
        _writes_letters = True


def leave_out_current(error: Exception, step: RecordStep) -> None:
    """Leave out the record that the task is handing out, because an operator has failed for it. May block on the dead letters.

    Args:
        error: the exception of the user's function.
        step: the operator.

    Raises:
        Exception: `error` itself, if the record is not known, if the task has no errors policy, or if no record is to blame.
        TooManyRecordErrorsError: too many records of the batch have failed.
    """
    record = current_record()
    if _of_task is None or record is None:
        raise error
    _of_task.tolerate(error, record, step)


def make_one_by_one(
    make: Callable[[Iterator[Any]], Iterator[Any]], records: Sequence[Any], on_error: Callable[[Exception, Any], None]
) -> tuple[list[Any], list[Any]]:
    """Make an element of each record of a chunk, and leave out the records for which that fails. For decoders.

    A clean record costs no more than `make`, because `extend` keeps what it has taken when an iterator fails.

    Args:
        make: returns a lazy iterator over the elements of records, one of each. It takes a record only when its element is asked for.
        records: the records.
        on_error: on_error(exception, record) is called for each record that fails. What it raises is raised.

    Returns:
        The records that have not failed, and their elements, in order.
    """
    kept: list[Any] = []
    made: list[Any] = []
    rest = iter(records)
    begin = 0
    while True:
        try:
            made.extend(make(rest))
            return kept + list(records[begin:]), made
        except Exception as e:
            failed = len(records) - length_hint(rest) - 1
            on_error(e, records[failed])
            kept += records[begin:failed]
            begin = failed + 1


LetterOrigin: TypeAlias = tuple[str, int | None, str]
"""(topic, partition, operator) of records that failed."""
StoredLetters: TypeAlias = dict[LetterOrigin, set[int]]
"""Origin → the offsets of the records of one batch whose letters are stored. The report of a task names those that it has stored. The
driver gives those of all tasks, by batch, to the tasks of the next output, as the text of one of Spark's local properties: a function that
was pickled before the first output ran could not have them."""


def add_letters(into: StoredLetters, more: Mapping[LetterOrigin, Set[int]]) -> None:
    for origin, offsets in more.items():
        into.setdefault(origin, set()).update(offsets)


def number_of(letters: StoredLetters) -> int:
    return sum(map(len, letters.values()))


def letters_text(batches: Mapping[int, StoredLetters]) -> str:
    """Return letters as text of ASCII characters, about two for a letter. Offsets are written as distances: near ones are short.

    Args:
        batches: batch time in ms → its letters.
    """
    rows = [
        [batch_ms, *origin, _distances(sorted(offsets))]
        for batch_ms, letters in batches.items()
        for origin, offsets in letters.items()
        if offsets
    ]
    return base64.b64encode(zlib.compress(json.dumps(rows).encode())).decode()


def letters_of_text(text: str, batch_ms: int) -> StoredLetters:
    """Return the letters of one batch in a text that `letters_text` has made."""
    rows = json.loads(zlib.decompress(base64.b64decode(text)))
    return {
        (topic, partition, operator): set(accumulate(distances)) for at, topic, partition, operator, distances in rows if at == batch_ms
    }


def _distances(offsets: list[int]) -> list[int]:
    """Return the first offset, and the distance of each other one from that before it."""
    return [offsets[0], *(after - before for before, after in pairwise(offsets))]
