"""Status records of drivers that live, have ended or were killed."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from kstream.batch import BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, take_epoch
from kstream.checkpoint.driver_status import BatchFigures, DriverStatus, write_status
from kstream.checkpoint.reader import write_meta
from kstream.cli import main
from kstream.storage import LocalFileStore

PAST_MS = 1000 * (10 * 60)


def now_ms() -> int:
    return round(time.time() * 1000)


def last_batch() -> Time:
    """A batch time that has just passed."""
    return Time(now_ms() // 1000 * 1000)


def checkpoint(folder: Path) -> PlanLog:
    """A checkpoint of a driver of epoch 1 whose batch of just now has ended."""
    store = LocalFileStore(folder)
    write_meta(store, Meta(last_batch() - Duration(PAST_MS), Duration(1000)))
    log = PlanLog(store, take_epoch(store, now_ms() - PAST_MS))
    log.write_plan(BatchPlan(last_batch(), log.epoch, "n", {0: {"ranges": [["orders", 0, 5, 9]]}}, {0: 4}, last_batch()))
    return log


def living(**changes: Any) -> DriverStatus:
    """The status of a driver that is well, written now."""
    status = DriverStatus("orders", 1, "host-1", 4711, now_ms() - PAST_MS, now_ms(), Duration(1000), last_planned=last_batch())
    return replace(status, recent=(BatchFigures(last_batch(), 40, 3, 500),), **changes)


def leave(folder: Path, status: DriverStatus, *, modified_ms: int | None = None) -> DriverStatus:
    """Writes a status record; the store dates it with the moment of the status, unless another date is given."""
    write_status(LocalFileStore(folder), status)
    seconds = (status.written_ms if modified_ms is None else modified_ms) / 1000
    os.utime(folder / "status" / f"{status.epoch:06d}", (seconds, seconds))
    return status


def status(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["status", str(folder), "--wait", "0", *options])
