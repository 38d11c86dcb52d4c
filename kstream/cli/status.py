"""`kstream status`: whether a driver lives on a checkpoint, how far it is behind, and why. Needs neither Java nor pyspark.

A driver renews its status record every 20 s. So a record that is older than a minute is a sign that the driver is dead. But age is measured
by clocks, and clocks may be wrong. So the command takes the store's date of the record and names a clock that differs. Before it calls a
driver dead, it waits for a renewal, which needs no clock.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import click

from kstream.batch_time import Time
from kstream.checkpoint import names, read_log
from kstream.checkpoint.driver_status import GONE_MS, RENEWAL_MS, DriverStatus, LastError, StreamLag, read_status, status_fields, status_of
from kstream.checkpoint.history import count_new_entries
from kstream.checkpoint.plan_log import newest_epoch
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import open_existing
from kstream.cli.terminal import clear_errors, count
from kstream.errors import MissingFileError
from kstream.storage import FileStore

BEHIND_INTERVALS = 10
"""A driver is behind if its oldest batch has been due for so many intervals: as long as a graceful stop waits for a batch."""
BEHIND_LEAST_S = 30.0
"""But not sooner than this: with short intervals ten of them are a pause of the garbage collector."""
SKEW_MS = 5000
"""Clocks that differ by more are named. A write to a slow store takes less."""
ASK_S = 1.0
"""Seconds for which the port for metrics of a driver may be silent."""
MOST_BYTES = 1_000_000
WAIT_S = RENEWAL_MS / 1000 + 5
"""The default of `--wait`: a driver that lives has renewed its record then."""


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
    """
    with clear_errors(code=ReadingCode.UNREADABLE):
        store = open_existing(path)
        report = look(store, max_behind, wait)
    click.echo(json.dumps(as_data(report), indent=2) if as_json else "\n".join(in_words(report)))
    raise SystemExit(int(report.code))


# -- reading


@dataclass(frozen=True, slots=True)
class Sign:
    """A status record as it was read.

    Attributes:
        status: the record.
        modified_ms: when it was written, by the clock of the store; None if the store does not know.
        now_ms: when it was read, by the clock of this machine.
    """

    status: DriverStatus
    modified_ms: int | None
    now_ms: int

    @property
    def age_ms(self) -> int:
        """The age of the record. By the date of the store, else by its own. Not below 0."""
        return max(0, self.now_ms - (self.status.written_ms if self.modified_ms is None else self.modified_ms))

    @property
    def looks_alive(self) -> bool:
        """Whether the driver has renewed its record lately and has not ended, as far as the clocks can be trusted."""
        return self.status.ended is None and self.age_ms <= GONE_MS

    def skews(self) -> list[str]:
        """Return a sentence for each clock that differs from another by more than SKEW_MS."""
        found: list[str] = []
        if self.modified_ms is None:
            if (ahead := self.status.written_ms - self.now_ms) > SKEW_MS:
                found.append(f"the clock of {self.status.host} is {_seconds(ahead)} ahead of this machine's")
            return found
        if abs(off := self.status.written_ms - self.modified_ms) > SKEW_MS:
            found.append(f"the clock of {self.status.host} is {_seconds(abs(off))} {'ahead of' if off > 0 else 'behind'} the store's")
        if (behind := self.modified_ms - self.now_ms) > SKEW_MS:
            found.append(f"the clock of this machine is {_seconds(behind)} behind the store's")
        return found


@dataclass(frozen=True, slots=True)
class Found:
    """The driver of a checkpoint, as its newest sign of life tells.

    Attributes:
        sign: the status record; None if there is none.
        epoch: the newest epoch of the checkpoint.
        skews: sentences about clocks that differ.
    """

    sign: Sign | None
    epoch: int
    skews: Sequence[str] = ()

    @property
    def living(self) -> DriverStatus | None:
        """The status of the driver that lives; None if none seems to live."""
        if self.sign is None or not self.sign.looks_alive or self.sign.status.epoch != self.epoch:
            return None
        return self.sign.status

    def end(self) -> tuple[str, str]:
        """Return the state of a driver that does not live, and the sentence about it."""
        if self.sign is None:
            return "unknown", "no driver has left a sign of life: an older kstream runs there, or a driver has just started"
        status = self.sign.status
        where = f"the driver of epoch {status.epoch} ({_place(status)})"
        if status.epoch < self.epoch:
            return "fenced", f"fenced: {where} was fenced by epoch {self.epoch}, which has left no sign of life"
        if status.ended is not None:
            return "ended", f"no driver runs: {where} ended {_seconds(self.sign.age_ms)} ago: {status.ended}"
        return "dead", f"dead: {where} has not renewed its status for {_seconds(self.sign.age_ms)}, and did not say that it ended"


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


def read_sign(store: FileStore) -> Sign | None:
    """Read the newest status record with its date in the store; None if there is none. Raises as `read_status`."""
    status = read_status(store)
    if status is None:
        return None
    try:
        modified = store.modified_ms(names.of_epoch(names.STATUS, status.epoch))
    except MissingFileError:  # a new driver has removed it since
        return read_sign(store)
    return Sign(status, modified, round(time.time() * 1000))


def find_driver(store: FileStore, wait: float, sleep: Callable[[float], None] = time.sleep) -> Found:
    """Find the driver of a checkpoint. Reads neither log nor ledger. Blocks; for up to `wait` seconds before a driver is called dead.

    If another driver starts meanwhile, that one is looked for, with a wait of its own.

    Args:
        store: the checkpoint.
        wait: how long to wait for a renewal.
        sleep: sleep(seconds) waits.

    Raises:
        CheckpointError: the status record is damaged.
        StorageError: the store failed.
    """
    sign = read_sign(store)
    epoch = newest_epoch(store)
    if sign is None:
        return Found(None, epoch)
    skews = sign.skews()
    answer = answer_of(sign.status)
    if answer is not None:
        sign = Sign(answer, None, answer.written_ms)
    if sign.status.ended is None and sign.age_ms > GONE_MS and sign.status.epoch == epoch and wait > 0:
        later = _renewed(store, sign, wait, sleep)
        if newest_epoch(store) != epoch:
            return find_driver(store, wait, sleep)
        if later is not None:
            sign, skews = _as_fresh(later)
    return Found(sign, epoch, skews)


def _as_fresh(renewed: Sign) -> tuple[Sign, list[str]]:
    """Return a record that was seen to be renewed, with its age by the store's clock, and the sentences about clocks.

    It has just been written. So if it looks old, the clock of this machine is ahead.
    """
    skews = renewed.skews()
    if renewed.age_ms <= SKEW_MS:
        return renewed, skews
    other = f"that of {renewed.status.host}" if renewed.modified_ms is None else "the store's"
    skews.append(f"the clock of this machine is {_seconds(renewed.age_ms)} ahead of {other}")
    return Sign(renewed.status, renewed.modified_ms, renewed.now_ms - renewed.age_ms), skews


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


def answer_of(known: DriverStatus) -> DriverStatus | None:
    """Ask a driver itself for its status, at its port for metrics. None if it has none, or if nobody answers there who is this driver.

    Its loopback address is another driver's or nobody's on another machine. Blocks up to ASK_S.
    """
    if known.metrics_url is None or known.ended is not None or not known.metrics_url.startswith("http://"):
        return None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(known.metrics_url.removesuffix("/metrics") + "/status", timeout=ASK_S) as response:
            answer = status_of(json.loads(response.read(MOST_BYTES)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # nobody, or another program
        return None
    same = (answer.host, answer.pid, answer.epoch, answer.started_ms) == (known.host, known.pid, known.epoch, known.started_ms)
    return answer if same else None


def _renewed(store: FileStore, old: Sign, wait: float, sleep: Callable[[float], None]) -> Sign | None:
    """Wait for a renewal of a record that looks old. Return the new record; None if none came."""
    left = wait
    while left > 0:
        step = min(left, 1.0)
        sleep(step)
        left -= step
        new = read_sign(store)
        if new is not None and (new.status, new.modified_ms) != (old.status, old.modified_ms):
            return new
    return None


def _of_the_living(store: FileStore, sign: Sign, max_behind: float | None, ledger: int, skews: Sequence[str]) -> Report:
    """Judge a driver that lives, at the moment of its record."""
    status = sign.status
    seconds, batches = status.seconds_behind(status.written_ms), status.batches_behind(status.written_ms)
    most = max(BEHIND_INTERVALS * status.interval.seconds, BEHIND_LEAST_S) if max_behind is None else max_behind
    code, state, sentence = ReadingCode.WELL, "well", "well: batches succeed, and none is late"
    if status.failed or status.waiting:
        code, state = ReadingCode.BEHIND, "failing"
        sentence = _failing(status.failed, status.waiting)
    elif seconds > most:
        code, state = ReadingCode.BEHIND, "behind"
        sentence = f"behind: the oldest batch has been due for {_seconds(seconds * 1000)}, longer than {most:g} s"
    pending = status.unfinished, status.oldest_unfinished
    return Report(store.url, code, state, sentence, sign, seconds, batches, pending, ledger, skews)


def _failing(failed: int, waiting: int) -> str:
    """Return the sentence about batches that have failed, and batches that wait for a retry or for an earlier one; one number may be 0."""
    wait = f"{count(waiting, 'batch')} {'waits' if waiting == 1 else 'wait'} for a retry or for an earlier batch"
    return "failing: " + ", ".join([*([f"{count(failed, 'batch')} failed"] if failed else []), *([wait] if waiting else [])])


def _of_the_dead(store: FileStore, found: Found, ledger: int) -> Report:
    """Judge a checkpoint on which no driver seems to live. Reads its whole log: a dead driver's record may miss its last batches."""
    contents = read_log(store)
    pending = contents.pending
    now_ms = round(time.time() * 1000) if found.sign is None else found.sign.now_ms
    state, sentence = found.end()
    seconds, batches = 0.0, len(pending)
    if contents.meta is not None and contents.last_planned is not None:
        due = contents.meta.next_batch(contents.last_planned)
        seconds = max(0, now_ms - min([*pending, due]).milliseconds) / 1000
        batches += max(0, (now_ms - due.milliseconds) // contents.meta.interval.milliseconds + 1)
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
        lines.append(f"driver: {status.application}, epoch {status.epoch}, {_place(status)}, since {_moment(status.started_ms)}")
        lines.append(f"renewed: {_seconds(report.sign.age_ms)} ago")
    lines.append(f"behind: {count(report.batches_behind, 'batch')}, {_seconds(report.seconds_behind * 1000)}")
    pending, oldest = report.pending
    lines.append(f"pending: {count(pending, 'batch')}" + ("" if oldest is None else f", the oldest {_batch(oldest)}"))
    if report.sign is not None:
        lines += _figures(report.sign.status)
    lines.append(f"ledger: {count(report.ledger, 'entry')}")
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
    if status.last_error is not None:
        lines.append(f"last error: {_error(status.last_error)}")
    if status.metrics_url is not None:
        lines.append(f"metrics: {status.metrics_url}")
    return lines


def lag_line(lag: StreamLag) -> str:
    """Return the line about the lag of an input, and why its last batch did not take all records. Pure."""
    limited = "" if lag.limited_by is None else f"; the last batch is limited by {lag.limited_by}"
    return f"lag of stream {lag.stream}: {count(lag.records, 'record')} in no batch yet ({lag.description}){limited}"


def _error(error: LastError) -> str:
    """Return the last error with its moment, batch and output operation."""
    place = "" if error.batch is None else f", batch {error.batch} in output operation {error.operation}"
    return f"{_moment(error.at_ms)}{place}: {error.text}"


def _place(status: DriverStatus) -> str:
    """Return where a driver runs or ran."""
    return f"{status.host}, pid {status.pid}"


def _batch(at: Time) -> str:
    """Return a batch time for people and for other commands."""
    return f"{_moment(at.milliseconds)} ({at})"


def _moment(ms: int) -> str:
    """Return a moment as local date and time."""
    return f"{datetime.fromtimestamp(ms / 1000):%Y-%m-%d %H:%M:%S}"


def _seconds(ms: float) -> str:
    """Return a duration: with a decimal below ten seconds, in hours and minutes above two minutes."""
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds) // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {round(seconds) % 60} s"
