"""What a test does inside of a driver and of its workers: it kills the driver in a commit, and holds a batch or a commit.

`KSTREAM_TEST_HOOKS` names a directory. The files in it tell the processes what to do, and the test what they have done:

    hold-NAME     the next that comes to this place waits: "batch" is the begin of a batch, "commit" that of a commit
    held-NAME     one waits
    go-NAME       it goes on
    armed         commits count from now on, for DIE_IN_WRITE
    alone         the next commit kills its own worker when it is done, and removes the file

`KSTREAM_TEST_PLANTED` names a bug, which is planted in the driver and in its workers.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from integration.exactness.database import DIE_IN_WRITE

HOOKS = "KSTREAM_TEST_HOOKS"
PLANTED = "KSTREAM_TEST_PLANTED"
HOLD, HELD, GO, ARMED, ALONE = "hold", "held", "go", "armed", "alone"
BATCH, COMMIT = "batch", "commit"


@dataclass(frozen=True)
class Hooked:
    """A function of the user. A worker that unpickles it installs its hooks first, before the sink runs.

    Attributes:
        driver: the process of the driver.
        function: the function.
    """

    driver: int
    function: Callable[[Any], Any]

    def __call__(self, record: Any) -> Any:
        return self.function(record)

    def __reduce__(self) -> Any:
        return _in_worker, (self.driver, self.function)


def _in_worker(driver: int, function: Callable[[Any], Any]) -> Hooked:
    if os.getpid() != driver:
        _install(driver)
    return Hooked(driver, function)


def plant_bug() -> None:
    """Plant a bug in this process, if the environment names one."""
    if PLANTED in os.environ:
        from integration.sink_planted.bugs import plant  # imported late: most drivers have none

        plant()


@cache
def _install(driver: int) -> None:
    """Let commits of this process be held, and kill the driver: an odd one before it is done, an even one after."""
    from kstream_kafka.client.transaction import Transaction

    commit, calls, nth = Transaction.commit, 0, int(os.environ.get(DIE_IN_WRITE, 0))
    files = _files()
    plant_bug()

    def hooked(self: Transaction) -> None:
        nonlocal calls
        hold(COMMIT)
        calls += files is None or (files / ARMED).exists()
        if calls == nth and nth % 2:
            _kill(driver)
        commit(self)
        if calls == nth and nth:
            _kill(driver)
        if files is not None and (files / ALONE).exists():
            (files / ALONE).unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)

    Transaction.commit = hooked


def hold(place: str) -> None:
    """Wait here, if a file asks for it, until another one lets this process go on."""
    files = _files()
    if files is None or not (files / f"{HOLD}-{place}").exists():
        return
    (files / f"{HELD}-{place}").touch()
    while not (files / f"{GO}-{place}").exists():
        time.sleep(0.01)


def _files() -> Path | None:
    return Path(os.environ[HOOKS]) if HOOKS in os.environ else None


def _kill(driver: int) -> None:
    os.kill(driver, signal.SIGKILL)
    signal.pause()  # until the JVM has ended, and Spark's daemon ends this worker
