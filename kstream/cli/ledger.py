"""`kstream ledger`: the records that the streams of a checkpoint will never read. Needs neither Java nor pyspark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import click
from rich.markup import escape
from rich.table import Table

from kstream.batch import SkippedRecord
from kstream.checkpoint import read_log
from kstream.checkpoint.history import LedgerEntry, acknowledge, read_ledger, replay_command
from kstream.checkpoint.query_ledger import acknowledge_loss, read_query_ledger
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import holds_query, open_existing, ranges_of
from kstream.cli.query import ledger_rows, read_query
from kstream.cli.terminal import clear_errors, count, echo, fail, table_console, this_process, utc_text
from kstream.storage import FileStore

GIVEN_UP = "given up"
SKIP = "skip"
_BECAME = {
    "skipped": "left out as asked for",
    "to-skip": "to be left out; the batch has not ended. Asked for",
    "not-skipped": "not left out: the batch has ended with it. Asked for too late",
}
Acknowledge: TypeAlias = Callable[[int, str], bool]
"""Notes that a person has seen an entry, at a time in ms and by whom. Returns whether the note is new."""


class _ShownByDefault(click.Group):
    """A group whose command `show` needs no name: `kstream ledger PATH`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `show` before arguments that begin with no command of the group."""
        known = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if known or not args else ["show", *args])


@click.group("ledger", cls=_ShownByDefault)
def ledger_command() -> None:
    """Show the records that no batch has read and no batch will read, or acknowledge them: `ledger PATH`, `ledger ack PATH`."""


@ledger_command.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--check", is_flag=True, help="Exit code 1 if the ledger has an entry that is not acknowledged.")
@click.option("--all", "show_all", is_flag=True, help="Show acknowledged entries, too.")
def show(path: str, as_json: bool, check: bool, show_all: bool) -> None:
    """Show the records that no batch has read and no batch will read.

    Retention, an unclean election or a deleted topic removed them before their batch could read them, in a stream that continues in that
    case (onDataLoss skip or report). Or they belong to a batch that failed too often; then the command that runs this batch again is
    printed. Offsets are half-open: [from, until); a range without an end has all later records.

    A record that a person has skipped (`kstream skip`) has a row with what became of it; --check does not count it.

    PATH may also be the checkpointLocation of a query of Structured Streaming. Its planner writes the ledger if the source has the option
    checkpointLocation, too. What only a task of it has seen is in the log of an executor.

    The exit code is 3 if the checkpoint cannot be read or is damaged: the ledger may then be incomplete.
    """
    with clear_errors(code=ReadingCode.UNREADABLE):
        store = open_existing(path, or_query=True)
        if holds_query(store):
            query = read_query(store)
            shown = query.ledger if show_all else query.new_losses
            rows = ledger_rows(shown)
            _print_ledger(store.url, rows, len(query.ledger) - len(shown), as_json, _print_of_query)
            _check(store.url, rows, check)
            return
        entries = read_ledger(store)
    hidden = 0 if show_all else sum(entry.is_acknowledged for entry in entries)
    rows = [
        {**row, **({"acknowledged": True} if entry.is_acknowledged else {})}
        for entry in entries
        if show_all or not entry.is_acknowledged
        for row in rows_of(entry, replay_command(store, entry.time))
    ]
    _print_ledger(store.url, rows, hidden, as_json, _print)
    with clear_errors(code=ReadingCode.UNREADABLE):
        read_log(store)  # the ledger of a damaged checkpoint may lack what the damaged records would have added
    _check(store.url, rows, check)


def _print_ledger(
    url: str, rows: list[dict[str, Any]], hidden: int, as_json: bool, print_rows: Callable[[str, list[dict[str, Any]]], None]
) -> None:
    """Print a ledger as JSON, as a table, or in words if there is nothing to show.

    Args:
        url: the checkpoint.
        rows: what to show.
        hidden: how many entries are not shown.
        as_json: as JSON.
        print_rows: prints the rows as a table.
    """
    if as_json:
        echo(json.dumps({"path": url, "lost": rows, "hidden": hidden}, indent=2))
        return
    if rows:
        print_rows(url, rows)
    elif not hidden:
        echo(f"the ledger of {url} is empty")
    if hidden:
        echo(f"{count(hidden, 'batch')} with acknowledged entries not shown (--all shows them)")


def _check(url: str, rows: list[dict[str, Any]], check: bool) -> None:
    """End the program if `check` is set, and a row is neither acknowledged nor asked for."""
    new = sum("acknowledged" not in row and row.get("cause") != SKIP for row in rows)
    if check and new:
        fail(f"{url} has {count(new, 'entry')} in its ledger", ReadingCode.BEHIND)


@ledger_command.command()
@click.argument("path")
@click.argument("batches", nargs=-1, type=int, metavar="[MS]...")
@click.option("--all", "ack_all", is_flag=True, help="Acknowledge all entries that the ledger has now.")
def ack(path: str, batches: tuple[int, ...], ack_all: bool) -> None:
    """Acknowledge entries: `ledger`, `ledger --check` and `status` then leave them out. A second time changes nothing.

    MS are the batch times of the entries, in milliseconds, as `kstream ledger` shows them. The entries themselves stay. An entry that a
    batch adds later is a new one.

    PATH may also be the checkpointLocation of a query of Structured Streaming. MS are then the times at which entries were found. An entry
    of which more is lost later is a new one.
    """
    if ack_all == bool(batches):
        raise click.UsageError("give the batch times of the entries, or --all")
    with clear_errors():
        store = open_existing(path, or_query=True)
        is_query = holds_query(store)
        entries = _notes_of_query(store) if is_query else _notes_of_streams(store)
        wrong = sorted(set(batches) - {ms for ms, _ in entries})
        if wrong:
            said = f"{'found at' if is_query else 'of batch'} {', '.join(map(str, wrong))} ms"
            fail(f"the ledger of {store.url} has no entry {said}: nothing is acknowledged")
        now_ms, by = round(time.time() * 1000), this_process()
        chosen = [acknowledged for ms, acknowledged in entries if ack_all or ms in batches]
        new = sum(acknowledged(now_ms, by) for acknowledged in chosen)
    echo(f"{new} acknowledged, {len(chosen) - new} had been before")


def _notes_of_streams(store: FileStore) -> list[tuple[int, Acknowledge]]:
    """Return the entries of a checkpoint: the batch time of each in ms, and what acknowledges it. Blocks on the store."""
    return [(entry.time.milliseconds, partial(acknowledge, store, entry)) for entry in read_ledger(store)]


def _notes_of_query(store: FileStore) -> list[tuple[int, Acknowledge]]:
    """Return the entries of a query: when each was found, and what acknowledges it. Blocks on the store."""
    return [(entry.at_ms, partial(acknowledge_loss, store, entry)) for entry in read_query_ledger(store)]


def rows_of(entry: LedgerEntry, replay: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each range of a ledger entry, as JSON values. Pure.

    An input of a given-up batch whose connector offers no ranges has one row without a topic.

    Args:
        entry: the entry of a batch.
        replay: the command that runs the batch again. The rows of a batch that was given up have it.
    """
    common = {"batch": entry.time.milliseconds, "at": entry.at_ms, "epoch": entry.epoch}
    for stream, found in sorted(entry.streams.items()):
        if entry.kind == "lost":
            for lost in found:
                yield {**common, "stream": stream, **lost}
            continue
        if entry.is_asked_for:
            yield from ({**common, "stream": stream, **_skip_row(record, entry)} for record in found)
            continue
        ranges = ranges_of(found)
        why = {"cause": GIVEN_UP, "detail": f"the batch failed {entry.failures} times", "replay": replay}
        if ranges is None:
            yield {**common, "stream": stream, **why, "plan": found}
        for topic, partition, begin, until in ranges or ():
            if begin < until:
                yield {**common, "stream": stream, "topic": topic, "partition": partition, "from": begin, "until": until, **why}


def _skip_row(record: SkippedRecord, entry: LedgerEntry) -> dict[str, Any]:
    """Return the fields of a row about a record that `kstream skip` has named. Pure."""
    detail = f"{_BECAME[entry.kind]} {entry.note}{_read_by(record)}"
    where = {"topic": record.topic, "partition": record.partition, "from": record.offset, "until": record.offset + 1}
    return {**where, "cause": SKIP, "skip": entry.kind, "detail": detail}


def _read_by(record: SkippedRecord) -> str:
    """Return which outputs have the record, as a clause in parentheses; empty for none. An older kstream stored only their numbers."""
    if record.outputs:
        return f" (these had it before and keep it: {'; '.join(record.outputs)})"
    numbers = ", ".join(map(str, record.read_by))
    return f" (output operations that had succeeded with it: {numbers})" if numbers else ""


def _print_of_query(url: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows of a query as a table."""
    console = table_console()
    console.print(f"[bold]{escape(url)}[/bold]")
    table = Table("found (UTC)", "ms", "partition", "offsets", "records", "cause", "event")
    for row in rows:
        until = row["until"]
        cells = (
            f"{row['topic']}/{row['partition']}",
            f"[{row['from']}, {'…' if until is None else until})",
            "" if until is None else str(until - row["from"]),
            row["cause"],
            row["detail"],
        )
        table.add_row(utc_text(row["at"]), str(row["at"]), *map(escape, cells))
    console.print(table)


def _print(url: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table, with the commands that run given-up batches again."""
    console = table_console()
    console.print(f"[bold]{escape(url)}[/bold]")
    table = Table("batch (UTC)", "ms", "stream", "partition", "offsets", "records", "cause", "event")
    known = 0
    for row in rows:
        has_offsets = row.keys() >= {"topic", "partition", "from", "until"}  # inputs of other kinds may lose something else
        until = row["until"] if has_offsets else None
        size = until - row["from"] if until is not None else None
        known += size or 0
        place = f"{row['topic']}/{row['partition']}" if has_offsets else ""
        offsets = f"[{row['from']}, {'…' if until is None else until})" if has_offsets else ""
        cells = (place, offsets, "" if size is None else str(size), row.get("cause", ""), row.get("detail", ""))
        table.add_row(utc_text(row["batch"]), str(row["batch"]), str(row["stream"]), *map(escape, cells))
    console.print(table)
    console.print(f"{count(len(rows), 'entry')}, {count(known, 'offset')} as far as their ends are known; compaction may have left gaps")
    for command in dict.fromkeys(row["replay"] for row in rows if "replay" in row):
        echo(f"batch given up. While its plan is kept, this command runs it again: {command}")
