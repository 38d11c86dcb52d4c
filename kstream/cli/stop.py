"""`kstream stop`: asks the driver of a checkpoint to stop, from any machine that may write there. Needs neither Java nor pyspark.

The request is a record for the epoch of the driver. The driver looks for it every 3 s, and says in its status record that it has ended. No
signal and no port is needed, and the request never stops a later driver. If the driver dies meanwhile, and a supervisor starts the next
one, the command asks that one, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from kstream.checkpoint.driver_status import GONE_MS, DriverStatus
from kstream.checkpoint.sign_of_life import WAIT_S, Found, find_driver, read_sign
from kstream.checkpoint.stop_request import StopRequest, ask_to_stop
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import open_existing
from kstream.cli.terminal import clear_errors, count, echo, fail, this_process
from kstream.storage import FileStore

_LOOK_S = 1.0
MOST_DRIVERS = 3
"""The most drivers that one command asks, one after the other."""
_SUPERVISOR = "If a supervisor runs, stop the supervisor (SIGTERM), or ask again when the next driver runs"


@click.command("stop")
@click.argument("path")
@click.option("--after-batch", "now", flag_value=False, default=False, type=bool, help="Finish the planned batches first (the default).")
@click.option("--now", "now", flag_value=True, type=bool, help="Stop at once; batches that did not end run at the next start.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until the driver has ended. The request stands afterwards, too.",
)
def stop_command(path: str, now: bool, timeout: float) -> None:
    """Ask the driver of a checkpoint to stop, and wait until it has ended.

    The driver ends as after a graceful stop, and a supervisor does not start it again. If the driver dies meanwhile, and the supervisor
    starts the next one, that one is asked, too. --now after --after-batch ends the wait for batches.

    Exit code 0: the driver has ended. 1: it has not ended in time, or again and again another driver has taken its place. 2: no driver
    was there, or it died or was fenced. 3: the checkpoint cannot be read.
    """
    with clear_errors(code=ReadingCode.UNREADABLE):
        store = open_existing(path)
        told, code = stop_drivers(store, _living(find_driver(store, WAIT_S)), now, timeout)
    if code is not ReadingCode.WELL:
        fail(told, code)
    echo(told)


def _living(found: Found) -> DriverStatus:
    """Return the status of the driver that lives. End the program if none does.

    A driver that was stopped is what the user wants. One that ended after an error may have a supervisor that starts the next one.
    """
    living = found.living
    if living is None:
        state, sentence = found.end()
        if state == "ended" and found.sign is not None and found.sign.status.ended in ("gracefully", "at once"):
            echo(sentence)
            raise SystemExit(int(ReadingCode.WELL))
        fail(f"there is no driver to stop: {sentence}" + (f". {_SUPERVISOR}" if state == "ended" else ""), ReadingCode.DEAD)
    return living


def stop_drivers(
    store: FileStore,
    driver: DriverStatus,
    now: bool,
    timeout: float,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[str, ReadingCode]:
    """Ask a driver to stop, and each driver that takes its place meanwhile, up to MOST_DRIVERS. Blocks until the last one has ended.

    Args:
        store: the checkpoint.
        driver: the driver that lives.
        now: whether to stop at once.
        timeout: seconds for all drivers together.
        sleep: sleep(seconds) waits.
        monotonic: returns seconds that never fall.

    Returns:
        What happened, as a sentence, and the exit code.

    Raises:
        CheckpointError: a status record or a request is damaged.
        StorageError: the store failed.
    """
    end = monotonic() + timeout
    asked = 0
    while True:
        _ask(store, driver, now)
        asked += 1
        told, code = wait_for_the_end(store, driver.epoch, max(0.0, end - monotonic()), sleep, monotonic)
        sign = read_sign(store)
        if code is not ReadingCode.BEHIND or sign is None or not _is_next_of(sign.status, driver):
            return told, code
        if asked == MOST_DRIVERS:
            return f"{told}. {count(asked, 'driver')} were asked, and a new one came each time. Stop the supervisor (SIGTERM)", code
        echo(told)
        driver = sign.status


def _is_next_of(newer: DriverStatus, asked: DriverStatus) -> bool:
    """Return whether the supervisor of a driver has started a newer one in its place. A driver from elsewhere is another one's."""
    return newer.epoch > asked.epoch and newer.supervised and asked.supervised and newer.host == asked.host


def _ask(store: FileStore, driver: DriverStatus, now: bool) -> None:
    """Store the request for a driver, and print that. Blocks on the store. Raises as `ask_to_stop`."""
    stored = ask_to_stop(store, StopRequest(driver.epoch, round(time.time() * 1000), this_process(), now))
    how = "at once" if stored.now else "after its planned batches"
    echo(f"asked the driver of epoch {driver.epoch} ({driver.host}, pid {driver.pid}) to stop {how}")


def wait_for_the_end(
    store: FileStore,
    epoch: int,
    timeout: float,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[str, ReadingCode]:
    """Block until the driver of an epoch has ended. No clock is compared with another: a record lives while it changes.

    A driver that failed before it saw the request is followed by the next one, if it has a supervisor. This waits for that one, too.

    Args:
        store: the checkpoint.
        epoch: the epoch of the driver.
        timeout: seconds.
        sleep: sleep(seconds) waits.
        monotonic: returns seconds that never fall.

    Returns:
        What happened, as a sentence, and the exit code.

    Raises:
        CheckpointError: the status record is damaged.
        StorageError: the store failed.
    """
    begin = changed = monotonic()
    last: DriverStatus | None = None
    while True:
        sign = read_sign(store)
        if sign is None or sign.status.epoch != epoch:
            newer = "the record of its end is gone" if sign is None else f"the driver of epoch {sign.status.epoch} has taken its place"
            return f"the driver of epoch {epoch} no longer runs: {newer}", ReadingCode.BEHIND
        status = sign.status
        if status.ended is not None and not status.is_followed:
            return _end_of(status), ReadingCode.DEAD if status.ended == "fenced" else ReadingCode.WELL
        moment = monotonic()
        if status != last:
            last, changed = status, moment
        if sign.is_gone and not status.supervised:
            return f"the driver of epoch {epoch} died: its process is gone", ReadingCode.DEAD
        if status.ended is None and (moment - changed) * 1000 > GONE_MS:
            said = f"the driver of epoch {epoch} died: it has not renewed its status for {moment - changed:.0f} s"
            return f"{said}. {_SUPERVISOR}", ReadingCode.DEAD
        if moment - begin >= timeout and status.ended is not None:
            said = f"the driver of epoch {epoch} has ended: {status.ended}, and no next one has come within {timeout:g} s"
            return f"{said}. {_SUPERVISOR}", ReadingCode.BEHIND
        if moment - begin >= timeout:
            rest = f"{count(status.unfinished, 'batch')} did not end"
            said = f"the driver of epoch {epoch} has not ended within {timeout:g} s ({rest}); the request stands"
            return f"{said}. Wait with a longer --timeout, or give --now", ReadingCode.BEHIND
        sleep(min(_LOOK_S, max(0.05, begin + timeout - moment)))


def _end_of(status: DriverStatus) -> str:
    if status.ended == "fenced":
        return f"the driver of epoch {status.epoch} was fenced: another driver has taken the checkpoint"
    rest = f"{count(status.unfinished, 'batch')} left: the next start runs {'it' if status.unfinished == 1 else 'them'}"
    return f"the driver of epoch {status.epoch} has ended: {status.ended}" + (f", {rest}" if status.unfinished else "")
