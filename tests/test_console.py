"""kstream.log(): what a program writes to standard error after one call, as a person and as a machine read it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

import kstream
from kstream.console import JsonFormatter, LineFormatter
from kstream.errors import LOGGED_ERROR, ConfigurationError


def said_by(program: str) -> list[str]:
    """The lines on standard error of a program that imports kstream and logging."""
    ran = subprocess.run([sys.executable, "-c", f"import logging, kstream\n{program}"], capture_output=True, text=True, check=True)
    return ran.stderr.splitlines()


TALK = """
kafka = logging.getLogger("kstream_kafka.source")
for logger in (logging.getLogger("kstream.batches"), kafka, logging.getLogger("other"), logging.getLogger("py4j")):
    logger.debug("%s debugs", logger.name); logger.info("%s informs", logger.name); logger.warning("%s warns", logger.name)
"""


def test_one_call_shows_the_log_of_kstream_and_its_connectors_and_warnings_of_others() -> None:
    lines = said_by(f"kstream.log(){TALK}")
    assert [line[20:] for line in lines] == [
        "INFO    kstream.batches: kstream.batches informs",
        "WARNING kstream.batches: kstream.batches warns",
        "INFO    kstream_kafka.source: kstream_kafka.source informs",
        "WARNING kstream_kafka.source: kstream_kafka.source warns",
        "WARNING other: other warns",
    ]


def test_a_higher_level_holds_for_all_and_a_lower_one_for_kstream_alone() -> None:
    assert said_by(f"kstream.log('ERROR'){TALK}") == []
    debugging = said_by(f"kstream.log('debug'){TALK}")
    assert [line.split()[-2:] for line in debugging if "debugs" in line] == [
        ["kstream.batches", "debugs"],
        ["kstream_kafka.source", "debugs"],
    ]


def test_a_second_call_replaces_the_first_and_no_line_comes_twice() -> None:
    lines = said_by(
        f"kstream.log(verbose=True); kstream.log(format='json'){TALK}"
        "from kstream_kafka.client.librdkafka import client_log; client_log.warning('of the client')"
    )
    assert len(lines) == 5 and all(json.loads(line)["level"] in ("INFO", "WARNING") for line in lines)


@pytest.mark.parametrize(("level", "form"), [("LOUD", "text"), ("INFO", "xml")])
def test_an_unknown_level_or_format_is_an_error_that_names_the_known_ones(level: str, form: str) -> None:
    with pytest.raises(ConfigurationError, match=r"give one of DEBUG, INFO|give one of text, json"):
        kstream.log(level, form)


def record(error: BaseException | None = None, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("kstream.batches", logging.INFO, "f", 1, "batch %s\nended", (7,), None)
    made.created = 1_795_346_580.25
    made.exc_info = None if error is None else (type(error), error, error.__traceback__)
    made.__dict__.update(fields)
    return made


def test_a_json_line_has_stable_names_and_the_fields_of_its_caller() -> None:
    line = JsonFormatter(tracebacks=False).format(record(records=3, lag_records=None, place=ValueError))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-11-22T11:23:00.250Z",
        "level": "INFO",
        "logger": "kstream.batches",
        "thread": "MainThread",
        "message": "batch 7\nended",
        "records": 3,
        "lag_records": None,
        "place": "<class 'ValueError'>",
    }


def test_the_fields_of_a_caller_do_not_replace_those_of_the_line() -> None:
    assert json.loads(JsonFormatter(tracebacks=False).format(record(level="x", time="y")))["level"] == "INFO"


def test_an_error_in_json_is_a_field_and_its_traceback_is_there_on_request() -> None:
    try:
        raise ConfigurationError("it is wrong")
    except ConfigurationError as e:
        made = record(e)
    short, long = (json.loads(JsonFormatter(tracebacks=which).format(made)) for which in (False, True))
    assert short["error"] == "it is wrong" and "traceback" not in short
    assert long["traceback"].startswith("Traceback") and long["traceback"].endswith("it is wrong")


def test_an_error_that_is_in_the_message_has_its_traceback_only_where_tracebacks_are_wanted() -> None:
    try:
        raise ValueError("no number")
    except ValueError as e:
        made = record(**{LOGGED_ERROR: e})
    made.msg, made.args = "job failed: ValueError: no number", ()
    assert LineFormatter(tracebacks=False).format(made).endswith("kstream.batches: job failed: ValueError: no number")
    assert LineFormatter(tracebacks=True).format(made).endswith("ValueError: no number") and "Traceback" in LineFormatter(True).format(made)
    fields = json.loads(JsonFormatter(tracebacks=False).format(made))
    assert fields["message"] == "job failed: ValueError: no number" and fields["error"] == "ValueError: no number"
    assert LOGGED_ERROR not in fields and "traceback" not in fields
    assert "Traceback" not in logging.Formatter().format(made)


def test_a_line_for_people_has_the_local_date_and_time() -> None:
    text = LineFormatter(tracebacks=False).format(record())
    assert text[:19] == logging.Formatter().formatTime(record(), "%Y-%m-%d %H:%M:%S") and text[20:].startswith("INFO    kstream.batches: ")


HOSTILE = "\x1b]0;PWNED\x07\x1b[2J\x1b[31mred\r\x7f\x9b31m\u202e\u2028"


def test_no_log_line_has_a_character_that_a_terminal_obeys() -> None:
    """The supervisor logs the reason of a driver's end by the same formatter."""
    shown = r"\x1b]0;PWNED\x07\x1b[2J\x1b[31mred\r\x7f\x9b31m\u202e\u2028"
    try:
        raise ValueError(HOSTILE)
    except ValueError as e:
        failed = record(e)
    made = record()
    made.msg, made.args = "a batch failed: %s", (HOSTILE,)
    assert LineFormatter(False).format(made).endswith(f"a batch failed: {shown}")
    line = JsonFormatter(False).format(made)
    assert line.isprintable() and json.loads(line)["message"] == f"a batch failed: {HOSTILE}"
    for tracebacks in (False, True):
        assert (
            LineFormatter(tracebacks).format(failed).replace("\n", "").isprintable()
            and JsonFormatter(tracebacks).format(failed).isprintable()
        )
    assert LineFormatter(True).format(failed).endswith(f"ValueError: {shown}")


def test_words_of_every_language_stay_as_they_are() -> None:
    made = record()
    made.msg, made.args = "„Öl“ naïve\u00a0é 東京\u3000大阪 😀\n\tat org.apache", ()
    assert LineFormatter(False).format(made).endswith(made.msg) and json.loads(JsonFormatter(False).format(made))["message"] == made.msg
