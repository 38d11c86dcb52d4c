"""`kstream lag`: how far the streams of a checkpoint, or a query, are behind the ends of their logs. Needs neither Java nor pyspark.

A partition has two distances. *Lag* is from the end of the last batch that is completed without a gap to the end of the log. *Unplanned*
is the part of the lag that no batch has yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from kstream.checkpoint import LogContents, read_log
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import (
    CheckpointOffsets,
    Connections,
    connection_options,
    holds_query,
    newest_plans,
    note_inputs_without_ranges,
    offsets_of,
    open_existing,
    systems,
    tools_of,
)
from kstream.cli.query import Query, batches_data, connection_of, notes, read_query
from kstream.cli.terminal import clear_errors, count, echo, fail, table_console
from kstream.connectors import ConnectorTools
from kstream.offsets.offset_range import Partition

SHORTER = "log is shorter than read"
WAITING = "waits for the log to reach its start"


@click.command("lag")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--max-lag", type=click.IntRange(min=0), metavar="N", help="Exit code 1 if a partition's lag is above N.")
@connection_options
def lag_command(
    path: str, as_json: bool, max_lag: int | None, bootstrap: str | None, params: tuple[str, ...], params_file: str | None
) -> None:
    """Show how far the streams of a checkpoint, or the sources of a query of Structured Streaming, are behind their logs.

    The lag of a partition counts the records after the last batch that is completed without a gap. A healthy stream is behind by the
    records of an interval or two. The checkpoint stores the parameters of a connection, unless they may hold a secret. Parameters that are
    given here win.

    PATH may also be the checkpointLocation of a query. That stores no parameters: give --bootstrap. Its lag counts the records after the
    last committed batch.

    With --max-lag the exit code is 1 if a partition is further behind than N, or if its log is shorter than the part that was read. It is 3
    if the checkpoint cannot be read, or if the brokers do not answer.
    """
    with clear_errors(code=ReadingCode.UNREADABLE):
        store = open_existing(path, or_query=True)
        if holds_query(store):
            _of_query(read_query(store), as_json, max_lag, (bootstrap, params, params_file))
            return
        contents = read_log(store)  # before the question to the brokers; otherwise a running stream could seem to be past its log
        standing = offsets_of(contents)
        if not standing:
            fail(f"{store.url} holds no ranges of a {systems()} stream: see `kstream checkpoint show {path}`", ReadingCode.UNREADABLE)
        connections = Connections(store, bootstrap, params, params_file)
        offered = {stream: known for stream, data in newest_plans(contents).items() if (known := tools_of(data)) is not None}
        streams = sorted({at.stream for at in standing})
        asked = {stream: (offered[stream], connections.parameters_of(stream, offered[stream])) for stream in streams}
        rows = with_ends(standing, asked)
    if as_json:
        echo(json.dumps(as_data(store.url, rows, contents), indent=2))
    else:
        _print(store.url, rows, contents)
    if max_lag is not None:
        check(rows, max_lag)


def _of_query(query: Query, as_json: bool, max_lag: int | None, options: tuple[str | None, tuple[str, ...], str | None]) -> None:
    """Show the lag of a query. `options` are those of a connection. Blocks on the brokers. KStreamError, as `lag_command` ends with it."""
    asked: dict[int, tuple[ConnectorTools, Mapping[str, Any]]] = {}
    for source in query.sources:
        if source.known is not None:
            asked[source.number] = source.known, connection_of(source.known, options)
    if not asked:
        what = "has begun no batch" if query.batches.begun is None else f"has no source of {systems()}"
        fail(f"the query of {query.url} {what}: there is no lag to show", ReadingCode.UNREADABLE)
    rows = with_ends(query.rows, asked)
    names = query.names
    if as_json:
        partitions = [{"source": names[row.at.stream], **_figures(row)} for row in rows]
        topics = [{"source": names[total.pop("stream")], **total} for total in totals(rows)]
        echo(json.dumps({**batches_data(query), "partitions": partitions, "topics": topics, "notes": notes(query)}, indent=2))
    else:
        _print_rows(query.url, rows, "source", names)
        for sentence in notes(query):
            echo(sentence)
    if max_lag is not None:
        check(rows, max_lag)


@dataclass(frozen=True, slots=True)
class LagRow:
    """The offsets of a partition in the checkpoint, and the end of its log."""

    at: CheckpointOffsets
    end: int

    @property
    def name(self) -> str:
        """The partition as `topic/number`."""
        return f"{self.at.topic}/{self.at.partition}"

    @property
    def lag(self) -> int:
        """The number of offsets after the completed ones. Negative if the log is shorter than the part that was read."""
        return self.end - self.at.completed

    @property
    def unplanned(self) -> int:
        """The number of offsets that no batch has yet. Negative if the log is shorter than the part that was planned."""
        return self.end - self.at.next

    @property
    def note(self) -> str:
        """The reason for which the log ends before the next offset; empty if it does not."""
        if self.unplanned >= 0:
            return ""
        return WAITING if self.at.waiting else SHORTER


def with_ends(standing: list[CheckpointOffsets], asked: Mapping[int, tuple[ConnectorTools, Mapping[str, Any]]]) -> list[LagRow]:
    """Ask the brokers for the ends of the logs, once for all streams of one connection. Blocks.

    Args:
        standing: the partitions.
        asked: by stream, the tools of its connector and the parameters of its connection.

    Returns:
        A row for each partition, in the given order.

    Raises:
        KStreamError: an error of the connector.
    """
    alike: dict[tuple[str, str], tuple[ConnectorTools, Mapping[str, Any], set[Partition]]] = {}
    keys = {stream: (known.name, json.dumps(connection, sort_keys=True)) for stream, (known, connection) in asked.items()}
    for at in standing:
        _, _, partitions = alike.setdefault(keys[at.stream], (*asked[at.stream], set()))
        partitions.add((at.topic, at.partition))
    ends = {key: known.log_ends(connection, sorted(partitions)) for key, (known, connection, partitions) in alike.items()}
    return [LagRow(at, ends[keys[at.stream]][at.topic, at.partition]) for at in standing]


def check(rows: list[LagRow], max_lag: int) -> None:
    """End the program with a sentence and ReadingCode.BEHIND if a partition is too far behind, or if a log is too short.

    Args:
        rows: the partitions.
        max_lag: the largest permitted lag, in records. A log is too short if it ends before the part that was read.
    """
    over = [row for row in rows if row.lag > max_lag]
    short = [row for row in rows if row.note == SHORTER]
    if over:
        most = max(over, key=lambda row: row.lag)
        others = f", and {count(len(over) - 1, 'other partition')} too" if len(over) > 1 else ""
        fail(f"{most.name} is {count(most.lag, 'record')} behind, above --max-lag {max_lag}{others}", ReadingCode.BEHIND)
    if short:
        row = short[0]
        said = f"{row.name} ends at {row.end}, before {row.at.next}, the next offset to read: the topic was truncated or recreated"
        fail(said, ReadingCode.BEHIND)


# -- for people and as JSON


def totals(rows: list[LagRow]) -> list[dict[str, Any]]:
    """Return the totals per stream and topic, in order. A log that is shorter than read counts as 0."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for row in rows:
        key = (row.at.stream, row.at.topic)
        total = found.setdefault(key, {"stream": key[0], "topic": key[1], "partitions": 0, "unplanned": 0, "lag": 0})
        total["partitions"] += 1
        total["unplanned"] += max(0, row.unplanned)
        total["lag"] += max(0, row.lag)
    return [found[key] for key in sorted(found)]


def as_data(url: str, rows: list[LagRow], contents: LogContents) -> dict[str, Any]:
    """Return all rows and totals as JSON values; `given_up` has batch times in ms."""
    partitions = [{"stream": row.at.stream, **_figures(row)} for row in rows]
    given_up = [time.milliseconds for time in sorted(contents.given_up)]
    return {"path": url, "partitions": partitions, "topics": totals(rows), "given_up": given_up}


def _figures(row: LagRow) -> dict[str, Any]:
    """Return a row as JSON values, without its stream."""
    return {
        "topic": row.at.topic,
        "partition": row.at.partition,
        "completed": row.at.completed,
        "next": row.at.next,
        "log_end": row.end,
        "unplanned": row.unplanned,
        "lag": row.lag,
        "note": row.note,
    }


def _print(url: str, rows: list[LagRow], contents: LogContents) -> None:
    _print_rows(url, rows, "stream", {row.at.stream: str(row.at.stream) for row in rows})
    if contents.given_up:
        echo(f"{count(len(contents.given_up), 'kept batch')} given up: the lag does not count these records")
    note_inputs_without_ranges(contents, "lag")


def _print_rows(url: str, rows: list[LagRow], kind: str, names: Mapping[int, str]) -> None:
    """Print the rows as a table, with a sentence for each topic.

    Args:
        url: the checkpoint.
        rows: the rows.
        kind: what has the partitions: `stream` or `source`.
        names: the name of each.
    """
    console = table_console()
    console.print(f"[bold]{escape(url)}[/bold]")
    right = {"completed", "next", "log end", "unplanned", "lag"}
    table = Table()
    for head in (kind, "partition", "completed", "next", "log end", "unplanned", "lag", "note"):
        table.add_column(head, justify="right" if head in right else "left")
    for row in rows:
        at = row.at
        figures = map(str, (at.completed, at.next, row.end, row.unplanned, row.lag))
        table.add_row(escape(names[at.stream]), escape(row.name), *figures, row.note)
    console.print(table)
    for total in totals(rows):
        words = f"{count(total['lag'], 'record')} behind, {total['unplanned']} of them in no batch yet"
        console.print(escape(f"{kind} {names[total['stream']]}, {total['topic']}: {words if total['lag'] else 'no lag'}"))
