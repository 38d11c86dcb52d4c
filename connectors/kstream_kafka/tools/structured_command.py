"""`kstream structured`: queries of Structured Streaming that read Kafka. Needs neither Java nor pyspark, unless a checkpoint is on HDFS."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kstream.cli.terminal import clear_errors, echo
from kstream.spark.checkpoint_store import open_checkpoint
from kstream.storage import prepare_to_write
from kstream_kafka.structured.options import starting_positions
from kstream_kafka.tools.query_migration import KAFKA, KSTREAM, Move, QueryStanding, chosen, move_of, read_standing, write_file


@click.group("structured")
def structured_command() -> None:
    """Queries of Structured Streaming that read Kafka by Spark's own source or by format("kstream")."""


@structured_command.command("migrate")
@click.argument("checkpoint")
@click.option("--to", type=click.Choice((KSTREAM, KAFKA)), required=True, help="The next format of the query: kafka is Spark's own.")
@click.option("--source", metavar="N", help="Only this source (its number or name), if the query has several.")
@click.option(
    "--starting-offsets",
    metavar="VALUE",
    help="The option startingOffsets of the query: earliest, latest or JSON. Needed if kstream has not committed the first batch.",
)
@click.option("--apply", "is_applied", is_flag=True, help="Make the changes. Without it they are only shown.")
def migrate_command(checkpoint: str, to: str, source: str | None, starting_offsets: str | None, is_applied: bool) -> None:
    """Look what must be done before a query goes on with the other Kafka source on the same checkpoint, and do it.

    CHECKPOINT is the checkpointLocation of the query. Stop the query first. Most queries need nothing: both sources store the same
    offsets. Only where the first batch was not committed, the start of the query must be found again: by an option, which is shown, or by a
    file, which --apply writes. A batch that has begun runs again with its offsets. A second time changes nothing.
    """
    with clear_errors():
        starts = None if starting_offsets is None else starting_positions(starting_offsets)
        store = open_checkpoint(checkpoint)
        standing = read_standing(store)
        moves = [move_of(each, to, starts) for each in chosen(standing.sources, source)]
        for sentence in sentences(standing, moves, to):
            echo(sentence)
        files = [move.file for move in moves if move.file is not None]
        if not files:
            return
        if not is_applied:
            echo("nothing was changed: --apply writes the file")
            return
        prepare_to_write(store, single_writer=False)
        for name, content in files:
            write_file(store, name, content)
            echo(f"{store.path(name)} is written")


def sentences(standing: QueryStanding, moves: Sequence[Move], to: str) -> list[str]:
    """Return the lines that the command prints before it changes anything: where the query is, and what each source needs. Pure."""
    said = [f"batch {standing.committed} is committed" if standing.committed is not None else "no batch is committed"]
    if standing.open is not None:
        said.append(f'batch {standing.open} has begun and is not committed: format("{to}") runs it again with its offsets')
    for move in moves:
        said.append(move.sentence)
        if move.starting_offsets is not None:
            said.append(f".option(\"startingOffsets\", '{move.starting_offsets}')")
        if move.file is not None:
            name, content = move.file
            said.append(f"{name} is to have {content.decode().splitlines()[-1]}")
    return said
