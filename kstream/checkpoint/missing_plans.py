"""Holes in the log: missing plans whose data is in no other plan, and which no stored record explains.

Batch times alone do not show a hole. A tick that could not be planned, and batches coalesced after a downtime, leave gaps in time that
lose no data. The contents of a stream's plans show a hole: see `InputDStream.skipped_between`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from kstream.batch import BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import names
from kstream.checkpoint.reader import LogContents
from kstream.checkpoint.settled import united
from kstream.errors import MissingPlanError
from kstream.storage import FileStore

Skipped: TypeAlias = Callable[[BatchPlan, BatchPlan], Sequence[str]]
"""(a plan with data of a stream, the next one) → the data of the stream that is in neither, in words."""
_MOST = 5


@dataclass(frozen=True, slots=True)
class Hole:
    """Two neighbouring plans with skipped data between them.

    Attributes:
        before: the batch time of the older plan.
        after: the batch time of the newer plan.
        times: the batch times at which a plan may be missing.
        skipped: the data that is in neither plan, in words.
    """

    before: Time
    after: Time
    times: Sequence[Time]
    skipped: Sequence[str]


def holes(contents: LogContents, interval: Duration, streams: Mapping[int, Skipped]) -> Iterator[Hole]:
    """Yield the holes of a log, oldest first. Pure.

    Batches below the low watermark of the newest plan have succeeded, or are in the ledger: a hole among them loses nothing. If no batch
    time lies between two plans, no plan is missing: `kstream offsets` has set the offsets. A settled interval has no hole: its first and
    its last plan stand for all that were removed.

    Args:
        contents: the log, as if the graph of now had planned all of it (`rebound`).
        streams: per stream of the graph, its `skipped_between`.
    """
    low_watermark = contents.plans[max(contents.plans)].floor if contents.plans else Time(0)
    for (_, before), (after, _) in pairwise(_stretches(contents)):
        if after.time > low_watermark and before.time + interval < after.time:
            skipped = _skipped(before, after, streams)
            between = (before.time + interval).until(after.time, interval) if skipped else []
            times = [time for time in between if time >= low_watermark and time not in contents.plans]
            if times:
                yield Hole(before.time, after.time, times, skipped)


def _stretches(contents: LogContents) -> list[tuple[BatchPlan, BatchPlan]]:
    """Return the first and the last plan of each stretch without a hole, oldest first: a plan by itself, or a settled interval."""
    settled = [interval for interval in united(contents.settled) if interval.plans]
    removed = [(interval.plans[0], interval.plans[-1]) for interval in settled]
    plans = [
        plan
        for time, plan in contents.plans.items()
        if not plan.void and not any(first.time <= time <= last.time for first, last in removed)
    ]
    return sorted([*removed, *((plan, plan) for plan in plans)], key=lambda stretch: stretch[0].time)


def has_gap(store: FileStore, interval: Duration) -> bool:
    """Return whether a batch time between the oldest and the newest plan has no plan. Only then a hole is possible. Blocks: one listing."""
    times = sorted({key[0] for key in map(names.parse_key, store.list(names.PLANS)) if key is not None})
    return any(before + interval < after for before, after in pairwise(times))


def _skipped(before: BatchPlan, after: BatchPlan, streams: Mapping[int, Skipped]) -> list[str]:
    """Return the data that two plans skip, in words, for the streams that both have."""
    both = [number for number in sorted(streams) if number in before.inputs and number in after.inputs]
    return [what for number in both for what in streams[number](before, after)]


def check_no_plan_is_missing(store: FileStore, contents: LogContents, interval: Duration, streams: Mapping[int, Skipped]) -> None:
    """Refuse a log with a hole that no stored record explains. Blocks only if there is a hole: three listings.

    A hole is explained if one of its batch times was set aside by --forget-batch, has a completion, or is in the ledger.

    Args:
        store: the checkpoint.
        contents: the log, rebound.
        interval: the batch interval.
        streams: per stream of the graph, its `skipped_between`.

    Raises:
        MissingPlanError: there is a hole without an explanation.
    """
    found = list(holes(contents, interval, streams))
    explained = _explained(store) if found else set[Time]()
    for hole in found:
        if explained.isdisjoint(hole.times):
            raise _error(store, hole)


def forgotten(store: FileStore) -> set[Time]:
    """Return the batch times that `--forget-batch` has set aside. Blocks: one listing. Such a batch may have a plan again."""
    return _times_in(store, names.FORGOTTEN)


def _explained(store: FileStore) -> set[Time]:
    """Return the batch times that were set aside, have a completion, or were given up."""
    return _times_in(store, names.FORGOTTEN, names.DONE, names.GIVEN_UP)


def _times_in(store: FileStore, *folders: str) -> set[Time]:
    keys = (names.parse_key(name) for folder in folders for name in store.list(folder))
    return {key[0] for key in keys if key is not None}


def _error(store: FileStore, hole: Hole) -> MissingPlanError:
    times = _listed([str(time) for time in hole.times])
    first = hole.times[0].milliseconds
    return MissingPlanError(
        f"{store.url} has no plan between the batches {hole.before} and {hole.after}, and {_listed(hole.skipped)} is in no plan: these "
        f"records may never have been processed. A plan is missing in {store.path(names.PLANS)}; its batch time is one of {times}. "
        f"Restore it from a copy. Or continue without these records: `kstream run … --forget-batch {first}`.",
        path=store.url,
        times=[time.milliseconds for time in hole.times[:_MOST]],
        skipped=list(hole.skipped),
    )


def _listed(words: Sequence[str]) -> str:
    """Return the first `_MOST` words in one text, with the number of all if there are more."""
    return ", ".join(words[:_MOST]) + (f" … ({len(words)} in all)" if len(words) > _MOST else "")
