"""The errors policy of a stream: what its user may write, what the settings add, and when a batch has too many errors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from kstream.batch_time import Time
from kstream.conf import Settings
from kstream.errors import ConfigurationError, DeadLetterNotStoredError, TooManyRecordErrorsError
from kstream.offsets.errors_policy import NO_POLICY, OnRecordError, RecordErrorLog, RecordErrorPolicy
from kstream.offsets.offset_range import OffsetRange
from kstream.offsets.read_report import ReadReport, errors_of, merge
from kstream.testing import ManualClock

KEY = "spark.streaming.kstream."
PARSE, DECODE = ("map at job.py:7", "KeyError"), ("valueDecoder", "JSONDecodeError")
RANGES = [OffsetRange("t", 0, 0, 150), OffsetRange("t", 1, 0, 150)]


def settings(**given: str) -> Settings:
    return Settings({KEY + name: value for name, value in given.items()})


def report(errors: dict[Any, Any], counts: dict[Any, Any] | None = None) -> dict[str, Any]:
    return {"errors": errors, "counts": counts or {}}


def test_without_a_word_a_record_that_fails_fails_its_batch() -> None:
    policy = NO_POLICY.resolved(settings())
    assert policy == RecordErrorPolicy("fail", None, 0.1) and not policy.tolerates
    assert policy.in_tasks(RANGES, None) is None


def test_the_settings_hold_where_the_stream_says_nothing() -> None:
    given = settings(onRecordError="dead-letter", deadLetterTopic="dead", maxErrorRatio="0.5")
    assert NO_POLICY.resolved(given) == RecordErrorPolicy("dead-letter", "dead", 0.5)
    assert OnRecordError("skip", None, 0.2).resolved(given) == RecordErrorPolicy("skip", None, 0.2)
    assert OnRecordError("dead-letter", "mine").resolved(given) == RecordErrorPolicy("dead-letter", "mine", 0.5)
    assert OnRecordError(max_ratio=0.0).resolved(given).max_ratio == 0.0


@pytest.mark.parametrize(
    ("policy", "given", "said"),
    [
        ({"policy": "ignore"}, {}, "onRecordError is 'ignore'; it must be one of fail, skip, dead-letter"),
        ({"max_ratio": 1.5}, {}, "maxErrorRatio is 1.5; it must be from 0 to 1"),
        ({"policy": "skip", "dead_letter_topic": "dead"}, {}, "deadLetterTopic has no effect with onRecordError='skip'"),
        ({"dead_letter_topic": "dead"}, {}, "deadLetterTopic has no effect with onRecordError='fail'"),
        ({"policy": "dead-letter"}, {}, "deadLetterTopic is needed by onRecordError='dead-letter': give deadLetterTopic, or set spark."),
        ({}, {"onRecordError": "ignore"}, "onRecordError is 'ignore'"),
        ({}, {"maxErrorRatio": "-1"}, "maxErrorRatio is -1.0"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(policy: dict[str, Any], given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        OnRecordError(**policy).resolved(settings(**given))


def test_the_stored_form_has_what_was_given_and_comes_back() -> None:
    given = OnRecordError("dead-letter", "dead", 0.25)
    assert given.to_json() == {"policy": "dead-letter", "deadLetterTopic": "dead", "maxErrorRatio": 0.25}
    assert OnRecordError.from_json(given.to_json()) == given
    assert NO_POLICY.to_json() == {} and OnRecordError.from_json({}) == NO_POLICY


def test_the_tasks_know_how_many_records_the_batch_has_at_most() -> None:
    policy = RecordErrorPolicy("skip", None, 0.1).in_tasks(RANGES, None)
    assert policy is not None and policy.limit.records == 300 and policy.limit.ratio == 0.1


# -- the check of a batch


def check(found: dict[str, Any], ratio: float = 0.1) -> None:
    RecordErrorPolicy("skip", None, ratio).check(RANGES, found)


def test_the_errors_of_all_tasks_count_together() -> None:
    each = {("t", 0, 0): {PARSE: (15, "t-0@3: 'price'")}, ("t", 1, 0): {PARSE: (15, "t-1@9: 'price'")}}
    check(report(each))
    each["t", 1, 0][DECODE] = (1, "t-1@4: Expecting value")
    with pytest.raises(TooManyRecordErrorsError, match=r"31 of the 300 records .* KeyError in map at job.py:7, t-0@3: 'price'"):
        check(report(each))


def test_records_are_counted_as_they_were_read_since_offsets_may_have_gaps() -> None:
    found = {("t", 0, 0): {PARSE: (25, "")}}
    check(report(found))
    with pytest.raises(TooManyRecordErrorsError, match="25 of the 200 records"):
        check(report(found, {("t", 0, 0): (150, 50)}))


def test_a_dead_letter_that_was_not_stored_fails_the_batch() -> None:
    with pytest.raises(DeadLetterNotStoredError, match="no leader of dead-0"):
        check({**report({}), "undelivered": {("t", 0, 0): "no leader of dead-0"}})


def test_a_task_that_ran_twice_or_for_two_outputs_is_counted_once_and_the_longer_run_wins() -> None:
    def told(records: int) -> dict[int, Any]:
        return {7: {"errors": {("t", 0, 0): {PARSE: (records, "first")}}}}

    merged: dict[int, Any] = {}
    for records in 3, 5, 4:
        merge(merged, told(records))
    assert errors_of(merged[7]) == {PARSE: (5, "first")}


def test_a_report_tells_of_errors_only_if_there_are_any() -> None:
    told = ReadReport()
    assert told.to_plain() == {}
    told.errors["t", 0, 0] = {PARSE: (1, "x")}
    assert told.to_plain() == {"errors": {("t", 0, 0): {PARSE: (1, "x")}}}


# -- the log


class Log:
    """The lines about record errors, on a clock of its own."""

    def __init__(self, caplog: pytest.LogCaptureFixture, policy: RecordErrorPolicy | None = None) -> None:
        self._caplog, self._policy = caplog, policy or RecordErrorPolicy("skip", None, 0.1)
        self.clock = ManualClock()
        self._log = RecordErrorLog(logging.getLogger("kstream.test"), self.clock.monotonic_ms)

    def batch(self, time_ms: int, **records: int) -> list[str]:
        """The lines that a batch adds. `records`: letter of a kind → how many records failed."""
        kinds = {PARSE if kind == "p" else DECODE: (n, f"t-0@{time_ms}: 'price'") for kind, n in records.items()}
        return self.lines(lambda: self._log.note(Time(time_ms), kinds, self._policy))

    def close(self) -> list[str]:
        return self.lines(self._log.close)

    def lines(self, body: Callable[[], None]) -> list[str]:
        self._caplog.clear()
        body()
        return [record.getMessage() for record in self._caplog.records]


def test_the_first_of_each_kind_is_logged_and_not_each_record(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog, RecordErrorPolicy("dead-letter", "dead", 0.1))
    went = "and are in the dead-letter topic dead"
    assert log.batch(5000, p=1000, d=2) == [
        f"batch 5000 ms, 1000 records failed in map at job.py:7 with KeyError {went}; the first: t-0@5000: 'price'",
        f"batch 5000 ms, 2 records failed in valueDecoder with JSONDecodeError {went}; the first: t-0@5000: 'price'",
    ]


def test_after_the_first_errors_of_a_kind_their_number_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog)
    assert len(log.batch(1000, p=1)) == 1
    log.clock.advance(20_000)
    assert log.batch(2000, p=3) == [] and log.batch(3000, p=4) == []
    (other,) = log.batch(4000, d=5)
    assert "in valueDecoder with" in other
    log.clock.advance(39_999)
    assert log.batch(5000) == []
    log.clock.advance(1)
    (line,) = log.batch(6000)
    assert line == (
        "batches 2000 ms to 3000 ms, 7 records failed in map at job.py:7 with KeyError and were skipped; the first: t-0@2000: 'price'"
    )
    log.clock.advance(30_000)
    assert log.batch(7000, p=2) == []


def test_after_a_minute_without_errors_of_a_kind_the_next_one_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog)
    log.batch(1000, p=1)
    log.clock.advance(60_000)
    assert log.batch(2000) == []
    assert log.batch(3000, p=1) == [
        "batch 3000 ms, 1 records failed in map at job.py:7 with KeyError and were skipped; the first: t-0@3000: 'price'"
    ]


def test_at_the_end_of_the_stream_nothing_is_left_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog)
    log.batch(1000, p=1)
    log.batch(2000, p=2)
    assert ["batch 2000 ms, 2 records" in line for line in log.close()] == [True]
    assert log.close() == [] and len(log.batch(3000, p=1)) == 1 and len(log.batch(4000, p=1)) == 1
