"""`kstream …`: the commands.

One idea: every command ends in a sentence. A failure is one line on standard error, with the cause and the remedy, and an exit code that
tells the reason (`exit_codes`); `--verbose` adds the traceback.

    kstream run          a job from its checkpoint, until SIGTERM or Ctrl-C; a supervisor starts its driver again
    kstream status       whether a driver lives, how far it is behind, its last error
    kstream page         the page of a driver from its checkpoint alone, for a browser
    kstream stop         asks the driver of a checkpoint to stop, and waits for it
    kstream doctor       what a job needs, and whether it is there; what to do about what is not
    kstream checkpoint   the content of a checkpoint, and the differences between two, without Spark
    kstream history      past batches, those of the history included
    kstream ledger       the records that no batch has read and no batch will read; `ledger ack` acknowledges them
    kstream lag          how far the streams of a checkpoint are behind the ends of their logs
    kstream peek         the records of a batch or at an offset, as text, hex or JSON
    kstream skip         lets a pending batch run without a record
    kstream offsets      the offsets of the streams, and commands that set them; `import` takes those of Structured Streaming
    kstream replay       a second run of past batches, with their stored ranges

Connectors add commands by entry points of group `kstream.cli`.
All commands see inputs through the tools of their connectors (`kstream.connectors.ConnectorTools`, `kstream.cli.inputs`). The modules here
import neither pyspark nor a connector; `run`, `replay` and `doctor --spark` import pyspark when they start.
"""

from __future__ import annotations

import click

from kstream import __version__, connectors
from kstream.cli.checkpoint import checkpoint_commands
from kstream.cli.diff import diff_command
from kstream.cli.doctor import doctor_command
from kstream.cli.history import history_command
from kstream.cli.lag import lag_command
from kstream.cli.ledger import ledger_command
from kstream.cli.offsets import offsets_commands
from kstream.cli.offsets_import import import_command
from kstream.cli.page import page_command
from kstream.cli.peek import peek_command
from kstream.cli.replay import replay_command
from kstream.cli.run import run_command
from kstream.cli.skip import skip_command
from kstream.cli.status import status_command
from kstream.cli.stop import stop_command
from kstream.cli.terminal import fail

__all__ = ["main"]


class _WithConnectors(click.Group):
    """A group with commands of its own and those of the installed connectors. It imports a connector's command when a user names it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted. Imports no connector."""
        return sorted({*super().list_commands(ctx), *connectors.commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name; None if there is none. A connector's command that cannot be imported explains why."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        added = connectors.commands()
        if cmd_name not in added:
            return None
        try:
            return added[cmd_name].load()
        except (ImportError, AttributeError) as e:
            return _not_importable(cmd_name, e)


def _not_importable(name: str, error: Exception) -> click.Command:
    """Return a command that ends with the error of its import, whatever its options are."""

    def explain() -> None:
        fail(f"the command {name} comes with a connector that cannot be imported: {error}")

    any_options = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=explain, context_settings=any_options, short_help="Not available: its connector is missing.")


@click.group(cls=_WithConnectors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kstream")
def main() -> None:
    """Spark Streaming in Python, centred on Kafka."""


checkpoint_commands.add_command(diff_command)
offsets_commands.add_command(import_command)

_READING = (
    status_command,
    page_command,
    doctor_command,
    checkpoint_commands,
    history_command,
    lag_command,
    ledger_command,
    peek_command,
)
_CHANGING = (run_command, stop_command, skip_command, offsets_commands, replay_command)
for command in (*_READING, *_CHANGING):
    main.add_command(command)
