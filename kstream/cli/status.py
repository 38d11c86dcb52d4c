"""`kstream status`: whether a driver lives on a checkpoint, how far it is behind, and why. Needs neither Java nor pyspark.

`kstream.checkpoint.sign_of_life` finds the driver. Before the command calls a driver dead, it waits for a renewal of its record: that
needs no clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import click

from kstream.batch_time import Time
from kstream.checkpoint import read_log
from kstream.checkpoint.driver_status import DriverStatus, LastError, StreamLag, status_fields
from kstream.checkpoint.history import count_new_entries
from kstream.checkpoint.sign_of_life import (
    BEHIND_INTERVALS,
    BEHIND_LEAST_S,
    WAIT_S,
    Found,
    Sign,
    behind_without_driver,
    duration_text,
    find_driver,
    judge,
    place_text,
)
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import holds_query, open_existing
from kstream.cli.query import judge_query, read_query, status_data, status_words
from kstream.cli.terminal import clear_errors, count, echo
from kstream.storage import FileStore


@click.command("status")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.option(
    "--max-behind",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help=f"Exit code 1 if a batch has been due for longer. Default: {BEHIND_INTERVALS} batch intervals, at least {BEHIND_LEAST_S:g} s.",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for a sign of life before a driver is called dead; 0 trusts the clocks.",
)
def status_command(path: str, as_json: bool, max_behind: float | None, wait: float) -> None:
    """Show whether a driver lives on a checkpoint, how far it is behind, and its last error.

    Exit code 0: it lives and all is well. 1: it lives, and is behind or failing. 2: no driver lives. 3: the checkpoint cannot be read.

    PATH may also be the checkpointLocation of a query of Structured Streaming. Nothing in it says whether the query runs. So its newest
    batches are shown, and the exit code is 1 only if one has been open for longer than --max-behind.
    """
    with clear_errors(code=ReadingCode.UNREADABLE):
        store = open_existing(path, or_query=True)
        if holds_query(store):
            query = read_query(store)
            judged = judge_query(query, round(time.time() * 1000), max_behind)
            echo(json.dumps(status_data(query, judged), indent=2) if as_json else "\n".join(status_words(query, judged)))
            raise SystemExit(int(judged.code))
        report = look(store, max_behind, wait)
    echo(json.dumps(as_data(report), indent=2) if as_json else "\n".join(in_words(report)))
    raise SystemExit(int(report.code))


# -- reading


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of the command.

    Attributes:
        url: the checkpoint.
        code: the exit code.
        state: `well`, `behind`, `failing`, `ended`, `fenced`, `dead` or `unknown`.
        sentence: the state as a sentence.
        sign: the status record; None if there is none.
        seconds_behind, batches_behind: how far the driver is behind; of a dead one until now.
        pending: the number of planned batches that have not succeeded, and the oldest of them.
        ledger: the number of entries in the ledger that nobody has acknowledged or asked for.
        skews: sentences about clocks that differ.
    """

    url: str
    code: ReadingCode
    state: str
    sentence: str
    sign: Sign | None
    seconds_behind: float
    batches_behind: int
    pending: tuple[int, Time | None]
    ledger: int
    skews: Sequence[str] = field(default=())


def look(store: FileStore, max_behind: float | None, wait: float, sleep: Callable[[float], None] = time.sleep) -> Report:
    """Read a checkpoint and judge it. Blocks; for up to `wait` seconds before a driver is called dead.

    Args:
        store: the checkpoint.
        max_behind: the largest permitted delay in seconds; None is the default.
        wait: how long to wait for a renewal.
        sleep: sleep(seconds) waits.

    Raises:
        CheckpointError: a record is damaged.
        StorageError: the store failed.
    """
    found = find_driver(store, wait, sleep)
    ledger = count_new_entries(store)
    if found.sign is not None and found.living is not None:
        return _of_the_living(store, found.sign, max_behind, ledger, found.skews)
    return _of_the_dead(store, found, ledger)


def _of_the_living(store: FileStore, sign: Sign, max_behind: float | None, ledger: int, skews: Sequence[str]) -> Report:
    """Judge a driver that lives, at the moment of its record."""
    status = sign.status
    seconds, batches = status.seconds_behind(status.written_ms), status.batches_behind(status.written_ms)
    state, sentence = judge(status, max_behind)
    code = ReadingCode.WELL if state == "well" else ReadingCode.BEHIND
    pending = status.unfinished, status.oldest_unfinished
    return Report(store.url, code, state, sentence, sign, seconds, batches, pending, ledger, skews)


def _of_the_dead(store: FileStore, found: Found, ledger: int) -> Report:
    """Judge a checkpoint on which no driver seems to live. Reads its whole log: a dead driver's record may miss its last batches."""
    contents = read_log(store)
    pending = contents.pending
    now_ms = round(time.time() * 1000) if found.sign is None else found.sign.now_ms
    state, sentence = found.end()
    seconds, batches = behind_without_driver(contents.meta, contents.last_planned, pending, now_ms)
    oldest = len(pending), min(pending, default=None)
    return Report(store.url, ReadingCode.DEAD, state, sentence, found.sign, seconds, batches, oldest, ledger, found.skews)


# -- for people and as JSON


def as_data(report: Report) -> dict[str, Any]:
    """Return the report as JSON values. `status` is the record; moments in milliseconds since the Unix epoch."""
    sign, (pending, oldest) = report.sign, report.pending
    return {
        "path": report.url,
        "exit_code": int(report.code),
        "state": report.state,
        "sentence": report.sentence,
        "alive": report.code in (ReadingCode.WELL, ReadingCode.BEHIND),
        "renewed_seconds_ago": None if sign is None else sign.age_ms / 1000,
        "seconds_behind": report.seconds_behind,
        "batches_behind": report.batches_behind,
        "pending": pending,
        "oldest_pending": None if oldest is None else oldest.milliseconds,
        "input_rate": None if sign is None else sign.status.input_rate,
        "processing_rate": None if sign is None else sign.status.processing_rate,
        "ledger": report.ledger,
        "clock_skew": list(report.skews),
        "status": None if sign is None else status_fields(sign.status),
    }


def in_words(report: Report) -> list[str]:
    """Return the report as lines for people; times are local."""
    lines = [report.url, report.sentence]
    if report.sign is not None:
        status = report.sign.status
        lines.append(f"driver: {status.application}, epoch {status.epoch}, {place_text(status)}, since {_moment(status.started_ms)}")
        lines.append(f"renewed: {duration_text(report.sign.age_ms)} ago")
    lines.append(f"behind: {count(report.batches_behind, 'batch')}, {duration_text(report.seconds_behind * 1000)}")
    pending, oldest = report.pending
    lines.append(f"pending: {count(pending, 'batch')}" + ("" if oldest is None else f", the oldest {_batch(oldest)}"))
    if report.sign is not None:
        lines += _figures(report.sign.status)
        if report.code is ReadingCode.DEAD:
            if report.sign.status.lag:
                lines.append(f"lag now: the record of that driver is no longer renewed; `kstream lag {report.url}` asks the brokers")
            lines.append(f"page: `kstream page {report.url}` shows its batches while no driver runs")
        else:
            addresses = {"metrics": report.sign.status.metrics_url, "page": report.sign.status.ui_url}
            lines += [f"{name}: {url}" for name, url in addresses.items() if url is not None]
    lines.append(f"ledger: {count(report.ledger, 'entry')} that nobody has acknowledged or asked for")
    return lines + [f"clock skew: {sentence}" for sentence in report.skews]


def _figures(status: DriverStatus) -> list[str]:
    """Return the lines about the last batches, rates, lag and the last error."""
    lines: list[str] = []
    last = status.last_ended
    if last is not None:
        how = "failed" if last.failed else f"{count(last.records, 'record')}"
        lines.append(
            f"last batch: {_batch(last.time)}, {how}, scheduling delay {last.scheduling_delay_ms} ms, processing {last.processing_ms} ms"
        )
        processed = "" if status.processing_rate is None else f", {status.processing_rate:,.0f} a second of processing"
        lines.append(f"rates: {status.input_rate or 0:,.1f} records a second{processed} (last {count(len(status.recent), 'batch')})")
    if status.record_errors:
        errors = count(status.record_errors, "record")
        lines.append(f"record errors: {errors} failed and left out of the last {count(len(status.recent), 'batch')}")
    lines += [lag_line(lag) for lag in status.lag]
    lines += [f"back-pressure: stream {stream} may take {rate:,} records a second" for stream, rate in sorted(status.rates.items())]
    if status.last_error is not None:
        settled = status.error_settled
        lines.append(f"last error: {_error(status.last_error)}" + ("" if settled is None else f" ({settled})"))
    return lines


def lag_line(lag: StreamLag) -> str:
    """Return the line about the lag of an input, and why its newest batch did not take all records. Pure."""
    unplanned = " in no batch yet" if lag.unplanned is None else f", {lag.unplanned:,} of them in no batch yet" if lag.records else ""
    as_of = "" if lag.at_ms is None else f", as of {_moment(lag.at_ms)}"
    limited = "" if lag.limited_by is None else f"; the newest batch is limited by {lag.limited_by}"
    return f"lag of stream {lag.stream}: {count(lag.records, 'record')}{unplanned} ({lag.description}){as_of}{limited}"


def _error(error: LastError) -> str:
    """Return the last error with its moment, batch and output operation."""
    place = "" if error.batch is None else f", batch {error.batch} in output operation {error.operation}"
    return f"{_moment(error.at_ms)}{place}: {error.text}"


def _batch(at: Time) -> str:
    """Return a batch time for people and for other commands."""
    return f"{_moment(at.milliseconds)} ({at})"


def _moment(ms: int) -> str:
    """Return a moment as local date and time."""
    return f"{datetime.fromtimestamp(ms / 1000):%Y-%m-%d %H:%M:%S}"
