"""python -m tests.simulator.continuous: lives under seeds; of the first that fails, what is broken and its trace."""

from __future__ import annotations

import logging

import click

from tests.simulator.continuous.lives import Lives
from tests.simulator.telling import tell


@click.command()
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option("--lives", default=1, show_default=True, help="How many seeds.")
def main(seed: int, lives: int) -> None:
    """Simulates continuous processing through freezes, deaths, takeovers and faults. Exit code 1 if a seed fails."""
    logging.disable(logging.CRITICAL)
    runs = 0
    for number in range(seed, seed + lives):
        life = Lives(number)
        broken = life.run()
        runs += len(life.runs)
        if broken or lives == 1:
            tell(number, life.trace, broken)
    click.echo(f"{lives} lives, {runs} runs of tasks: all held")


if __name__ == "__main__":
    main()
