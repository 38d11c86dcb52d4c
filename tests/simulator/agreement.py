"""Whether the records of a driver's lifecycle, its views and the log agree, after each step of a schedule."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kstream.batch_time import Time
from kstream.checkpoint import names
from kstream.checkpoint.reader import PlanKey
from kstream.scheduler.batch_lifecycle import BatchLifecycle
from kstream.scheduler.batch_steps import End, Execution, Retry, Standing

_IN_A_TRY = (Execution.PLANNED, Execution.GENERATED, Execution.SUBMITTED, Execution.RUNNING, Execution.LOST)


def of_views(lifecycle: BatchLifecycle) -> list[str]:
    """What the views of a lifecycle say against its records. Each view is computed here in another way, from all records."""
    known: Any = lifecycle
    records = {time: record.standing for time, record in known._records.items()}

    def those(holds: Any) -> set[Time]:
        return {time for time, standing in records.items() if holds(standing)}

    def is_in_a_try(standing: Standing) -> bool:
        return standing.execution in _IN_A_TRY

    running, held = those(is_in_a_try), those(lambda s: s.execution is Execution.HELD)
    between = those(lambda s: s.execution is Execution.ENDED and s.retry is Retry.BACK_OFF)
    ended = those(lambda s: s.execution is Execution.ENDED)
    pending = lifecycle.pending()
    views: dict[str, tuple[object, object]] = {
        "unfinished": (lifecycle.unfinished(), set(records)),
        "open": (lifecycle.open(), running | held | between),
        "in_line": (lifecycle.in_line(), running | held),
        "num_in_line": (lifecycle.num_in_line(), len(running | held)),
        "failed": (lifecycle.failed(), ended - between),
        "to_come": (lifecycle.to_come(), those(lambda s: s.end is not End.LEFT)),
        "in_hand": (set(lifecycle.in_hand()), those(lambda s: s.execution in (Execution.SUBMITTED, Execution.RUNNING))),
        "awaits_repair": (lifecycle.awaits_repair, bool(those(lambda s: s.execution is Execution.LOST))),
        "kept": ({batch.time for batch, _ in lifecycle.kept()}, those(lambda s: s.end in (End.UNKNOWN, End.REFUSED))),
        "pending, running and held": (set(pending.running | pending.held), running | held),
        "pending, retrying": (set(pending.retrying), between),
        "pending, failed": (set(pending.failed), ended - between),
        "the queue": (known._held, sorted(those(lambda s: s.execution is Execution.HELD and s.retry is Retry.NONE))),
        "nothing runs": (known._none_running.is_set(), not running),
        "nothing is open": (known._none_open.is_set(), not (running | held | between)),
        "one is tried in turn": (sum(s.retry is Retry.IN_TURN and s.execution is not Execution.ENDED for s in records.values()) <= 1, True),
    }
    return [f"{view} is {found}, by the records {expected}" for view, (found, expected) in views.items() if found != expected]


def plans_of(lifecycle: BatchLifecycle) -> dict[PlanKey, Standing | None]:
    """Where each batch that has not succeeded stands, by its plan."""
    return {(time, lifecycle.try_of(time).batch.plan.epoch): lifecycle.standing(time) for time in lifecycle.unfinished()}


def with_the_log(
    unfinished: Mapping[PlanKey, Standing | None],
    ended: Collection[PlanKey],
    files: Collection[str],
    completed: Collection[int],
    given_up: Collection[int],
) -> list[str]:
    """What the lifecycle of a driver says against the files of the log.

    Args:
        unfinished: see `plans_of`.
        ended: the plans of the batches that the lifecycle knows no more.
        files: the names in the store.
        completed: the times in ms of the batches whose completions this driver has stored. One of a dead driver may land at any time.
        given_up: the times in ms of the batches that the ledger has as given up.
    """
    stored, planned = _keys(names.DONE, files), _keys(names.PLANS, files)
    wrong: list[str] = []
    for key, standing in unfinished.items():
        if key not in planned:
            wrong.append(f"batch {key[0]} is {standing}, and the log has no plan of it")
        ending = standing is not None and (standing.execution in _IN_A_TRY or standing.end in (End.UNKNOWN, End.REFUSED))
        if key in stored and key[0].milliseconds in completed and not ending:
            wrong.append(f"batch {key[0]} is {standing}, and the log has its completion")
    wrong += [
        f"batch {key[0]} is known no more, and the log has its plan and no completion"
        for key in ended
        if key in planned and key not in stored and key[0].milliseconds not in given_up
    ]
    return wrong


def _keys(folder: str, files: Collection[str]) -> set[PlanKey]:
    """The batch time and the epoch of the plan of each file in a folder of the log."""
    found = (names.parse_key(name.partition("/")[2]) for name in files if name.startswith(f"{folder}/"))
    return {(key[0], key[1][0]) for key in found if key is not None}
