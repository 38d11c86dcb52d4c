"""The functions that all commands share: errors as one line, numbers with their noun, offset ranges, and times."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import groupby
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.text import Text

from kstream.batch_time import Duration, Time, format_batch_time
from kstream.errors import FROM_SPARK, ConfigurationError, KStreamError, MissingDependencyError, one_line
from kstream.offsets.offset_range import PlannedRange
from kstream.printable import printable_lines

INSTALL_SPARK = "pip install 'kstream-spark[spark]'"

_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(r"-\s*(\d+)\s*([smhd])")
_MOMENTS = "give ms since the epoch, an ISO time (local, unless it names a zone), -2h (s, m, h, d) or now"


# -- errors


def fail(message: str, code: int = 1) -> NoReturn:
    """Print the message on standard error and end the program with an exit code."""
    echo(f"kstream: {message}", err=True)
    raise SystemExit(int(code))


@contextmanager
def clear_errors(verbose: bool = False, code: int = 1) -> Generator[None]:
    """Turn a KStreamError of the body, or any error of the types that Spark raises, into one line and an exit code.

    Other errors are bugs and pass.

    Args:
        verbose: print the traceback before the line.
        code: the exit code. Commands that only read have `kstream.cli.exit_codes.ReadingCode.UNREADABLE`.
    """
    try:
        yield
    except Exception as e:
        if not isinstance(e, KStreamError) and type(e).__name__ not in FROM_SPARK:
            raise
        if verbose:
            echo(traceback.format_exc(), err=True, nl=False)
        fail(one_line(e), code)


def require_pyspark() -> None:
    """Raise MissingDependencyError, which names the command that installs pyspark, if pyspark is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        message = f"pyspark is not installed: {INSTALL_SPARK} (or use the pyspark of your platform)"
        raise MissingDependencyError(message, package="pyspark", install=INSTALL_SPARK)


# -- texts

_AS_WIDE_AS_NEEDED = 100_000


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text for people or as JSON, without characters that a terminal obeys. Commands print by this, or by `table_console`.

    Args:
        text: the text, of one line or several.
        err: print on standard error.
        nl: add a line break at the end.
    """
    click.echo(printable_lines(text), err=err, nl=nl)


class _PrintableConsole(Console):
    """A console whose texts have no characters that a terminal obeys, but those of its own styles."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text as rich makes it of a cell, or of what is printed."""
        return super().render_str(printable_lines(text), **options)


def table_console() -> Console:
    """Return a console for tables. On a terminal tables are as wide as it is; in a pipe or a file no row is wrapped or cut."""
    console = _PrintableConsole(highlight=False, soft_wrap=False)
    return console if console.is_terminal else _PrintableConsole(highlight=False, soft_wrap=False, width=_AS_WIDE_AS_NEEDED)


def count(number: int, what: str) -> str:
    """Return a number with its noun: `1 batch`, `2 batches`, `0 records`."""
    if number == 1:
        return f"{number} {what}"
    return f"{number} {what[:-1]}ies" if what.endswith("ry") else f"{number} {what}{'es' if what.endswith('ch') else 's'}"


def this_process() -> str:
    """Return the host and the process of this command, for a record that says who has asked."""
    return f"{socket.gethostname()}, pid {os.getpid()}"


def batch_moment(time: Time, interval: Duration) -> str:
    """Return the date and time of a batch, local."""
    return f"{time.to_datetime():%Y-%m-%d} {format_batch_time(time, interval)}"


def utc_text(moment_ms: int) -> str:
    """Return a moment as date and time in UTC."""
    return f"{datetime.fromtimestamp(moment_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S}"


def compact(ranges: Sequence[PlannedRange], most: int = 8) -> str:
    """Return ranges as a short text: `orders/0 [5, 10) /1 [7, 9)`.

    Args:
        ranges: the ranges. The text counts the empty ones.
        most: the largest number of ranges in the text. The text counts the others.
    """
    full = [r for r in sorted(ranges) if r[3] > r[2]]
    empty = len(ranges) - len(full)
    words: list[str] = []
    for topic, rows in groupby(full[:most], key=lambda r: r[0]):
        words += [f"{topic if i == 0 else ''}/{p} [{a}, {b})" for i, (_, p, a, b) in enumerate(rows)]
    if len(full) > most:
        words.append(f"… {len(full) - most} more")
    if empty:
        words.append(f"({empty} empty)" if full else f"{empty} empty")
    return " ".join(words)


def parse_moment(text: str, now_ms: int) -> int:
    """Return the time that a user wrote, in ms since the epoch.

    Args:
        text: ms since the epoch, an ISO time (local, unless it names a zone), a distance such as -2h, or now.
        now_ms: the time now, in ms since the epoch.

    Raises:
        ConfigurationError: the text is no time.
    """
    text = text.strip()
    if text.isdecimal():
        return int(text)
    if text.lower() == "now":
        return now_ms
    if ago := _AGO.fullmatch(text):
        return now_ms - int(ago[1]) * _UNITS[ago[2]]
    try:
        return round(datetime.fromisoformat(text.replace("Z", "+00:00") if text.endswith("Z") else text).timestamp() * 1000)
    except ValueError as e:
        raise ConfigurationError(f"{text!r} is no time: {_MOMENTS}", key="moment", value=text) from e
