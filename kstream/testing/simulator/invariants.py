"""Invariants: what must hold of every schedule, whatever went wrong in it. Pure: a History in, lines about what is broken out.

Some look at the outcome only – what jobs read, and what is stored at the end – and would catch a product built in any other way
(`OUTCOME`); the others at the order in which things were done (`ORDER`). What a Source knows of its own records it checks itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from kstream.batch import BatchPlan
from kstream.batch_time import Time
from kstream.testing.simulator.history import Attempt, History

Check = Callable[[History], list[str]]


def one_content_per_batch_time(history: History) -> list[str]:
    """All attempts at a batch time, of all drivers, had the same plan; and all that could read it read the same records."""
    wrong: list[str] = []
    first: dict[int, Attempt] = {}
    read: dict[int, Attempt] = {}
    for attempt in history.attempts:
        known = first.setdefault(attempt.time, attempt)
        if known.data != attempt.data:
            wrong.append(f"batch {attempt.time} ran as {known.data} in {_who(known)} and as {attempt.data} in {_who(attempt)}")
        if attempt.read is not None and (other := read.setdefault(attempt.time, attempt)).read != attempt.read:
            wrong.append(f"batch {attempt.time} read {_some(other.read)} in {_who(other)} and {_some(attempt.read)} in {_who(attempt)}")
    return wrong


def no_record_in_two_batches(history: History) -> list[str]:
    """A record that was read at one batch time is read at no other."""
    wrong: list[str] = []
    seen: dict[Hashable, int] = {}
    told: set[tuple[int, int]] = set()
    for attempt in history.attempts:
        for record in attempt.read or ():
            time = seen.setdefault(record, attempt.time)
            if time != attempt.time and (time, attempt.time) not in told:
                told.add((time, attempt.time))
                wrong.append(f"record {record!r} is in batch {time} and in batch {attempt.time}")
    return wrong


def nothing_planned_is_forgotten(history: History) -> list[str]:
    """Every batch that was begun was finished, or is in the ledger, or is still to be run: none is just gone."""
    finished = {a.time for a in history.attempts if a.finished}
    ledger = {time for time, _ in history.given_up}
    begun = sorted({a.time for a in history.attempts} - finished - ledger - history.pending)
    return [f"batch {time} was begun and never finished, and no restart will run it" for time in begun]


def a_completion_tells_the_truth(history: History) -> list[str]:
    """A batch with a completion record was finished before, by somebody, or there was nothing to run."""
    wrong: list[str] = []
    begun = {a.time for a in history.attempts}
    for (time, epoch), step in history.done.items():
        if time in begun and not any(a.finished_step is not None and a.finished_step < step for a in history.attempts if a.time == time):
            wrong.append(f"batch {time} of epoch {epoch} is noted as done, but nobody had finished it")
    return wrong


def only_plans_that_stand_are_run(history: History) -> list[str]:
    """An attempt runs the plan that stood for its batch time when it began, and that plan was durable."""
    wrong: list[str] = []
    for attempt in history.attempts:
        plan = standing_plan(history, attempt.time, attempt.let_in_step)
        if plan is None:
            wrong.append(f"batch {attempt.time} ran in {_who(attempt)} while no plan of it stood")
        elif not _holds(plan, attempt.data):
            wrong.append(f"batch {attempt.time} ran in {_who(attempt)} as {attempt.data}; what stood was epoch {plan.epoch}: {plan.inputs}")
    return wrong


def cursors_follow_durable_plans(history: History) -> list[str]:
    """A cursor moves behind a batch only when a plan with just that content is in the store."""
    wrong: list[str] = []
    for move in history.moves:
        if not any(s.step < move.step and s.plan.time.milliseconds == move.time and _holds(s.plan, move.data) for s in history.plans):
            wrong.append(f"driver {move.driver} moved its cursors behind batch {move.time}, whose plan was not durable")
    return wrong


def batch_times_rise(history: History) -> list[str]:
    """Each driver goes on to later and later batches, and plans none that its predecessor had planned."""
    wrong: list[str] = []
    last: dict[int, int] = {}
    for move in history.moves:
        if move.time <= last.get(move.driver, -1):
            wrong.append(f"driver {move.driver} went on to batch {move.time} after {last[move.driver]}")
        last[move.driver] = move.time
    for plan in (s.plan for s in history.plans if not s.plan.void and s.plan.time <= s.plan.after):
        wrong.append(f"epoch {plan.epoch} planned {plan.time}, though it had found {plan.after} planned")
    return wrong


def who_runs_has_looked(history: History) -> list[str]:
    """A job is let in only after its driver looked for a newer writer, since the plan is durable and no longer than an interval ago.

    A look that failed counts: the plan is durable, and whoever took over runs the same ranges. One that found somebody ends all.
    """
    wrong: list[str] = []
    for attempt in history.attempts:
        looks = [look for look in history.looks if look.driver == attempt.driver and look.step < attempt.let_in_step]
        plan = standing_plan(history, attempt.time, attempt.let_in_step)
        durable = [s.step for s in history.plans if plan is not None and s.plan.nonce == plan.nonce]
        if any(look.answer == "fenced" for look in looks):
            wrong.append(f"batch {attempt.time} began in {_who(attempt)}, which knew that it was fenced")
        elif not looks or any(looks[-1].step < step for step in durable):
            wrong.append(f"batch {attempt.time} began in {_who(attempt)}, which had not looked for a newer writer")
        elif attempt.let_in_ms - looks[-1].at_ms > history.interval_ms:
            wrong.append(f"batch {attempt.time} began in {_who(attempt)} {attempt.let_in_ms - looks[-1].at_ms} ms after its last look")
    return wrong


def what_is_done_stays_done(history: History) -> list[str]:
    """No driver runs a batch that was durably done before it read the log, or that it finished itself."""
    wrong: list[str] = []
    done: dict[int, int] = {}
    for (time, _), step in history.done.items():
        done[time] = min(step, done.get(time, step))
    for i, attempt in enumerate(history.attempts):
        if attempt.time in done and done[attempt.time] < history.knew.get(attempt.driver, 0):
            wrong.append(f"batch {attempt.time} ran in {_who(attempt)}, after it was done and could be seen to be")
        if any(a.driver == attempt.driver and a.time == attempt.time for a in history.attempts[:i]):
            wrong.append(f"batch {attempt.time} ran twice in {_who(attempt)}")
    return wrong


OUTCOME: tuple[Check, ...] = (
    one_content_per_batch_time,
    no_record_in_two_batches,
    nothing_planned_is_forgotten,
    a_completion_tells_the_truth,
)
ORDER: tuple[Check, ...] = (
    only_plans_that_stand_are_run,
    cursors_follow_durable_plans,
    batch_times_rise,
    who_runs_has_looked,
    what_is_done_stays_done,
)


def violations(history: History, checks: Iterable[Check] = (*OUTCOME, *ORDER)) -> list[str]:
    """Everything that is broken, each line with the name of its invariant."""
    return [f"{check.__name__}: {line}" for check in checks for line in check(history)]


def standing_plan(history: History, time: int, before: int) -> BatchPlan | None:
    """The plan that stands for a batch time, of all that were durable before a step. Those removed since count too.

    Per time the highest epoch stands, unless a later epoch that did not know of it planned something: it was then made by a fenced
    driver. A void plan is none.
    """
    known = [s.plan for s in history.plans if s.step < before]
    at_time = [plan for plan in known if plan.time.milliseconds == time]
    best = max(at_time, key=lambda plan: plan.epoch, default=None)
    if best is None or best.void or any(p.epoch > best.epoch and Time(time) > p.after for p in known):
        return None
    return best


def _holds(plan: BatchPlan, data: Mapping[str, Any]) -> bool:
    return not plan.void and any(given == data for given in plan.inputs.values())


def _who(attempt: Attempt) -> str:
    return f"driver {attempt.driver}"


def _some(records: tuple[Hashable, ...] | None, most: int = 8) -> str:
    records = records or ()
    return f"{list(records[:most])}{f' … {len(records)} in all' if len(records) > most else ''}"
