"""Decisions: what the driver has decided or met lately, each in a sentence with its reason: limits, rates, losses, errors, warnings.

Limits and rates are decided for each batch; only a change is kept. Warnings and errors are those of the log. Few of each kind always stay,
however many there are of another.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import count
from operator import itemgetter

from kstream.batch import BatchInfo, StreamInputInfo
from kstream.batch_time import Time
from kstream.clock import Clock
from kstream.listener import (
    StreamingListener,
    StreamingListenerBatchCompleted,
    StreamingListenerBatchStarted,
    StreamingListenerBatchSubmitted,
    StreamingListenerOutputOperationCompleted,
)
from kstream.secret import line_without_secrets
from kstream.ui.forms import DecisionForm, DecisionKind
from kstream.user_code import own_packages

MOST = 200
"""How many decisions are kept."""
LEAST_OF_A_KIND = 25
"""How many of each kind stay, however many there are of others. With all kinds these are fewer than MOST."""
_NOTABLE_CHANGE = 0.2
"""A rate that differs from the last one that was kept by less than this part is not kept."""
_LONGEST_TEXT = 500
_OF_A_JOB = "Error running job "
"""How the log begins to tell of an output operation that failed. Its event says more."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision. `at_ms`: milliseconds since the Unix epoch; `batch`: the batch, None if it is of none."""

    at_ms: int
    kind: DecisionKind
    text: str
    batch: Time | None = None

    def form(self) -> DecisionForm:
        """Return the form of the decision."""
        return {
            "timeMs": self.at_ms,
            "kind": self.kind,
            "text": self.text,
            "batchTimeMs": None if self.batch is None else self.batch.milliseconds,
        }


class Decisions(StreamingListener):
    """Keeps the last decisions. The bus's thread and those that log write; any thread reads.

    Args:
        clock: the clock of the context.
        rates: returns the rate of each input that back-pressure has computed last, by stream id. Any thread.
    """

    def __init__(self, clock: Clock, rates: Callable[[], Mapping[int, int]]) -> None:
        super().__init__()
        self._clock = clock
        self._rates = rates
        self._lock = threading.Lock()
        self._kept: dict[DecisionKind, deque[tuple[int, Decision]]] = {}
        """The decisions of each kind with their numbers, oldest first."""
        self._numbers = count()
        self._limits: dict[int, str] = {}
        self._known_rates: dict[int, int] = {}
        self._measured: BatchInfo | None = None
        """The last batch that shows how fast the job is."""
        self._names: dict[int, str] = {}

    def note(self, kind: DecisionKind, text: str, batch: Time | None = None, at_ms: int | None = None) -> None:
        """Keep a decision. Any thread; never blocks.

        Args:
            kind: its kind.
            text: a sentence with its reason. It is kept in one line, cut, and without what may be a secret.
            batch: the batch; None if it is of none.
            at_ms: when, in milliseconds since the Unix epoch; None is now.
        """
        decision = Decision(self._clock.time_ms() if at_ms is None else at_ms, kind, _shown(text), batch)
        with self._lock:
            self._kept.setdefault(kind, deque()).append((next(self._numbers), decision))
            if sum(map(len, self._kept.values())) > MOST:
                many = (kept for kept in self._kept.values() if len(kept) > LEAST_OF_A_KIND)
                min(many, key=_number_of_oldest).popleft()

    def all(self) -> list[Decision]:
        """Return what is kept, oldest first. Any thread."""
        with self._lock:
            return [decision for _, decision in merge(*self._kept.values(), key=itemgetter(0))]

    def onBatchSubmitted(self, batchSubmitted: StreamingListenerBatchSubmitted) -> None:
        """Keep why an input has fewer records than its logs, when that changes; and rates that have changed."""
        self._note_rates()
        info = batchSubmitted.info
        for number, source in info.inputs.items():
            self._names[number] = _name_of(source)
            reason = source.progress.limited_by or ""
            if reason != self._limits.get(number, ""):
                self.note("limit", _limit_text(_name_of(source), source.num_records, reason), info.batch_time, info.submission_ms)
            self._limits[number] = reason

    def onBatchStarted(self, batchSubmitted: StreamingListenerBatchStarted) -> None:
        """Keep rates that have changed. (The parameter's name is pyspark's.)"""
        self._note_rates()

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Keep data losses of a batch, and its figures if a rate may follow from them."""
        info = batchCompleted.info
        if info.measures_speed and info.processing_delay_ms is not None:
            self._measured = info
        for source in info.inputs.values():
            if source.num_losses:
                losses = "a data loss" if source.num_losses == 1 else f"{source.num_losses:,} data losses"
                text = f"{_name_of(source)}: the batch has met {losses}; see the ledger"
                self.note("data loss", text, info.batch_time, info.processing_end_ms)

    def onOutputOperationCompleted(self, outputOperationCompleted: StreamingListenerOutputOperationCompleted) -> None:
        """Keep the error of an output operation."""
        info = outputOperationCompleted.info
        if info.error is not None:
            text = f"output operation {info.output_op_id}, {info.op_name}: {line_without_secrets(info.error)}"
            self.note("error", text, info.batch_time, info.end_ms)

    def _note_rates(self) -> None:
        """Keep rates that have changed by more than a fifth, with the figures of the last batch that shows how fast the job is.

        It is called when the next batch is submitted or started. At the end of a batch the listeners that compute its rate may not know
        of it yet: they may be told later than this one.
        """
        info = self._measured
        for number, rate in self._rates().items():
            before = self._known_rates.get(number)
            if before is None or abs(rate - before) > _NOTABLE_CHANGE * before:
                self._known_rates[number] = rate
                was = "" if before is None else f", after {before:,}"
                text = f"{self._name(number)}: back-pressure allows {rate:,} records a second{was}{_reason_of_rate(info, number)}"
                batch, at_ms = (None, None) if info is None else (info.batch_time, info.processing_end_ms)
                self.note("rate", text, batch, at_ms)

    def _name(self, number: int) -> str:
        """Return the name of an input."""
        return self._names.get(number) or f"stream {number}"


def _shown(text: str) -> str:
    """Return a text in one line, cut, and without what may be a secret."""
    line = line_without_secrets(text)
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"


def _name_of(source: StreamInputInfo) -> str:
    """Return the name of an input, for a sentence."""
    return source.progress.description or f"stream {source.stream_id}"


def _number_of_oldest(kept: deque[tuple[int, Decision]]) -> int:
    """Return the number of the oldest decision of a kind."""
    return kept[0][0]


def _reason_of_rate(info: BatchInfo | None, number: int) -> str:
    """Return the figures of the batch that led to the rate of an input, as a clause; empty if they are not known."""
    source = None if info is None else info.inputs.get(number)
    if info is None or source is None or info.processing_delay_ms is None or info.scheduling_delay_ms is None:
        return ""
    took, waited = _duration(info.processing_delay_ms), _duration(info.scheduling_delay_ms)
    return f": the last batch took {took} for {source.num_records:,} records and waited {waited}"


def _duration(ms: int) -> str:
    """Return a duration: in milliseconds below one second, else with a decimal."""
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def _limit_text(name: str, records: int, reason: str) -> str:
    """Return the sentence about a limit that is new, or that ends."""
    if not reason:
        return f"{name}: a batch has all {records:,} records again that were in the logs"
    return f"{name}: a batch has {records:,} records, fewer than were in the logs, because of {reason}"


class LoggedWarnings(logging.Handler):
    """Keeps warnings and errors of kstream's log, and of its connectors' logs, as decisions. Changes nothing of what is logged.

    Args:
        decisions: where they are kept.
    """

    def __init__(self, decisions: Decisions) -> None:
        super().__init__(logging.WARNING)
        self._decisions = decisions

    def start(self) -> None:
        """Keep warnings from now on."""
        for name in own_packages():
            logging.getLogger(name).addHandler(self)

    def stop(self) -> None:
        """Keep no more warnings."""
        for name in own_packages():
            logging.getLogger(name).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message of a log record, unless it is about an output operation: its event says more. Called by `logging`, any thread.

        If no other handler gets the record, it goes to standard error, as it does without this handler.
        """
        try:
            text = record.getMessage()
            if not text.startswith(_OF_A_JOB):
                self._decisions.note("error" if record.levelno >= logging.ERROR else "warning", text, _batch_of(record))
        except Exception:
            self.handleError(record)
        if logging.lastResort is not None and not _others(record.name, self):
            logging.lastResort.handle(record)  # a program without any handler has its warnings on standard error, also now


def _batch_of(record: logging.LogRecord) -> Time | None:
    """Return the batch of which a record of the log tells; None if it tells of none, or of several."""
    batches = {one for one in record.args if isinstance(one, Time)} if isinstance(record.args, tuple) else ()
    return next(iter(batches)) if len(batches) == 1 else None


def _others(name: str, this: logging.Handler) -> bool:
    """Return whether a logger has another handler than this one, or one above it that gets its records."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(handler is not this for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
