"""log(): sets up the log of a program in one call, as `kstream run` does: lines for people, or JSON objects.

    import kstream

    kstream.log()                 # or kstream.log("DEBUG"), kstream.log(format="json")

Without this call kstream logs by the standard library, like any package.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Final

from kstream import connectors
from kstream.errors import LOGGED_ERROR, ConfigurationError, one_line
from kstream.printable import printable_json, printable_lines
from kstream.public_call import show_own_frames
from kstream.spark.submit_args import turn_off_progress_bar
from kstream.user_code import own_packages

TEXT: Final = "text"
JSON: Final = "json"
FORMATS = (TEXT, JSON)
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", LOGGED_ERROR}
"""The attributes of every log record. All others are fields that a caller has added by `extra`."""


def log(level: str = "INFO", format: str = TEXT, *, verbose: bool = False) -> None:
    """Log to standard error, and remove the other handlers of the root logger. Call it once, before the SparkContext is made.

    kstream and its connectors log from `level` up, py4j from CRITICAL up, all others from WARNING up, or from `level` if that is higher.
    Where standard error is no terminal, Spark shows no progress bar, unless the user has set `spark.ui.showConsoleProgress`.

    Args:
        level: DEBUG, INFO, WARNING or ERROR, in upper or lower case.
        format: "text" for a line that people read; "json" for one JSON object a line (docs/monitoring.md has the fields).
        verbose: also log tracebacks, and the messages of client libraries that are silent otherwise.

    Raises:
        ConfigurationError: the level or the format is unknown.
    """
    lowest = _level(level)
    show_own_frames(verbose or lowest <= logging.DEBUG)
    if format not in FORMATS:
        raise ConfigurationError(f"log format {format!r} is not known: give one of {', '.join(FORMATS)}", key="format", value=format)
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(verbose) if format == JSON else LineFormatter(verbose))
    logging.basicConfig(level=max(logging.WARNING, lowest), handlers=[handler], force=True)
    for package in own_packages():
        logging.getLogger(package).setLevel(lowest)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    for known in connectors.installed_tools():
        for name in known.client_loggers:
            _let_speak(logging.getLogger(name), handler if verbose else None)
    turn_off_progress_bar()


def _level(level: str) -> int:
    """Return the number of a level. ConfigurationError if it is unknown."""
    if level.upper() not in LEVELS:
        raise ConfigurationError(f"log level {level!r} is not known: give one of {', '.join(LEVELS)}", key="level", value=level)
    return getattr(logging, level.upper())


def _let_speak(client: logging.Logger, handler: logging.Handler | None) -> None:
    """Give a logger of a client library, which does not propagate, this handler and none of an earlier call of `log`."""
    for known in [known for known in client.handlers if isinstance(known.formatter, LineFormatter | JsonFormatter)]:
        client.removeHandler(known)
    if handler is not None:
        client.addHandler(handler)


class LineFormatter(logging.Formatter):
    """Formats a log record as local time, level, logger and message. An exception is one line, unless `tracebacks` is true.

    What a terminal obeys is shown as its escape: a message may have the text of a record.
    """

    def __init__(self, tracebacks: bool) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S")
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(self._text(record))

    def _text(self, record: logging.LogRecord) -> str:
        """Return the line of a record, with its error at the end. With `tracebacks` the traceback of the error comes after the line."""
        if record.exc_info is None:
            error = _error_of(record) if self._tracebacks else None
            return super().format(record) if error is None else f"{super().format(record)}\n{_traceback_of(error)}"
        if self._tracebacks:
            return super().format(record)
        plain = logging.makeLogRecord({**record.__dict__, "msg": _with_error(record), "args": (), "exc_info": None, "exc_text": None})
        return super().format(plain)


class JsonFormatter(logging.Formatter):
    """Formats a log record as one JSON object in one line, with the fields that the caller gave by `extra`.

    Always there are time (ISO, UTC), level, logger, thread and message; with an exception also error, and traceback if `tracebacks` is
    true. A value that is no JSON value is written as its text. What a terminal obeys is an escape of JSON, so the value stays the same.
    """

    def __init__(self, tracebacks: bool) -> None:
        super().__init__()
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        fields: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": _with_error(record),
        }
        error = _error_of(record)
        if error is not None:
            fields["error"] = one_line(error)
            if self._tracebacks:
                fields["traceback"] = _traceback_of(error)
        return printable_json(json.dumps({**_added(record), **fields}, default=str, ensure_ascii=False))


def _added(record: logging.LogRecord) -> Mapping[str, Any]:
    """Return the fields that the caller gave by `extra`."""
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _error_of(record: logging.LogRecord) -> BaseException | None:
    """Return the exception of a log record, or the error that its message has; None without one."""
    return record.exc_info[1] if record.exc_info else record.__dict__.get(LOGGED_ERROR)


def _traceback_of(error: BaseException) -> str:
    """Return the traceback of an error as text, as Python prints it."""
    return "".join(traceback.format_exception(error)).rstrip()


def _with_error(record: logging.LogRecord) -> str:
    """Return the message of a log record and its error, as one line; the error's text appears once. Without an error, the message."""
    error, message = _error_of(record), record.getMessage()
    if error is None or not record.exc_info:
        return message
    said = str(error)
    if said and message.endswith(said):
        message = message[: -len(said)].rstrip(": ")
    return f"{message}: {one_line(error)}"
