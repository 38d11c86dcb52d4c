"""`simulate`: many schedules, in this process or in several; the first that breaks an invariant is an error with its seed and trace."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from kstream.storage import FileStore
from tests.simulator.errors import SimulationFailedError, SimulationStuckError
from tests.simulator.faults import Faults
from tests.simulator.history import History
from tests.simulator.invariants import violations
from tests.simulator.schedule import Scenario, Schedule
from tests.simulator.source import MakeSource, NumberSource

_CHUNK = 250


@dataclass(frozen=True, slots=True)
class Outcome:
    """One schedule that has ended. `broken`: which invariants, a line each; empty when all held. Equal seeds, equal `trace`."""

    seed: int
    broken: list[str]
    trace: list[str]
    history: History


@dataclass(frozen=True, slots=True)
class Report:
    """What held: how many schedules, and what was in them."""

    schedules: int
    drivers: int
    attempts: int
    batches: int

    def __add__(self, other: Report) -> Report:
        return Report(self.schedules + other.schedules, self.drivers + other.drivers, self.attempts + other.attempts,
                      self.batches + other.batches)  # fmt: skip


def run_schedule(seed: int, scenario: Scenario) -> Outcome:
    """One schedule from its start to its end. One at a time in a process. The product's log is silent meanwhile: the trace says it all."""
    schedule = Schedule(seed, scenario)
    with _no_logging():
        try:
            schedule.run()
            broken = violations(schedule.history) + [f"source: {line}" for line in schedule.source.check(schedule.history)]
        except SimulationStuckError as e:
            broken = [f"stuck: {e}"]
    return Outcome(seed, broken, schedule.trace, schedule.history)


def simulate(
    source: MakeSource = NumberSource,
    *,
    schedules: int = 1000,
    first_seed: int = 0,
    store: Callable[[FileStore], FileStore] | None = None,
    faults: Faults | None = None,
    conf: Mapping[str, str] | None = None,
    processes: int = 1,
) -> Report:
    """Runs the schedules of the seeds from `first_seed` on; SimulationFailedError for the lowest seed that breaks something.

    `source` plays the outside and makes the input (see `source.Source`); `store` wraps the simulated store in one of yours, which is
    asked for by each driver; `faults` None lets each seed draw its own. Some 20 ms a schedule and core. With `processes` above 1 the
    arguments must pickle (functions and classes by name), and the caller needs the usual `if __name__ == "__main__"`.
    """
    scenario = Scenario(source, store or _as_it_is, faults, dict(conf or {}))
    chunks = [range(s, min(s + _CHUNK, first_seed + schedules)) for s in range(first_seed, first_seed + schedules, _CHUNK)]
    if processes == 1:
        return _total([_run_seeds(chunk, scenario) for chunk in chunks])
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    for process in range(processes):
        cores.put(process)
    with ProcessPoolExecutor(processes, context, _settle, (cores,)) as pool:
        waiting = [pool.submit(_run_seeds, chunk, scenario) for chunk in chunks]
        try:
            return _total([future.result() for future in waiting])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _settle(cores: multiprocessing.Queue[int]) -> None:
    """In a new process: stay on one core, since one strand runs at a time and a baton handed to another core waits for it to wake up
    (20 ms a schedule instead of 35); and never look again for garbage in what was loaded."""
    if hasattr(os, "sched_setaffinity"):  # Linux
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[cores.get() % len(allowed)]})
    gc.freeze()


def _run_seeds(seeds: range, scenario: Scenario) -> Report:
    reports: list[Report] = []
    for seed in seeds:
        outcome = run_schedule(seed, scenario)
        if outcome.broken:
            raise SimulationFailedError(seed, outcome.broken, outcome.trace)
        history = outcome.history
        reports.append(Report(1, history.drivers, len(history.attempts), len({a.time for a in history.attempts})))
    return _total(reports)


def _total(reports: list[Report]) -> Report:
    return sum(reports, Report(0, 0, 0, 0))


def _as_it_is(store: FileStore) -> FileStore:
    return store


@contextmanager
def _no_logging() -> Generator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
