"""The errors policy of a stream: what its user has chosen, the policy that follows with the settings, and the log of the errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstream.batch_time import Time
from kstream.conf import Settings
from kstream.errors import ConfigurationError, DeadLetterNotStoredError
from kstream.offsets.offset_range import OffsetRange
from kstream.offsets.read_report import ReportData, counts_of, errors_of
from kstream.offsets.settings import DEAD_LETTER_TOPIC, MAX_ERROR_RATIO, ON_RECORD_ERROR
from kstream.worker.record_errors import DeadLetters, ErrorKind, ErrorLimit, ErrorsPolicy, KindCounts

FAIL, SKIP, DEAD_LETTER = "fail", "skip", "dead-letter"
"""What becomes of a batch and of a record for which a decoder or an operator fails. fail: the batch fails. skip: the batch goes on without
the record. dead-letter: as skip, and the record is written to the dead letters first."""
POLICIES = (FAIL, SKIP, DEAD_LETTER)
LOG_PAUSE_MS = 60_000
"""Milliseconds between two lines of the log about errors of one kind."""


def _check(policy: str | None, topic: str | None, ratio: float | None) -> None:
    """Raise ConfigurationError if one of these values cannot work. None is a value that is not known yet."""
    if policy is not None and policy not in POLICIES:
        raise _refused("onRecordError", policy, f"is {policy!r}; it must be one of {', '.join(POLICIES)}")
    if ratio is not None and not 0 <= ratio <= 1:
        raise _refused("maxErrorRatio", ratio, f"is {ratio}; it must be from 0 to 1")
    if topic is not None and policy in (FAIL, SKIP):
        because = f"has no effect with onRecordError={policy!r}: give onRecordError='dead-letter', or no topic"
        raise _refused("deadLetterTopic", topic, because)


def _refused(key: str, value: Any, because: str) -> ConfigurationError:
    return ConfigurationError(f"{key} {because}", key=key, value=value)


@dataclass(frozen=True, slots=True)
class RecordErrorPolicy:
    """The errors policy by which a stream works: what its user has chosen, and the settings where the user has not. Immutable.

    Creating one raises ConfigurationError as `OnRecordError`, and for dead-letter without a topic.

    Attributes:
        policy: one of POLICIES.
        dead_letter_topic: the topic of the dead letters; None but under dead-letter.
        max_ratio: the largest part of a batch's records that may fail.
    """

    policy: str
    dead_letter_topic: str | None
    max_ratio: float

    def __post_init__(self) -> None:
        """Check the values. ConfigurationError if they cannot work."""
        _check(self.policy, self.dead_letter_topic, self.max_ratio)
        if self.policy == DEAD_LETTER and not self.dead_letter_topic:
            because = f"is needed by onRecordError='dead-letter': give deadLetterTopic, or set {DEAD_LETTER_TOPIC}"
            raise _refused("deadLetterTopic", self.dead_letter_topic, because)

    @property
    def tolerates(self) -> bool:
        """Whether a batch goes on without a record that fails."""
        return self.policy != FAIL

    def in_tasks(
        self, ranges: Sequence[OffsetRange], dead_letters: DeadLetters | None, stored_property: str = "", batch_ms: int = 0
    ) -> ErrorsPolicy | None:
        """Return the policy for the tasks of a batch; None for `fail`.

        Args:
            ranges: the planned ranges of the batch.
            dead_letters: the place of the dead letters; None under skip.
            stored_property: the name of the local property with the letters that are stored already.
            batch_ms: the batch time, in ms.
        """
        if not self.tolerates:
            return None
        return ErrorsPolicy(ErrorLimit(self.max_ratio, sum(r.count() for r in ranges)), dead_letters, stored_property, batch_ms)

    def check(self, ranges: Sequence[OffsetRange], report: ReportData) -> None:
        """Check what the tasks of a batch have reported so far, after each of its jobs. Pure.

        Args:
            ranges: the planned ranges of the batch.
            report: the report, from `ReadReportAccumulator.errors`.

        Raises:
            TooManyRecordErrorsError: more records failed than the policy allows.
            DeadLetterNotStoredError: a dead letter was not stored.
        """
        undelivered: Mapping[Any, str] = report.get("undelivered", {})
        if undelivered:
            raise DeadLetterNotStoredError(next(iter(undelivered.values())))
        kinds = errors_of(report)
        read = counts_of(ranges, report.get("counts", {}))
        records = sum(r.count() if count is None else count for r, count in zip(ranges, read, strict=True))
        limit = ErrorLimit(self.max_ratio, records)
        errors = sum(found for found, _ in kinds.values())
        if limit.is_passed_by(errors):
            raise limit.error(errors, kinds)


@dataclass(frozen=True, slots=True)
class OnRecordError:
    """What the user of a stream has chosen for records that fail. Immutable. What is None is left to the settings.

    Creating one raises ConfigurationError for a policy that does not exist, a ratio that is no part of 1, or a topic without dead-letter.

    Attributes:
        policy: one of POLICIES.
        dead_letter_topic: the topic of the dead letters.
        max_ratio: the largest part of a batch's records that may fail.
    """

    policy: str | None = None
    dead_letter_topic: str | None = None
    max_ratio: float | None = None

    def __post_init__(self) -> None:
        """Check the values. ConfigurationError if one cannot work."""
        _check(self.policy, self.dead_letter_topic, self.max_ratio)

    def resolved(self, settings: Settings) -> RecordErrorPolicy:
        """Return the policy with the settings in the place of what the user left open. ConfigurationError if it cannot work."""
        policy = self.policy or settings[ON_RECORD_ERROR]
        ratio = settings[MAX_ERROR_RATIO] if self.max_ratio is None else self.max_ratio
        topic = self.dead_letter_topic
        if policy == DEAD_LETTER:
            topic = topic or settings[DEAD_LETTER_TOPIC]
        return RecordErrorPolicy(policy, topic, ratio)

    def to_json(self) -> dict[str, Any]:
        """Return the stored form, for a recipe: what the user has given."""
        given = ("policy", self.policy), ("deadLetterTopic", self.dead_letter_topic), ("maxErrorRatio", self.max_ratio)
        return {name: value for name, value in given if value is not None}

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> OnRecordError:
        """Return the choice of a stored form; that of the settings for an empty one."""
        return OnRecordError(stored.get("policy"), stored.get("deadLetterTopic"), stored.get("maxErrorRatio"))


NO_POLICY = OnRecordError()
"""Everything is left to the settings."""


@dataclass(slots=True)
class _Counted:
    """Record errors of one kind that have no line in the log yet."""

    begin: Time
    end: Time
    records: int
    first: str
    went: str


class RecordErrorLog:
    """Warnings about the record errors of one stream: one for the first errors of a kind, then one a minute with their number. Any thread.

    A record that fails in each batch would otherwise be a line of the log for each batch.
    """

    def __init__(self, logger: logging.Logger, monotonic_ms: Callable[[], int]) -> None:
        """
        Args:
            logger: the log of the stream.
            monotonic_ms: the clock, in ms.
        """
        self._logger = logger
        self._monotonic_ms = monotonic_ms
        self._lock = threading.Lock()
        self._is_closed = False
        self._logged_at: dict[ErrorKind, int] = {}
        """When a kind was logged last. Kinds for which that is a minute ago are forgotten."""
        self._counted: dict[ErrorKind, _Counted] = {}

    def note(self, time: Time, kinds: KindCounts, policy: RecordErrorPolicy) -> None:
        """Note the errors of a batch, and log what is due.

        Args:
            time: the batch time.
            kinds: the errors; none for a batch without errors.
            policy: the policy of the stream.
        """
        went = f"are in the dead-letter topic {policy.dead_letter_topic}" if policy.policy == DEAD_LETTER else "were skipped"
        with self._lock:
            for kind, (records, first) in kinds.items():
                known = self._counted.setdefault(kind, _Counted(time, time, 0, first, went))
                known.begin, known.end, known.records = min(known.begin, time), max(known.end, time), known.records + records
            due = self._due()
        self._log(due)

    def close(self) -> None:
        """Log what has no line yet. Later errors are logged at once."""
        with self._lock:
            self._is_closed = True
            due = self._due()
        self._log(due)

    def _due(self) -> dict[ErrorKind, _Counted]:
        """Remove and return the errors whose line is due: of kinds without a line in the last minute; after `close` all. Under the lock."""
        now = self._monotonic_ms()
        self._logged_at = {kind: at for kind, at in self._logged_at.items() if now - at < LOG_PAUSE_MS and not self._is_closed}
        due = {kind: counted for kind, counted in self._counted.items() if kind not in self._logged_at}
        self._counted = {kind: counted for kind, counted in self._counted.items() if kind not in due}
        self._logged_at |= dict.fromkeys(due, now)
        return due

    def _log(self, due: Mapping[ErrorKind, _Counted]) -> None:
        """Log a warning for each kind, with its records in all batches since its last line. Outside of the lock."""
        for (operator, exception), counted in due.items():
            facts = counted.records, operator, exception, counted.went, counted.first
            if counted.begin == counted.end:
                self._logger.warning("batch %s, %d records failed in %s with %s and %s; the first: %s", counted.end, *facts)
            else:
                line = "batches %s to %s, %d records failed in %s with %s and %s; the first: %s"
                self._logger.warning(line, counted.begin, counted.end, *facts)
