"""`kstream …`: what a person types.

One idea: every command ends in a sentence. What goes wrong is one line on standard error that says what happened and what to do,
with exit code 1; a traceback is there for who asks with `--verbose`.

    kstream run          a job from its checkpoint, until SIGTERM or Ctrl-C
    kstream checkpoint   what a checkpoint holds, and what differs between two, without Spark
    kstream ledger       the records that its streams went on without
    kstream lag          how far a checkpoint's streams are behind the ends of their Kafka logs
    kstream offsets      where they stand, and setting them elsewhere
    kstream replay       batches of the past again, with the ranges they had
    kstream demo         a stream on an embedded broker, killed in the middle, with the proof that nothing was lost

The modules here import lightly, so that the others need no pyspark; `run` and `replay` load it when they start.
"""

from __future__ import annotations

import click

from kstream import __version__
from kstream.cli.checkpoint import checkpoint_commands
from kstream.cli.demo.command import demo_command
from kstream.cli.diff import diff_command
from kstream.cli.lag import lag_command
from kstream.cli.ledger import ledger_command
from kstream.cli.offsets import offsets_commands
from kstream.cli.replay import replay_command
from kstream.cli.run import run_command

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kstream")
def main() -> None:
    """Spark Streaming in Python, centred on Kafka."""


checkpoint_commands.add_command(diff_command)

main.add_command(run_command)
main.add_command(checkpoint_commands)
main.add_command(lag_command)
main.add_command(ledger_command)
main.add_command(offsets_commands)
main.add_command(replay_command)
main.add_command(demo_command)
