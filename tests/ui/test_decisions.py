"""Decisions: a change of a limit or a rate, losses, errors and warnings, and no more of them than are wanted."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import pytest

from kstream.batch import InputFigures
from kstream.batch_time import Time
from kstream.listener import StreamingListenerBatchSubmitted
from kstream.testing import ManualClock
from kstream.ui.decisions import LEAST_OF_A_KIND, MOST, Decisions, LoggedWarnings
from kstream.ui.forms import DecisionKind
from tests.ui.infos import info_of, run_through, source_of, submitted_of

logger = logging.getLogger("kstream.context.late_batches")


@pytest.fixture
def rates() -> dict[int, int]:
    return {}


@pytest.fixture
def decisions(rates: dict[int, int]) -> Decisions:
    return Decisions(ManualClock(7_000), lambda: rates)


@pytest.fixture
def warnings(decisions: Decisions) -> Iterator[LoggedWarnings]:
    made = LoggedWarnings(decisions)
    made.start()
    yield made
    made.stop()


def texts(decisions: Decisions) -> list[str]:
    return [decision.text for decision in decisions.all()]


def test_a_limit_is_told_when_it_begins_changes_and_ends(decisions: Decisions) -> None:
    for number, reason in enumerate((None, "maxRatePerPartition", "maxRatePerPartition", "backpressure", None, None)):
        run_through(decisions, info_of(number * 1000, source_of(2, reason=reason)))
    assert [(d.kind, d.at_ms) for d in decisions.all()] == [("limit", 1000), ("limit", 3000), ("limit", 4000)]
    begun, changed, ended = texts(decisions)
    assert begun == "Kafka[Subscribe[orders]]: a batch has 20 records, fewer than were in the logs, because of maxRatePerPartition"
    assert changed.endswith("because of backpressure") and ended.endswith("has all 20 records again that were in the logs")


def test_a_rate_is_told_when_it_differs_much(decisions: Decisions, rates: dict[int, int]) -> None:
    for number, rate in enumerate((1000, 1100, 1190, 900, 700, 300)):
        rates[0] = rate
        run_through(decisions, info_of(number * 1000))
    assert texts(decisions) == [
        "stream 0: back-pressure allows 1,000 records a second",
        "stream 0: back-pressure allows 700 records a second, after 1,000",
        "stream 0: back-pressure allows 300 records a second, after 700",
    ]


def test_a_rate_names_the_figures_of_the_batch_that_led_to_it(decisions: Decisions, rates: dict[int, int]) -> None:
    slow = info_of(2000, source_of(1, records=1800), took_ms=1900)
    run_through(decisions, info_of(1000, source_of(1)))
    rates[0] = 1000
    run_through(decisions, slow)
    rates[0] = 700  # told to the listeners that come after this one
    assert len(decisions.all()) == 1
    late = info_of(3000, source_of(1), took_ms=400)
    run_through(decisions, replace(late, processing_start_ms=3400, processing_end_ms=3800))
    assert [(d.kind, d.at_ms, d.batch) for d in decisions.all()] == [("rate", 1405, Time(1000)), ("rate", 3905, Time(2000))]
    assert [text.partition(": ")[2] for text in texts(decisions)] == [
        "back-pressure allows 1,000 records a second: the last batch took 400 ms for 10 records and waited 5 ms",
        "back-pressure allows 700 records a second, after 1,000: the last batch took 1.9 s for 1,800 records and waited 5 ms",
    ]


def test_a_batch_that_has_failed_is_no_reason_of_a_rate(decisions: Decisions, rates: dict[int, int]) -> None:
    run_through(decisions, info_of(1000, source_of(1)))
    run_through(decisions, info_of(2000, source_of(1), "ValueError: refused", took_ms=7))
    run_through(decisions, info_of(3000, source_of(1), took_ms=8, tries=2))
    rates[0] = 1000
    run_through(decisions, info_of(4000, source_of(1)))
    assert [d.batch for d in decisions.all() if d.kind == "rate"] == [Time(1000)]


def test_losses_and_errors_name_their_batch(decisions: Decisions) -> None:
    run_through(decisions, info_of(1000, replace(source_of(1), figures=InputFigures(losses=2))))
    run_through(decisions, info_of(2000, source_of(1), "ValueError: refused"))
    assert [(d.kind, d.text, d.form()["batchTimeMs"]) for d in decisions.all()] == [
        ("data loss", "Kafka[Subscribe[orders]]: the batch has met 2 data losses; see the ledger", 1000),
        ("error", "output operation 0, foreachRDD at job.py:7: ValueError: refused", 2000),
    ]


def test_no_more_than_the_last_are_kept(decisions: Decisions) -> None:
    for number in range(MOST + 50):
        decisions.onBatchSubmitted(StreamingListenerBatchSubmitted(submitted_of(info_of(number, source_of(1, reason=str(number))))))
    assert len(decisions.all()) == MOST and decisions.all()[-1].at_ms == MOST + 49


def test_one_kind_that_is_told_again_and_again_leaves_the_last_ones_of_all_others(decisions: Decisions) -> None:
    kinds: tuple[DecisionKind, ...] = ("limit", "rate", "allocation", "error", "data loss")
    for number in range(40):
        for kind in kinds:
            decisions.note(kind, f"{kind} {number}")
    for number in range(10 * MOST):
        decisions.note("warning", f"warning {number}")
    kept = decisions.all()
    assert len(kept) == MOST
    for kind in kinds:
        assert [d.text for d in kept if d.kind == kind] == [f"{kind} {n}" for n in range(40 - LEAST_OF_A_KIND, 40)]
    assert kept[-1].text == f"warning {10 * MOST - 1}", "they are in the order in which they were told"
    assert LEAST_OF_A_KIND * len(get_args(DecisionKind)) < MOST


def test_warnings_and_errors_of_the_log_are_told_in_one_line(decisions: Decisions, warnings: LoggedWarnings) -> None:
    logger.info("not this")
    logger.warning("batches wait ever longer,\nthe last one %.1f s", 3.5)
    logging.getLogger("kstream_kafka.source").error("brokers are away")
    logging.getLogger("kstream.scheduler").error("Error running job streaming job 1000 ms (0): its event says more")
    logging.getLogger("someone.else").warning("not this either")
    assert [(d.kind, d.at_ms, d.text) for d in decisions.all()] == [
        ("warning", 7000, "batches wait ever longer, the last one 3.5 s"),
        ("error", 7000, "brokers are away"),
    ]
    warnings.stop()
    logger.warning("nor this")
    assert len(decisions.all()) == 2


def test_a_warning_about_one_batch_names_it(decisions: Decisions, warnings: LoggedWarnings) -> None:
    logger.warning("batch %s waits for batch %s", Time(3000), Time(3000))
    logger.warning("batches %s to %s are left out", Time(1000), Time(3000))
    logger.warning("the store is away for %d s", 3000)
    assert [d.form()["batchTimeMs"] for d in decisions.all()] == [3000, None, None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("could not open s3://me:hunter2@bucket/x", "could not open s3://me:(secret)@bucket/x"),
        ("password=hunter2 was refused: try again", "a line of this text may hold a secret and is left out"),
        ('x: {"token": "hunter2"}', "x: its text may hold a secret and is left out"),
    ],
)
def test_a_text_that_may_hold_a_secret_is_not_shown(decisions: Decisions, warnings: LoggedWarnings, text: str, said: str) -> None:
    logger.warning(text)
    assert texts(decisions) == [said]


def test_a_program_without_handlers_has_its_warnings_on_standard_error_still(
    decisions: Decisions, warnings: LoggedWarnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python prints warnings itself as long as no handler is there at all."""
    out = io.StringIO()
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler(out))
    logger.warning("with a handler")
    assert out.getvalue() == ""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logger.warning("without a handler")
    assert out.getvalue() == "without a handler\n"
    assert texts(decisions) == ["with a handler", "without a handler"]


def test_a_message_that_cannot_be_formatted_harms_nobody(
    decisions: Decisions, warnings: LoggedWarnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger.warning("%d", "no number")
    logger.warning("the next one")
    assert texts(decisions) == ["the next one"]
