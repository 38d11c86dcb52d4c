"""A checkpoint whose streams `kstream doctor` checks."""

from __future__ import annotations

from pathlib import Path

from kstream_kafka.planning.plan import KafkaPlan

from kstream.batch import BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, take_epoch
from kstream.checkpoint.reader import write_meta
from kstream.offsets.offset_range import OffsetRange
from kstream.storage import LocalFileStore

ZERO = 1_760_000_000_000


def plan(until: int, **ids: str) -> KafkaPlan:
    return KafkaPlan([OffsetRange("orders", 0, 0, until)], [1], [1], ids, frozenset())


def checkpoint(folder: Path, until: int) -> None:
    store = LocalFileStore(folder)
    write_meta(store, Meta(Time(ZERO), Duration(1000)))
    log = PlanLog(store, take_epoch(store, ZERO))
    at = Time(ZERO + 1000)
    log.write_plan(BatchPlan(at, log.epoch, "n", {0: plan(until).encode()}, {0: until}, at))
