"""Changes that commands make to a checkpoint while no driver runs: to offsets, to a damaged plan, to a missing one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kstream.batch import BatchOutcome, BatchPlan, InputOutcome
from kstream.batch.plan import with_kind
from kstream.batch_time import Time
from kstream.checkpoint import format, names
from kstream.checkpoint.binding import binding_of
from kstream.checkpoint.interval_change import write_change
from kstream.checkpoint.plan_log import PlanLog, newest_epoch, take_epoch
from kstream.checkpoint.reader import LogContents, read_started_log
from kstream.errors import FencedError
from kstream.storage import FileStore

Places: TypeAlias = tuple[Mapping[int, Mapping[str, Any]], Mapping[int, InputOutcome]]
"""Stream number → the data of a plan that reads nothing; and stream number → the outcome with its losses for the ledger."""


def move_streams(store: FileStore, at_ms: int, choose: Callable[[LogContents], Places]) -> tuple[Time, LogContents]:
    """Store a plan that reads nothing and leaves the streams at other offsets, one interval after the last planned batch.

    It first takes the next epoch. So a running driver is fenced, and plans nothing newer than the log that `choose` gets. Pending batches
    keep their plans and run again. Blocks on the store, and on the calls of `choose`.

    Args:
        store: the checkpoint, with at least one plan.
        at_ms: now, in milliseconds since the Unix epoch.
        choose: choose(contents of the log) returns the new plan data, and the losses.

    Returns:
        The batch time of the new plan, and the contents of the log before it.

    Raises:
        FencedError: a driver has started meanwhile. Look up where that driver continues.
        CorruptRecordError: a record is damaged.
        StorageError: the store failed.
    """
    epoch = take_epoch(store, at_ms)
    log = read_started_log(store)
    meta, contents, last = log.meta, log.contents, max(log.contents.plans)
    chosen, outcomes = choose(contents)
    inputs = {number: with_kind(data) for number, data in chosen.items()}
    log = PlanLog(store, epoch, contents)
    time = meta.next_batch(last)
    if meta.change is not None:
        write_change(store, epoch, meta.change)
    floor = min([*contents.pending, time])
    graph = binding_of(contents, {}).stored
    stream_names = {number: name for number, name in graph.items() if name is not None or number not in inputs}
    log.write_plan(BatchPlan(time, epoch, uuid.uuid4().hex, inputs, dict.fromkeys(inputs, 0), floor, last, names=stream_names))
    log.complete(time, epoch, BatchOutcome(at_ms, outcomes))
    newer = newest_epoch(store)
    if newer > epoch:
        raise FencedError(
            f"a driver (epoch {newer}) started on {store.url} while the offsets were being set: see its offsets with `kstream offsets "
            "show`, and try again after it has stopped",
            path=store.url,
            epoch=epoch,
            newer_epoch=newer,
        )
    return time, contents


def forget_batch(store: FileStore, time: Time) -> list[str]:
    """Move every plan of a batch to `forgotten/`, damaged or not. This is the only way past a damaged plan. Blocks on the store.

    Returns:
        The full paths of the plans that were moved.
    """
    moved: list[str] = []
    for plan_time, (epoch, *_) in _plan_keys(store):
        if plan_time == time:
            name = names.plan(time, epoch)
            store.replace(f"{names.FORGOTTEN}/{names.key(time, epoch)}", store.read(name))
            store.delete(name)
            moved.append(store.path(name))
    return moved


def forget_missing(store: FileStore, time: Time) -> bool:
    """Record that the job continues without the plan of a batch. Blocks on the store.

    Returns:
        False if the batch time is not between the oldest and the newest plan; then nothing is recorded.
    """
    planned = {planned_time for planned_time, _ in _plan_keys(store)}
    if not planned or not min(planned) < time < max(planned):
        return False
    store.replace(f"{names.FORGOTTEN}/{names.key(time, 0)}", format.encode("forgotten", {"time": time.milliseconds}))
    return True


def _plan_keys(store: FileStore) -> list[tuple[Time, tuple[int, ...]]]:
    """Return time and epoch of every stored plan. One listing."""
    return [key for key in map(names.parse_key, store.list(names.PLANS)) if key is not None]
