"""A checkpoint with batches in each state, for the commands that read one."""

from __future__ import annotations

from pathlib import Path

from kstream.batch import BatchOutcome, BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, take_epoch
from kstream.checkpoint.reader import write_meta
from kstream.storage import LocalFileStore

ZERO = 1_760_000_000_000


INTERVAL = 1000


def at(number: int) -> Time:
    """The time of the nth batch."""
    return Time(ZERO + number * INTERVAL)


def write_checkpoint(folder: Path, batches: int = 5) -> PlanLog:
    """Batch 1 is done, 2 failed twice, 3 given up, 4 void, the others pending."""
    store = LocalFileStore(folder)
    write_meta(store, Meta(Time(ZERO), Duration(INTERVAL)))
    log = PlanLog(store, take_epoch(store, ZERO))
    plans: dict[int, BatchPlan] = {}
    for number in range(1, batches + 1):
        begin, end = number * 5, number * 5 + 5
        ranges = [["orders", 0, begin, end], ["orders", 1, begin, end + 2], ["orders", 2, 7, 7]]
        data = {0: {"ranges": ranges, "leader_epochs": [None] * 3, "topic_ids": None}}
        void = number == 4
        plans[number] = BatchPlan(at(number), log.epoch, "n", {} if void else data, {} if void else {0: 12}, at(1), void=void)
        log.write_plan(plans[number])
    log.complete(at(1), log.epoch, BatchOutcome(ZERO))
    log.fail(at(2), log.epoch, ZERO, "boom")
    log.epoch += 1
    log.fail(at(2), log.epoch - 1, ZERO, "boom again")
    log.give_up(plans[3], ZERO, 4)
    return log
