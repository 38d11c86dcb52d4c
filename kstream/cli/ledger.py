"""`kstream ledger`: the records that the streams of a checkpoint will never read. Needs neither Java nor pyspark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kstream.checkpoint.history import LedgerEntry, read_ledger, replay_command
from kstream.cli.inputs import open_existing, ranges_of
from kstream.cli.terminal import clear_errors, count, fail

GIVEN_UP = "given up"


@click.command("ledger")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--check", is_flag=True, help="Exit code 1 if the ledger holds anything.")
def ledger_command(path: str, as_json: bool, check: bool) -> None:
    """Show the records that no batch has read and no batch will read.

    Retention, an unclean election or a deleted topic removed them before their batch could read them, in a stream that continues in that
    case (onDataLoss skip or report). Or they belong to a batch that failed too often; then the command that runs this batch again is
    printed. Offsets are half-open: [from, until); a range without an end has all later records.
    """
    with clear_errors():
        store = open_existing(path)
        entries = read_ledger(store)
    rows = [row for entry in entries for row in rows_of(entry, replay_command(store, entry.time))]
    if as_json:
        click.echo(json.dumps({"path": store.url, "lost": rows}, indent=2))
    elif not rows:
        click.echo(f"the ledger of {store.url} is empty: no batch has skipped records of its plan")
    else:
        _print(store.url, rows)
    if check and rows:
        fail(f"{store.url} has {count(len(rows), 'entry')} in its ledger")


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
        ranges = ranges_of(found)
        why = {"cause": GIVEN_UP, "detail": f"the batch failed {entry.failures} times", "replay": replay}
        if ranges is None:
            yield {**common, "stream": stream, **why, "plan": found}
        for topic, partition, begin, until in ranges or ():
            if begin < until:
                yield {**common, "stream": stream, "topic": topic, "partition": partition, "from": begin, "until": until, **why}


def _print(url: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table, with the commands that run given-up batches again."""
    console = Console(highlight=False, soft_wrap=False)
    console.print(f"[bold]{escape(url)}[/bold]")
    table = Table("batch (UTC)", "ms", "stream", "partition", "offsets", "records", "cause", "event")
    known = 0
    for row in rows:
        until = row.get("until")
        size = until - row["from"] if until is not None else None
        known += size or 0
        moment = datetime.fromtimestamp(row["batch"] / 1000, timezone.utc)
        place = f"{row['topic']}/{row['partition']}" if "topic" in row else ""
        offsets = f"[{row['from']}, {'…' if until is None else until})" if "from" in row else ""
        cells = (place, offsets, "" if size is None else str(size), row["cause"], row["detail"])
        table.add_row(f"{moment:%Y-%m-%d %H:%M:%S}", str(row["batch"]), str(row["stream"]), *map(escape, cells))
    console.print(table)
    console.print(f"{count(len(rows), 'entry')}, {count(known, 'offset')} as far as their ends are known; compaction may have left gaps")
    for command in dict.fromkeys(row["replay"] for row in rows if "replay" in row):
        click.echo(f"batch given up. While its plan is kept, this command runs it again: {command}")
