"""Queries of Structured Streaming, as `lag`, `ledger`, `offsets show` and `status` see them: from the checkpoint alone, with any source
whose connector knows its offsets. `structured_streaming` reads the files.

The checkpoint says which batches have begun and which were committed. It does not say whether the query runs, nor where its brokers are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from kstream.checkpoint.query_ledger import QueryLoss, read_query_ledger
from kstream.checkpoint.sign_of_life import duration_text
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import CheckpointOffsets, tools
from kstream.cli.structured_streaming import COMMITS, NewestBatches, initial_offset, newest_batches, read_entry
from kstream.cli.terminal import count, echo, table_console, utc_text
from kstream.connectors import ConnectorTools
from kstream.errors import ConfigurationError
from kstream.offsets.offset_log import OFFSETS
from kstream.offsets.offset_range import Partition
from kstream.storage import FileStore


@dataclass(frozen=True, slots=True)
class QuerySource:
    """A source of a query.

    Attributes:
        number: its place among the sources. It is the `stream` of its rows.
        name: its name in the checkpoint; without one its number.
        known: the tools of the connector that knows its offsets; None if none does.
        rows: its partitions, in order.
        is_counted: whether the checkpoint says where the open batch begins. If not, `completed` of the rows is where it ends.
    """

    number: int
    name: str
    known: ConnectorTools | None
    rows: list[CheckpointOffsets]
    is_counted: bool


@dataclass(frozen=True, slots=True)
class Query:
    """What the checkpoint of a query holds.

    Attributes:
        url: the checkpoint.
        batches: its newest batches.
        sources: its sources, in order; [] if no batch has begun.
        begun_ms: when its newest batch began, by the clock of its driver; None if that is not stored.
        committed_ms: when its last batch was committed, by the clock of the store; None if the store cannot tell.
        ledger: what it will never read, as far as its planner knew it; oldest first.
    """

    url: str
    batches: NewestBatches
    sources: list[QuerySource]
    begun_ms: int | None
    committed_ms: int | None
    ledger: list[QueryLoss]

    @property
    def rows(self) -> list[CheckpointOffsets]:
        """The partitions of all sources, in order."""
        return [row for source in self.sources for row in source.rows]

    @property
    def new_losses(self) -> list[QueryLoss]:
        """The entries of the ledger that nobody has acknowledged."""
        return [entry for entry in self.ledger if not entry.is_acknowledged]

    @property
    def names(self) -> dict[int, str]:
        return {source.number: source.name for source in self.sources}


def read_query(store: FileStore) -> Query:
    """Read the checkpoint of a query. Blocks on the store.

    Lists four folders at most and reads two files, one for each source of a first batch, and one for each entry of the ledger.

    Raises:
        ConfigurationError: it is damaged, or of a form that is not known.
        CorruptRecordError: an entry of the ledger is damaged.
        StorageError: the store failed.
    """
    batches = newest_batches(store)
    committed_ms = None if batches.committed is None else store.modified_ms(f"{COMMITS}/{batches.committed}")
    ledger = read_query_ledger(store)
    if batches.begun is None:
        return Query(store.url, batches, [], None, committed_ms, ledger)
    newest = read_entry(store, batches.begun)
    before = newest.sources if batches.open is None else _after_committed(store, batches)
    sources = [_source(store, number, name, text, before) for number, (name, text) in enumerate(newest.sources.items())]
    begun_ms = newest.metadata.get("batchTimestampMs")
    return Query(store.url, batches, sources, begun_ms if isinstance(begun_ms, int) else None, committed_ms, ledger)


def _after_committed(store: FileStore, batches: NewestBatches) -> Mapping[str, str]:
    """Return the offsets after the last committed batch; {} if they are not stored, so that nobody knows where the open batch begins.

    With asynchronous progress tracking Spark stores some batches only, and may remove the offsets of the last committed one before its
    commit.
    """
    committed, begun = batches.committed, batches.open
    if committed is None or (begun is not None and begun > committed + 1 and not store.exists(f"{OFFSETS}/{committed}")):
        return {}
    return read_entry(store, committed).sources


def _source(store: FileStore, number: int, name: str, text: str, before: Mapping[str, str]) -> QuerySource:
    """Return a source whose newest batch ends at `text`. `before` has the offsets after the last committed batch."""
    known, ends = source_offsets(text)
    if known is None:
        return QuerySource(number, name, None, [], True)
    begin = source_offsets(before.get(name))[1]
    if begin is None:
        begin = source_offsets(initial_offset(store, name))[1]
    begins = begin or {}
    rows = [CheckpointOffsets(number, *p, min(begins.get(p, at), at), at, False) for p, at in sorted((ends or {}).items())]
    return QuerySource(number, name, known, rows, begin is not None and begin.keys() >= (ends or {}).keys())


def source_offsets(text: str | None) -> tuple[ConnectorTools | None, Mapping[Partition, int] | None]:
    """Return the connector that knows an offset of a source, and the next offset of each partition; (None, None) if none does."""
    try:
        value = None if text is None else json.loads(text)
    except ValueError:
        value = None
    for known in tools():
        if value is not None and (offsets := known.query_offsets(value)) is not None:
            return known, offsets
    return None, None


def connection_of(known: ConnectorTools, options: tuple[str | None, tuple[str, ...], str | None]) -> dict[str, Any]:
    """Return the parameters of a connection from the command line: the checkpoint of a query stores none. Reads a file, if one is named.

    Args:
        known: the tools of the connector of a source.
        options: the values of `--bootstrap`, `--param` and `--params-file`.

    Raises:
        ConfigurationError: they cannot be read, or name no broker.
    """
    connection = known.connection(None, known.read_parameters(*options))
    if connection is None:
        words = "the checkpoint of a query stores no parameters of a connection: give --bootstrap HOST:PORT, and the others that"
        raise ConfigurationError(f"{words} the brokers require by --param or --params-file", key="bootstrap", value=None)
    return connection


# -- for people and as JSON


def batches_data(query: Query) -> dict[str, Any]:
    """Return the newest batches as JSON values."""
    return {"path": query.url, "batch": query.batches.begun, "committed": query.batches.committed}


def notes(query: Query) -> list[str]:
    """Return what the rows do not say, as sentences."""
    said: list[str] = []
    if query.batches.open is not None:
        said.append(f"batch {query.batches.open} has begun and is not committed")
    for source in query.sources:
        if source.known is None:
            said.append(f"source {source.name}: no connector knows its offsets")
        elif not source.is_counted:
            said.append(f"source {source.name}: where the batch begins is not stored for all partitions; its end stands there")
    if query.new_losses:
        said.append(f"the ledger has {_lost_words(query)}: `kstream ledger {query.url}`")
    return said


def _lost_words(query: Query) -> str:
    """Return how much is in the ledger and not acknowledged."""
    lost = [each for entry in query.new_losses for each in entry.lost]
    known = sum(each.lost_until - each.lost_from for each in lost if each.lost_until is not None)
    topics = ", ".join(sorted({each.topic for each in lost}))
    return f"{count(len(lost), 'range')} of lost records of {topics}, {count(known, 'offset')} as far as their ends are known"


def ledger_rows(entries: Iterable[QueryLoss]) -> list[dict[str, Any]]:
    """Return a row for each range of entries of the ledger, as JSON values."""
    return [
        {"at": entry.at_ms, **lost.to_json(), **({"acknowledged": True} if entry.is_acknowledged else {})}
        for entry in entries
        for lost in entry.lost
    ]


def print_offsets(query: Query, as_json: bool) -> None:
    """Print the offsets of a query, as `kstream offsets show` does."""
    if as_json:
        partitions = [
            {"source": query.names[r.stream], "topic": r.topic, "partition": r.partition, "completed": r.completed, "next": r.next}
            for r in query.rows
        ]
        echo(json.dumps({**batches_data(query), "partitions": partitions, "notes": notes(query)}, indent=2))
        return
    console = table_console()
    console.print(f"[bold]{escape(query.url)}[/bold]")
    table = Table("source", "partition", "completed", "next", "in the open batch")
    for r in query.rows:
        name = escape(query.names[r.stream])
        table.add_row(name, escape(f"{r.topic}/{r.partition}"), str(r.completed), str(r.next), str(r.next - r.completed or ""))
    console.print(table)
    for sentence in notes(query):
        echo(sentence)
    begun = "" if query.begun_ms is None else f" ({utc_text(query.begun_ms)} UTC)"
    echo("no batch has begun" if query.batches.begun is None else f"after batch {query.batches.begun}{begun}")


@dataclass(frozen=True, slots=True)
class QueryReport:
    """The answer of `kstream status` for a query.

    Attributes:
        code: the exit code.
        state: `new`, `committed`, `open` or `behind`.
        sentence: the state as a sentence.
        seconds_open: for how long the newest batch has been open; None if it is not, or if that is not known.
    """

    code: ReadingCode
    state: str
    sentence: str
    seconds_open: float | None


def judge_query(query: Query, now_ms: int, max_behind: float | None) -> QueryReport:
    """Judge a query by its newest batch. Pure. A query without new records begins no batch, so only an open batch can be late.

    Args:
        query: what the checkpoint holds.
        now_ms: the time in ms.
        max_behind: for how many seconds a batch may be open; None for any time.
    """
    batches = query.batches
    if batches.begun is None:
        return QueryReport(ReadingCode.WELL, "new", "no batch of this query has begun", None)
    if batches.open is None:
        ago = _ago(query.committed_ms, now_ms)
        return QueryReport(ReadingCode.WELL, "committed", f"batch {batches.committed} is committed{ago}", None)
    seconds = None if query.begun_ms is None else max(0, now_ms - query.begun_ms) / 1000
    is_late = max_behind is not None and seconds is not None and seconds > max_behind
    sentence = f"batch {batches.open} has begun{_ago(query.begun_ms, now_ms)} and is not committed"
    code, state = (ReadingCode.BEHIND, "behind") if is_late else (ReadingCode.WELL, "open")
    return QueryReport(code, state, sentence, seconds)


def status_data(query: Query, report: QueryReport) -> dict[str, Any]:
    """Return the report as JSON values; moments in milliseconds since the Unix epoch. `alive` is null: nobody can know."""
    return {
        **batches_data(query),
        "exit_code": int(report.code),
        "state": report.state,
        "sentence": report.sentence,
        "alive": None,
        "begun": query.begun_ms,
        "committed_at": query.committed_ms,
        "seconds_open": report.seconds_open,
        "ledger": len(ledger_rows(query.new_losses)),
    }


def status_words(query: Query, report: QueryReport) -> list[str]:
    """Return the report as lines for people."""
    lines = [query.url, report.sentence]
    if report.state == "open" or report.state == "behind":
        committed = query.batches.committed
        lines.append("no batch is committed" if committed is None else f"the last committed batch is {committed}")
    sources = ", ".join(f"{source.name} ({_topics(source)})" for source in query.sources)
    lines += [f"sources: {sources}"] if sources else []
    lines += [f"the ledger has {_lost_words(query)}"] if query.new_losses else []
    said = "The checkpoint of a query of Structured Streaming does not say whether it runs."
    return [*lines, f"{said} `kstream lag` shows how far it is behind."]


def _topics(source: QuerySource) -> str:
    if source.known is None:
        return "unknown offsets"
    return ", ".join(sorted({row.topic for row in source.rows})) or "no topic yet"


def _ago(moment_ms: int | None, now_ms: int) -> str:
    """Return how long ago a moment is, as the end of a clause; "" if it is not known."""
    return "" if moment_ms is None else f" {duration_text(max(0, now_ms - moment_ms))} ago"
