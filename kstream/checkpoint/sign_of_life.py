"""Whether a driver lives on a checkpoint, by its status record and by clocks.

On the machine of the driver its process tells at once that it is gone.

A driver renews its status record every 20 s. So a record that is older than a minute is a sign that the driver is dead. But age is measured
by clocks, and clocks may be wrong. So the store's date of the record counts, and a clock that differs is named. Someone who sees a renewal
needs no clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kstream.batch_time import Time
from kstream.checkpoint import names
from kstream.checkpoint.driver_status import GONE_MS, RENEWAL_MS, DriverStatus, Outage, read_status
from kstream.checkpoint.plan_log import newest_epoch
from kstream.checkpoint.reader import Meta
from kstream.errors import MissingFileError
from kstream.storage import FileStore

BEHIND_INTERVALS = 10
"""A driver is behind if its oldest batch has been due for so many intervals: as long as a graceful stop waits for a batch."""
BEHIND_LEAST_S = 30.0
"""But not sooner than this: with short intervals ten of them are a pause of the garbage collector."""
ON_TIME = 2
"""The batches that a driver may be behind that is on time: one runs, and one has just become due."""
SKEW_MS = 5000
"""Clocks that differ by more are named. A write to a slow store takes less."""
WAIT_S = RENEWAL_MS / 1000 + 5
"""The default of `--wait`: a driver that lives has renewed its record then."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A status record as it was read.

    Attributes:
        status: the record.
        modified_ms: when it was written, by the clock of the store; None if the store does not know.
        now_ms: when it was read, by the clock of this machine.
        is_gone: whether the process of the driver has surely ended without a word.
    """

    status: DriverStatus
    modified_ms: int | None
    now_ms: int
    is_gone: bool = False

    @property
    def age_ms(self) -> int:
        """The age of the record. By the date of the store, else by its own. Not below 0."""
        return max(0, self.now_ms - (self.status.written_ms if self.modified_ms is None else self.modified_ms))

    @property
    def looks_alive(self) -> bool:
        """Whether the driver has renewed its record lately and has not ended, as far as the clocks can be trusted."""
        return self.status.ended is None and not self.is_gone and self.age_ms <= GONE_MS

    def skews(self) -> list[str]:
        """Return a sentence for each clock that differs from another by more than SKEW_MS."""
        found: list[str] = []
        if self.modified_ms is None:
            if (ahead := self.status.written_ms - self.now_ms) > SKEW_MS:
                found.append(f"the clock of {self.status.host} is {duration_text(ahead)} ahead of this machine's")
            return found
        if abs(off := self.status.written_ms - self.modified_ms) > SKEW_MS:
            found.append(f"the clock of {self.status.host} is {duration_text(abs(off))} {'ahead of' if off > 0 else 'behind'} the store's")
        if (behind := self.modified_ms - self.now_ms) > SKEW_MS:
            found.append(f"the clock of this machine is {duration_text(behind)} behind the store's")
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
        where = f"the driver of epoch {status.epoch} ({place_text(status)})"
        if status.epoch < self.epoch:
            return "fenced", f"fenced: {where} was fenced by epoch {self.epoch}, which has left no sign of life"
        if status.ended is not None:
            ended = f"no driver runs: {where} ended {duration_text(self.sign.age_ms)} ago: {status.ended}"
            return "ended", ended + _next_driver(status.is_followed)
        if self.sign.is_gone:
            return "dead", f"dead: the process of {where} is gone, and it did not say that it ended{_next_driver(status.supervised)}"
        return "dead", f"dead: {where} has not renewed its status for {duration_text(self.sign.age_ms)}, and did not say that it ended"


def _now_ms() -> int:
    """Return the moment by the clock of this machine, in milliseconds since the Unix epoch."""
    return round(time.time() * 1000)


def read_sign(store: FileStore, now_ms: Callable[[], int] = _now_ms) -> Sign | None:
    """Read the newest status record with its date in the store; None if there is none. Blocks on the store.

    Args:
        store: the checkpoint.
        now_ms: returns the moment, in milliseconds since the Unix epoch.

    Raises:
        CheckpointError: the record is damaged.
        StorageError: the store failed.
    """
    status = read_status(store)
    if status is None:
        return None
    try:
        modified = store.modified_ms(names.of_epoch(names.STATUS, status.epoch))
    except MissingFileError:  # a new driver has removed it since
        return read_sign(store, now_ms)
    return Sign(status, modified, now_ms(), status.ended is None and is_gone(status.pid, status.process))


def find_driver(store: FileStore, wait: float, sleep: Callable[[float], None] = time.sleep, now_ms: Callable[[], int] = _now_ms) -> Found:
    """Find the driver of a checkpoint. Reads neither log nor ledger. Blocks; for up to `wait` seconds before a driver is called dead.

    If another driver starts meanwhile, that one is looked for, with a wait of its own.

    Args:
        store: the checkpoint.
        wait: how long to wait for a renewal.
        sleep: sleep(seconds) waits.
        now_ms: returns the moment, in milliseconds since the Unix epoch.

    Raises:
        CheckpointError: the status record is damaged.
        StorageError: the store failed.
    """
    sign = read_sign(store, now_ms)
    epoch = newest_epoch(store)
    if sign is None:
        return Found(None, epoch)
    skews = sign.skews()
    if sign.status.ended is None and not sign.is_gone and sign.age_ms > GONE_MS and sign.status.epoch == epoch and wait > 0:
        later = _renewed(store, sign, wait, sleep, now_ms)
        if newest_epoch(store) != epoch:
            return find_driver(store, wait, sleep, now_ms)
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
    skews.append(f"the clock of this machine is {duration_text(renewed.age_ms)} ahead of {other}")
    return Sign(renewed.status, renewed.modified_ms, renewed.now_ms - renewed.age_ms), skews


def clock_ahead_ms(sign: Sign, before: Sign, elapsed_ms: int, known_ms: int) -> int:
    """Return by how many milliseconds the clock here is ahead of the one that dates records, as far as two looks can tell. Pure.

    A record that was renewed between two looks is younger than the time between them. If it looks older, the clock here is wrong.

    Args:
        sign: the record now.
        before: the record at the look before.
        elapsed_ms: the time between the looks, by a clock that nobody sets.
        known_ms: what earlier looks have told.
    """
    if sign.status.epoch != before.status.epoch or sign.status.written_ms == before.status.written_ms:
        return known_ms
    ahead = sign.age_ms - elapsed_ms
    if ahead > SKEW_MS:
        return ahead
    return 0 if sign.age_ms <= SKEW_MS else known_ms


def _renewed(store: FileStore, old: Sign, wait: float, sleep: Callable[[float], None], now_ms: Callable[[], int]) -> Sign | None:
    """Wait for a renewal of a record that looks old. Return the new record; None if none came."""
    left = wait
    while left > 0:
        step = min(left, 1.0)
        sleep(step)
        left -= step
        new = read_sign(store, now_ms)
        if new is not None and (new.status, new.modified_ms) != (old.status, old.modified_ms):
            return new
    return None


def judge(status: DriverStatus, max_behind: float | None = None) -> tuple[str, str]:
    """Judge a driver that lives, at the moment of its record. Pure.

    Args:
        status: the status of the driver.
        max_behind: the largest permitted delay in seconds; None is the default.

    Returns:
        `well`, `behind` or `failing`, and the sentence about it.
    """
    seconds = status.seconds_behind(status.written_ms)
    outage = "" if status.outage is None else _away(status, status.outage)
    most = max(BEHIND_INTERVALS * status.interval.seconds, BEHIND_LEAST_S) if max_behind is None else max_behind
    if status.failed or status.waiting:
        return "failing", _failing(status.failed, status.waiting) + outage
    if status.state_error is not None:
        return "failing", f"failing: the state cannot be written, and each batch tries it again: {status.state_error}{outage}"
    late = status.batches_behind(status.written_ms) > ON_TIME
    if seconds > most:
        due = f"the oldest batch has been due for {duration_text(seconds * 1000)}, longer than {most:g} s"
        return "behind", f"behind: {due}" + (f". {_catching_up(status)}" if late else "") + _slowest(status) + outage
    succeed = "well: batches succeed" if status.recent else "well: no batch has ended yet"
    return "well", (f"{succeed}. {_catching_up(status)}{_slowest(status)}" if late else f"{succeed}, and none is late") + outage


def behind_without_driver(meta: Meta | None, last_planned: Time | None, pending: Sequence[Time], now_ms: int) -> tuple[float, int]:
    """Return how far a stream without a driver is behind: seconds, and batches that are due and have not succeeded. Pure.

    Args:
        meta: the meta record of the checkpoint.
        last_planned: the newest planned batch.
        pending: the planned batches that have not ended.
        now_ms: the moment, in milliseconds since the Unix epoch.
    """
    if meta is None or last_planned is None:
        return 0.0, len(pending)
    due = meta.next_batch(last_planned)
    seconds = max(0, now_ms - min([*pending, due]).milliseconds) / 1000
    return seconds, len(pending) + max(0, (now_ms - due.milliseconds) // meta.interval.milliseconds + 1)


# -- the process of a driver

_BOOT, _NAMESPACE, _STAT = "/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid", "/proc/{}/stat"
_ENDED_STATES = ("Z", "X")
"""Of a process that runs no more: its parent has not looked at its end yet (zombie), or it is being removed."""


def mark_of_this_process() -> str | None:
    """Return what names this process among all processes of all machines and boots; None where the system does not tell. Only Linux does.

    The number of a process says nothing on another machine, in another container, after a boot, or once it is taken again. A reader with
    the same boot and the same PID namespace can look at the process.
    """
    try:
        return f"{_machine()} {_start_of(os.getpid())[1]}"
    except (OSError, ValueError, IndexError):
        return None


def is_gone(pid: int, mark: str | None) -> bool:
    """Return whether a process has surely ended. False if it runs, or if this machine cannot tell.

    Args:
        pid: the number of the process on its machine.
        mark: what `mark_of_this_process` returned there; None if it is not known.
    """
    with suppress(OSError, ValueError, IndexError, OverflowError):
        if mark is None or mark.rpartition(" ")[0] != _machine():
            return False
        try:
            os.kill(pid, 0)
        except PermissionError:
            pass  # another user's: it exists
        except ProcessLookupError:
            return True
        state, start = _start_of(pid)
        return state in _ENDED_STATES or start != mark.rpartition(" ")[2]
    return False


def _machine() -> str:
    """Return the boot of this machine and the PID namespace of this process. Raises OSError."""
    return f"{Path(_BOOT).read_text().strip()} {os.readlink(_NAMESPACE)}"


def _start_of(pid: int) -> tuple[str, str]:
    """Return the state of a process, and its start in ticks since the boot. Raises OSError, IndexError."""
    after_the_name = Path(_STAT.format(pid)).read_text().rpartition(")")[2].split()
    return after_the_name[0], after_the_name[19]


# -- in words


def _next_driver(comes: bool) -> str:
    """Return what follows the end of a driver, as a sentence after its own; "" if no supervisor starts the next one."""
    return ". `kstream run` starts the next one within a minute, if it still runs and a restart can help" if comes else ""


def _failing(failed: int, waiting: int) -> str:
    """Return the sentence about batches that have failed, and batches that wait for a retry or for an earlier one; one number may be 0."""
    failures = [f"{_batches(failed)} failed"] if failed else []
    waits = [f"{_batches(waiting)} {'waits' if waiting == 1 else 'wait'} for a retry or for an earlier batch"] if waiting else []
    return "failing: " + ", ".join([*failures, *waits])


def _catching_up(status: DriverStatus) -> str:
    """Return the sentence about a driver that is behind: how far, and how long its records take at the speed of the last batches."""
    records, rate = sum(lag.records for lag in status.lag), status.processing_rate
    batches = status.batches_behind(status.written_ms)
    # The lag is as of the newest plan, and nobody has looked at the ends since.
    if batches > status.unfinished and (not records or status.outage is not None):
        return f"{_batches(batches)} are due, {batches - status.unfinished} of them without a plan: how many records wait is not known"
    behind = f"It catches up, {_batches(batches)} and {records:,} records behind"
    return f"{behind}, about {records / rate:,.0f} s" if records and rate else behind


def _away(status: DriverStatus, outage: Outage) -> str:
    """Return what an outage keeps the driver from, since when, and for how long the driver waits, as a sentence after another one."""
    what = "no planned batch could start" if outage.first is None else "no batch could be planned"
    left = outage.until_ms - status.written_ms
    then = f"the driver waits for {duration_text(left)} more" if left > 0 else "the driver has reported it as an error"
    return f". For {duration_text(outage.ms(status.written_ms))} {what}, and {then}: {outage.text}"


def _slowest(status: DriverStatus) -> str:
    """Return which output operation took the longest of the newest batch that took longer than its interval; empty if none is known."""
    slow = status.last_slow
    if slow is None or slow.slowest is None:
        return ""
    return f". In the last slow batch {slow.slowest.text(slow.processing_ms)}"


def _batches(number: int) -> str:
    """Return a number of batches with its noun."""
    return f"{number} batch{'' if number == 1 else 'es'}"


def place_text(status: DriverStatus) -> str:
    """Return where a driver runs or ran."""
    return f"{status.host}, pid {status.pid}"


def duration_text(ms: float) -> str:
    """Return a duration: with a decimal below ten seconds, in hours and minutes above two minutes."""
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds) // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {round(seconds) % 60} s"
