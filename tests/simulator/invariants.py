"""Invariants: what must hold of every schedule, whatever went wrong in it. Pure: a History in, lines about what is broken out.

Some look at the outcome only – what jobs read, and what is stored at the end – and would catch a product built in any other way
(`OUTCOME`); others at the order in which things were done (`ORDER`), or at what must be done at last (`PROGRESS`). What a Source knows
of its own records it checks itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from tests.simulator.history import Attempt, History, Stored

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
    """Every batch that was begun was finished, or is in the ledger, or is still to be run: none is just gone.

    But for starting points: batches of nothing that their own driver notes as done, though a successor may be running them just then.
    """
    finished = {a.time for a in history.attempts if a.finished}
    starts = _starting_points(history)
    begun = sorted({a.time for a in history.attempts} - finished - history.given_up - history.pending - starts)
    return [f"batch {time} was begun and never finished, and no restart will run it" for time in begun]


def a_completion_tells_the_truth(history: History) -> list[str]:
    """A driver that ran a batch notes it as done only when it has finished it."""
    wrong: list[str] = []
    for done in history.done:
        mine = _attempts(history, done.driver, done.time)
        if mine and not any(a.finished_step is not None and a.finished_step < done.step for a in mine):
            wrong.append(f"batch {done.time} is noted as done by driver {done.driver}, which had not finished it")
    return wrong


def only_durable_plans_are_run(history: History) -> list[str]:
    """An attempt runs a plan of its batch time that was in the store before."""
    return [
        f"batch {a.time} ran in {_who(a)} as {a.data}, and no such plan was durable"
        for a in history.attempts
        if _durable(history, a.time, a.data, a.let_in_step) is None
    ]


def cursors_follow_durable_plans(history: History) -> list[str]:
    """A cursor moves behind a batch only when a plan with just that content is in the store."""
    return [
        f"driver {move.driver} moved its cursors behind batch {move.time}, whose plan was not durable"
        for move in history.moves
        if _durable(history, move.time, move.data, move.step) is None
    ]


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

    A look that failed counts: the plan is durable, and whoever took over runs the same ranges. Once fenced, none is let in.
    """
    wrong: list[str] = []
    for attempt in history.attempts:
        begin = attempt.let_in_step
        looks = [k for k in history.looks if k.driver == attempt.driver and k.step < begin and k.answer != "fenced"]
        durable = _durable(history, attempt.time, attempt.data, begin)
        if history.fenced.get(attempt.driver, begin) < begin:
            wrong.append(f"batch {attempt.time} began in {_who(attempt)}, which knew that it was fenced")
        elif not looks or (durable is not None and looks[-1].step < durable.step):
            wrong.append(f"batch {attempt.time} began in {_who(attempt)}, which had not looked for a newer writer")
        elif attempt.let_in_ms - looks[-1].at_ms > history.interval_ms:
            wrong.append(f"batch {attempt.time} began in {_who(attempt)} {attempt.let_in_ms - looks[-1].at_ms} ms after its last look")
    return wrong


def what_is_done_stays_done(history: History) -> list[str]:
    """No driver runs a batch that was run and durably done before it read the log, nor one twice, unless the first try failed."""
    wrong: list[str] = []
    done: dict[int, int] = {}
    for completed in history.done:
        if _attempts(history, completed.driver, completed.time):
            done.setdefault(completed.time, completed.step)
    for i, attempt in enumerate(history.attempts):
        if attempt.time in done and done[attempt.time] < history.knew.get(attempt.driver, 0):
            wrong.append(f"batch {attempt.time} ran in {_who(attempt)}, after it was done and could be seen to be")
        if any(a.driver == attempt.driver and a.time == attempt.time and a.error is None for a in history.attempts[:i]):
            wrong.append(f"batch {attempt.time} ran twice in {_who(attempt)}")
    return wrong


def batches_are_held_in_order(history: History) -> list[str]:
    """Under hold, a batch begins only when every earlier batch that was begun has been finished, by whichever driver.

    But for starting points, which their own driver notes as done though a successor may be running them just then.
    """
    if not history.holds:
        return []
    finished = dict.fromkeys(_starting_points(history), -1)
    for a in history.attempts:
        if a.finished_step is not None:
            finished[a.time] = min(a.finished_step, finished.get(a.time, a.finished_step))
    wrong: list[str] = []
    begun: set[int] = set()
    for attempt in history.attempts:
        begin = attempt.let_in_step
        early = sorted(t for t in begun if t < attempt.time and finished.get(t, begin) >= begin and t not in history.given_up)
        if early:
            wrong.append(f"batch {attempt.time} began in {_who(attempt)} before batch {early[0]} was finished")
        begun.add(attempt.time)
    return wrong


def a_graceful_stop_leaves_nothing(history: History) -> list[str]:
    """Once nothing is wrong any more, a driver that was not fenced and has reported no error works off all batches before it stops."""
    return [
        f"driver {driver} stopped gracefully with {len(pending)} batches pending, the oldest is {min(pending)}"
        for driver, pending in history.left.items()
        if pending
    ]


def lifecycle_and_log_agree(history: History) -> list[str]:
    """After each step the views of a driver's lifecycle are what its records say, and what the log says."""
    return history.disagreements


OUTCOME: tuple[Check, ...] = (
    one_content_per_batch_time,
    no_record_in_two_batches,
    nothing_planned_is_forgotten,
    a_completion_tells_the_truth,
    batches_are_held_in_order,
)
ORDER: tuple[Check, ...] = (
    only_durable_plans_are_run,
    cursors_follow_durable_plans,
    batch_times_rise,
    who_runs_has_looked,
    what_is_done_stays_done,
    lifecycle_and_log_agree,
)
PROGRESS: tuple[Check, ...] = (a_graceful_stop_leaves_nothing,)


def violations(history: History, checks: Iterable[Check] = (*OUTCOME, *ORDER, *PROGRESS)) -> list[str]:
    """Everything that is broken, each line with the name of its invariant."""
    return [f"{check.__name__}: {line}" for check in checks for line in check(history)]


def _starting_points(history: History) -> set[int]:
    """The batches of nothing that a driver noted as done without running them."""
    empty = {s.plan.time.milliseconds for s in history.plans if not any(s.plan.num_records.values())}
    return {d.time for d in history.done if d.time in empty and not _attempts(history, d.driver, d.time)}


def _attempts(history: History, driver: int, time: int) -> list[Attempt]:
    return [a for a in history.attempts if a.driver == driver and a.time == time]


def _durable(history: History, time: int, data: Mapping[str, Any], before: int) -> Stored | None:
    """The first plan record of a batch time with this content that was in the store before a step."""
    for stored in history.plans:
        if stored.step < before and stored.plan.time.milliseconds == time and not stored.plan.void and data in stored.plan.inputs.values():
            return stored
    return None


def _who(attempt: Attempt) -> str:
    return f"driver {attempt.driver}"


def _some(records: tuple[Hashable, ...] | None, most: int = 8) -> str:
    records = records or ()
    return f"{list(records[:most])}{f' … {len(records)} in all' if len(records) > most else ''}"
