"""python -m tests.simulator: runs schedules; of the first that fails, what is broken and its trace."""

from __future__ import annotations

import click

from tests.simulator.errors import SimulationFailedError
from tests.simulator.kafka import KafkaSource
from tests.simulator.run import run_schedule, simulate
from tests.simulator.schedule import Scenario
from tests.simulator.source import MakeSource, NumberSource
from tests.simulator.states import StatesSource
from tests.simulator.telling import tell


@click.command()
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option("--schedules", default=1, show_default=True, help="How many, one seed each.")
@click.option("--source", default="kafka", show_default=True, type=click.Choice(["numbers", "kafka", "states"]), help="What is read.")
@click.option("--processes", default=1, show_default=True, help="Run in so many processes.")
def main(seed: int, schedules: int, source: str, processes: int) -> None:
    """Simulates drivers through crashes, takeovers, store faults and a moving outside. One seed is always the same story.

    Of a single schedule the trace is printed, whether it fails or not; of several that of the first that fails. Exit code 1 if one did.
    """
    made = _source(source)
    if schedules == 1:
        outcome = run_schedule(seed, Scenario(made))
        tell(seed, outcome.trace, outcome.broken)
        return
    try:
        report = simulate(made, schedules=schedules, first_seed=seed, processes=processes)
    except SimulationFailedError as e:
        tell(e.facts["seed"], e.facts["trace"], e.facts["broken"])
        return
    click.echo(f"{report.schedules} schedules, {report.drivers} drivers, {report.attempts} runs of {report.batches} batches: all held")


def _source(name: str) -> MakeSource:
    return {"numbers": NumberSource, "kafka": KafkaSource, "states": StatesSource}[name]


if __name__ == "__main__":
    main()
