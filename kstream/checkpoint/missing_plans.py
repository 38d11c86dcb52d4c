"""Holes in the log: plans that are missing, with records that no other plan has and no stored record explains.

Batch times alone cannot tell: a tick that could not be planned, and batches coalesced after a downtime, leave gaps in time that lose
nothing. What the plans of a stream hold can tell: see `InputDStream.skipped_between`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from kstream.batch import BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import names
from kstream.checkpoint.reader import LogContents
from kstream.errors import MissingPlanError
from kstream.storage import FileStore

Skipped: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], Sequence[str]]
"""(a plan of a stream, its next plan) → what is in neither, in words."""
_MOST = 5


@dataclass(frozen=True, slots=True)
class Hole:
    """Two neighbouring plans that skip data between them. `times`: the batch times at which a plan may be missing."""

    before: Time
    after: Time
    times: Sequence[Time]
    skipped: Sequence[str]


def holes(contents: LogContents, interval: Duration, streams: Mapping[int, Skipped]) -> Iterator[Hole]:
    """The holes of a log, oldest first. Pure.

    Batches below the low watermark of the newest plan have succeeded, or are in the ledger: a hole among them loses nothing. If no batch
    time lies between two plans, no plan is missing: `kstream offsets` has set the offsets.

    Args:
        contents: the log, as if the graph of now had planned all of it (`rebound`).
        streams: per stream of the graph, its `skipped_between`.
    """
    plans = sorted((plan for plan in contents.plans.values() if not plan.void), key=lambda plan: plan.time)
    low_watermark = contents.plans[max(contents.plans)].floor if contents.plans else Time(0)
    for before, after in pairwise(plans):
        if after.time > low_watermark and before.time + interval < after.time:
            skipped = _skipped(before, after, streams)
            between = (before.time + interval).until(after.time, interval) if skipped else []
            times = [time for time in between if time >= low_watermark and time not in contents.plans]
            if times:
                yield Hole(before.time, after.time, times, skipped)


def has_gap(store: FileStore, interval: Duration) -> bool:
    """Whether a batch time between the oldest and the newest plan has no plan. One listing; only then can there be a hole."""
    times = sorted({key[0] for key in map(names.parse_key, store.list(names.PLANS)) if key is not None})
    return any(before + interval < after for before, after in pairwise(times))


def _skipped(before: BatchPlan, after: BatchPlan, streams: Mapping[int, Skipped]) -> list[str]:
    both = [number for number in sorted(streams) if number in before.inputs and number in after.inputs]
    return [what for number in both for what in streams[number](before.inputs[number], after.inputs[number])]


def check_no_plan_is_missing(store: FileStore, contents: LogContents, interval: Duration, streams: Mapping[int, Skipped]) -> None:
    """Refuse a log with a hole. Asks the store only where there is one: then three listings.

    Raises:
        MissingPlanError: a hole of which no batch was set aside by --forget-batch, is noted as done, or is in the ledger.
    """
    found = list(holes(contents, interval, streams))
    explained = _explained(store) if found else set[Time]()
    for hole in found:
        if explained.isdisjoint(hole.times):
            raise _error(store, hole)


def _explained(store: FileStore) -> set[Time]:
    keys = (names.parse_key(name) for folder in (names.FORGOTTEN, names.DONE, names.GIVEN_UP) for name in store.list(folder))
    return {key[0] for key in keys if key is not None}


def _error(store: FileStore, hole: Hole) -> MissingPlanError:
    times = _listed([str(time) for time in hole.times])
    first = hole.times[0].milliseconds
    return MissingPlanError(
        f"{store.url} has no plan between the batches {hole.before} and {hole.after}, and {_listed(hole.skipped)} is in no plan: these "
        f"records may never have been processed. A plan is missing in {store.path(names.PLANS)}; its batch time is one of {times}. "
        f"Restore it from a copy. Or go on without these records: `kstream run … --forget-batch {first}`.",
        path=store.url,
        times=[time.milliseconds for time in hole.times[:_MOST]],
        skipped=list(hole.skipped),
    )


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:_MOST]) + (f" … ({len(words)} in all)" if len(words) > _MOST else "")
