"""`kstream history`: the past batches of a checkpoint, those of its history and those of its log. Needs neither Java nor pyspark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from kstream.batch import SkippedRecord
from kstream.batch_time import Duration, Time
from kstream.checkpoint import LogContents
from kstream.checkpoint.history import PastBatch, read_history, read_past
from kstream.checkpoint.reader import read_started_log
from kstream.cli.checkpoint import LAST, skipped_data, state_of
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import open_existing, plan_text
from kstream.cli.terminal import batch_moment, clear_errors, count, echo, parse_moment, table_console
from kstream.storage import FileStore


@click.command("history")
@click.argument("path")
@click.option("--from", "begin", metavar="TIME", help="First batch time: ms, an ISO time, -2h or now.")
@click.option("--to", "end", metavar="TIME", help="Last batch time, itself included.")
@click.option("--last", type=click.IntRange(min=1), help="Only the newest N of them. Default: 20; with --from, all.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def history_command(path: str, begin: str | None, end: str | None, last: int | None, as_json: bool) -> None:
    """Show past batches: their records, their ranges, their delays and how they ended.

    Batches stay in the history for a time (spark.streaming.kstream.history). Records are those that were read; of a batch that has not
    succeeded, those of its plan.
    """
    now = round(time.time() * 1000)
    with clear_errors(code=ReadingCode.UNREADABLE):
        first, until = (None if text is None else Time(parse_moment(text, now)) for text in (begin, end))
        store = open_existing(path)
        log = read_started_log(store)
        contents = log.contents
        batches = past_batches(store, contents, first, until)
        shown = batches[-(last or LAST) :] if last or first is None else batches
        rows = [as_data(store, batch, contents) for batch in shown]
    if as_json:
        echo(json.dumps({"path": store.url, "batches": rows}, indent=2))
    else:
        _print(store.url, rows, len(batches), log.meta.interval)


def past_batches(store: FileStore, contents: LogContents, first: Time | None, until: Time | None) -> list[PastBatch]:
    """Return the batches from `first` to `until`, both included, oldest first: of the history and of the log. Void plans are left out.

    The batches of the log come without record counts. Blocks: one listing, and one read for each segment of the history.
    """
    found = {batch.plan.time: batch for batch in read_history(store, first, until)}
    for moment, plan in contents.plans.items():
        if not plan.void and (first is None or moment >= first) and (until is None or moment <= until):
            found.setdefault(moment, PastBatch(plan, None))
    return [found[moment] for moment in sorted(found)]


def as_data(store: FileStore, batch: PastBatch, contents: LogContents) -> dict[str, Any]:
    """Return a batch as JSON values; its time in ms since the Unix epoch. A batch of the log costs one read.

    The delays are in ms; a batch without jobs has none. `figures` are there if they are known: those of the states, and those of each
    output operation that has some, by their keys in `lastProgress`. `outcome` is that of `kstream checkpoint show`. In the history a
    batch is done, or without a completion.
    """
    plan = batch.plan
    if plan.time in contents.plans:
        batch, outcome = read_past(store, plan), state_of(plan.time, contents)
    else:
        outcome = "not done" if batch.counts is None else "done"
    skipped = skipped_data(batch.skipped)
    delays = {} if batch.delays is None else {"scheduling_delay": batch.delays.scheduling_ms, "processing": batch.delays.processing_ms}
    streams = list(_streams(batch))
    head = {"time": plan.time.milliseconds, "epoch": plan.epoch, "outcome": outcome}
    return {**head, **delays, "streams": streams, **skipped, **_figures(batch)}


def _figures(batch: PastBatch) -> dict[str, Any]:
    """Return what was measured of the states and the output operations of a batch; empty if nothing is known."""
    outputs = [
        {"id": output.output_op_id, "name": output.op_name, "durationMs": output.duration(), **output.figures.by_key()}
        for output in batch.figures.outputs
    ]
    found = {"state": batch.figures.state.by_key(), "outputs": outputs}
    return {"figures": found} if any(found.values()) else {}


def _streams(batch: PastBatch) -> Iterator[dict[str, Any]]:
    """Yield the share of each input in a batch, as JSON values."""
    plan = batch.plan
    for number, data in sorted(plan.inputs.items()):
        counts = None if batch.counts is None else batch.counts.get(number)
        read = None if counts is None or None in counts else sum(n for n in counts if n is not None)
        name = plan.names.get(number)
        named = {} if name is None else {"name": name}
        yield {"id": number, **named, "planned": plan.num_records.get(number, 0), "read": read, "plan": dict(data)}


def _delay(row: dict[str, Any]) -> str:
    """Return the total delay of a batch as text; "" if it is not known."""
    return f"{row['scheduling_delay'] + row['processing']:,} ms" if "processing" in row else ""


def _print(url: str, rows: list[dict[str, Any]], total: int, interval: Duration) -> None:
    """Print the batches as a table."""
    console = table_console()
    table = Table("batch (local)", "ms", "epoch", "outcome", "delay", "stream", "records", "ranges")
    for row in rows:
        head = [batch_moment(Time(row["time"]), interval), str(row["time"]), str(row["epoch"]), row["outcome"], _delay(row)]
        if not row["streams"]:
            table.add_row(*head, "", "", "")
        for index, stream in enumerate(row["streams"]):
            records = stream["planned"] if stream["read"] is None else stream["read"]
            name = " ".join([str(stream["id"]), *([stream["name"]] if "name" in stream else [])])
            table.add_row(*(head if index == 0 else [""] * len(head)), escape(name), str(records), escape(plan_text(stream["plan"])))
        if "skipped" in row:
            places = ", ".join(str(SkippedRecord.from_json(record)) for record in row["skipped"])
            table.add_row(*[""] * 7, escape(f"without {places}"))
    console.print(f"[bold]{escape(url)}[/bold]")
    console.print(table)
    console.print(count(total, "batch") + ("" if len(rows) == total else f" (the last {len(rows)} shown)"))
