"""python -m tests.kstream_kafka.sink.simulation: the trace of a life, or many lives and the trace of the first that fails."""

from __future__ import annotations

import click

from .life import run_life, run_lives
from .report import print_lives


@click.command()
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option("--lives", default=1, show_default=True, help="How many, one seed each.")
def main(seed: int, lives: int) -> None:
    """Simulates lives of an exactly-once output to Kafka. One seed is always the same life.

    Of a single life the trace is printed, whether it fails or not; of several that of the first that fails. Exit code 1 if one did.
    """
    print_lives(seed, lives, run_life, run_lives)


if __name__ == "__main__":
    main()
