"""What lives came to: the outcome of one, the report of many that held, and what a command prints of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import click

from tests.simulator.errors import SimulationFailedError
from tests.simulator.telling import tell


@dataclass(frozen=True)
class LifeOutcome:
    """A life that has ended. `broken`: what must not be, a line each. Equal seeds, equal `trace`."""

    seed: int
    kind: str
    broken: list[str]
    trace: list[str]
    refusals: Counter[str]
    drivers: int


@dataclass
class LivesReport:
    """Lives that held: how many drivers they had, and how often which kind of life had which refusal."""

    drivers: int
    refusals: Counter[tuple[str, str]]


def report_of(outcomes: Iterable[LifeOutcome]) -> LivesReport:
    """Return the report of lives. SimulationFailedError for the first that breaks what must hold; no later one is asked for."""
    report = LivesReport(0, Counter())
    for outcome in outcomes:
        if outcome.broken:
            raise SimulationFailedError(outcome.seed, outcome.broken, outcome.trace)
        report.drivers += outcome.drivers
        report.refusals.update({(outcome.kind, name): count for name, count in outcome.refusals.items()})
    return report


def print_lives(seed: int, lives: int, run_life: Callable[[int], LifeOutcome], run_lives: Callable[[range], LivesReport]) -> None:
    """Run lives for a command and print them: of a single one the trace, of several that of the first that fails."""
    if lives == 1:
        outcome = run_life(seed)
        tell(seed, outcome.trace, outcome.broken)
        return
    try:
        report = run_lives(range(seed, seed + lives))
    except SimulationFailedError as e:
        tell(e.facts["seed"], e.facts["trace"], e.facts["broken"])
        return
    click.echo(f"{lives} lives, {report.drivers} drivers: all held")
    for (kind, refusal), count in sorted(report.refusals.items()):
        click.echo(f"  {kind}: {refusal} {count} times")
