"""move_streams: sets streams to other places while no driver runs, as a writer of its own epoch."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kstream.batch import BatchPlan, InputOutcome
from kstream.batch_time import Time
from kstream.checkpoint.binding import binding_of
from kstream.checkpoint.epoch import newest_epoch, take_epoch
from kstream.checkpoint.plan_log import PlanLog
from kstream.checkpoint.reader import LogContents, read_log
from kstream.errors import FencedError
from kstream.storage import FileStore

Places: TypeAlias = tuple[Mapping[int, Mapping[str, Any]], Mapping[int, InputOutcome]]
"""Per stream the data of a plan that reads nothing, and what goes to the ledger."""


def move_streams(store: FileStore, at_ms: int, choose: Callable[[LogContents], Places]) -> tuple[Time, LogContents]:
    """Stores a batch of nothing, one interval after the last planned one, at the places that `choose` finds; returns its time and what
    was there.

    Takes the next epoch first, so that a driver that runs is fenced and plans nothing behind what `choose` sees. FencedError if a
    driver has started meanwhile: whether it goes on from here is then to be looked up. Batches that are pending keep their plans and
    run again. Blocks on the store and on whatever `choose` asks.
    """
    epoch = take_epoch(store, at_ms)
    contents = read_log(store)
    last = contents.last_planned
    assert contents.meta is not None and last is not None
    inputs, outcomes = choose(contents)
    log = PlanLog(store, epoch, contents)
    time = last + contents.meta.interval
    floor = min([*contents.pending, time])
    graph = binding_of(contents, {}).stored
    names = {number: name for number, name in graph.items() if name is not None or number not in inputs}
    log.write_plan(BatchPlan(time, epoch, uuid.uuid4().hex, inputs, dict.fromkeys(inputs, 0), floor, last, names=names))
    log.complete(time, epoch, at_ms, outcomes)
    newer = newest_epoch(store)
    if newer > epoch:
        raise FencedError(
            f"a driver (epoch {newer}) started on {store.url} while the offsets were being set: look with `kstream offsets show` where it "
            "goes on, and try again once it has stopped",
            path=store.url, epoch=epoch, newer_epoch=newer,
        )  # fmt: skip
    return time, contents
