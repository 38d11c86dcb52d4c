"""`kstream lag`: how far the Kafka streams of a checkpoint are behind the ends of their logs. Needs neither Java nor pyspark.

Two distances a partition. *Lag* is from what is completed without a gap – everything below the lowest unfinished batch – to the end
of the log: records that still have to go through a batch that ends. *Unplanned* is the part of it that no batch has been given yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kstream import connectors
from kstream.checkpoint import LogContents, read_log
from kstream.checkpoint.reader import has_checkpoint
from kstream.cli.errors import clear_errors, fail
from kstream.cli.kafka_params import given_params, names_brokers, stored_params
from kstream.cli.ranges import kafka_ranges
from kstream.cli.words import count
from kstream.spark.checkpoint_store import open_checkpoint
from kstream.storage import FileStore

SHORTER = "log is shorter than read"
WAITING = "waits for the log to reach its start"
_Params = Mapping[str, Any]


@click.command("lag")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--max-lag", type=click.IntRange(min=0), metavar="N", help="Exit code 1 if a partition's lag is above N.")
@click.option("--bootstrap", metavar="HOST:PORT", help="The brokers, where the checkpoint does not store them or they have moved.")
@click.option("--param", "params", multiple=True, metavar="KEY=VALUE", help="A Kafka parameter; may be given several times.")
@click.option("--params-file", metavar="FILE", help="Kafka parameters, as .json or .properties; the place for secrets.")
def lag_command(
    path: str, as_json: bool, max_lag: int | None, bootstrap: str | None, params: tuple[str, ...], params_file: str | None
) -> None:
    """Show how far a checkpoint's Kafka streams are behind their logs.

    The lag of a partition counts the records after the last batch that is completed without a gap; a stream that runs well is behind
    by the records of an interval or two. Parameters for Kafka are those stored with the checkpoint, unless they may hold a secret; what
    is given here wins.

    With --max-lag the exit code is 1 when a partition is further behind than N, or its log is shorter than what was read of it.
    """
    with clear_errors():
        store = open_checkpoint(path)
        if not has_checkpoint(store):
            fail(f"there is no checkpoint in {store.url}: no stream has started there")
        contents = read_log(store)  # before the brokers are asked, or a running stream could seem to be past its log
        standing = standing_of(contents)
        if not standing:
            fail(f"{store.url} holds no ranges of a Kafka stream: see `kstream checkpoint show {path}`")
        rows = with_ends(standing, params_of(store, standing, given_params(bootstrap, params, params_file)))
    if as_json:
        click.echo(json.dumps(as_data(store.url, rows, contents), indent=2))
    else:
        _print(store.url, rows, contents)
    if max_lag is not None:
        check(rows, max_lag)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a checkpoint stands in a partition. `waiting`: its given start was past the log's end when it was last planned."""

    stream: int
    topic: str
    partition: int
    completed: int
    next: int
    waiting: bool


@dataclass(frozen=True, slots=True)
class Row:
    """The same, and the log's end now."""

    at: Standing
    end: int

    @property
    def name(self) -> str:
        return f"{self.at.topic}/{self.at.partition}"

    @property
    def lag(self) -> int:
        """Negative when the log is shorter than what was read of it."""
        return self.end - self.at.completed

    @property
    def unplanned(self) -> int:
        return self.end - self.at.next

    @property
    def note(self) -> str:
        if self.unplanned >= 0:
            return ""
        return WAITING if self.at.waiting else SHORTER


def standing_of(contents: LogContents) -> list[Standing]:
    """Every partition of the newest plan of every Kafka stream, in order. Pure.

    A batch that was given up does not run again, so it holds nothing back.
    """
    found: list[Standing] = []
    for stream in sorted({number for plan in contents.plans.values() for number in plan.inputs}):
        newest = contents.newest_data(stream)
        data: dict[str, Any] = newest[1] if newest else {}
        unfinished = _lowest_unfinished(contents, stream)
        ahead = {(str(topic), int(number)) for topic, number in data.get("ahead", ())}
        for topic, number, _, until in sorted(kafka_ranges(data) or []):
            completed = min(until, unfinished.get((topic, number), until))
            found.append(Standing(stream, topic, number, completed, until, (topic, number) in ahead))
    return found


def _lowest_unfinished(contents: LogContents, stream: int) -> dict[tuple[str, int], int]:
    """(topic, partition) → where the range of the oldest unfinished batch begins that has this partition."""
    found: dict[tuple[str, int], int] = {}
    for time in contents.pending:
        for topic, number, begin, _ in kafka_ranges(contents.plans[time].inputs.get(stream, {})) or []:
            found.setdefault((topic, number), begin)
    return found


def params_of(store: FileStore, standing: list[Standing], given: _Params) -> dict[int, tuple[_Params, _Params]]:
    """Stream id → parameters stored and given. Ends the program if a stream has neither stored nor given brokers."""
    stored = stored_params(store)
    streams = sorted({at.stream for at in standing})
    for stream in streams:
        if stream not in stored and not names_brokers(given):
            fail(
                f"{store.url} stores no Kafka parameters of stream {stream} (a parameter may hold a secret, untilOffsets is a "
                "moment or offsets, or an older kstream wrote the checkpoint): give --bootstrap HOST:PORT, and what else the brokers "
                "ask for by --param or --params-file"
            )
    return {stream: (stored.get(stream, {}), given) for stream in streams}


def with_ends(standing: list[Standing], params: Mapping[int, tuple[_Params, _Params]]) -> list[Row]:
    """Asks Kafka where the logs end, once for all streams of the same parameters. Blocks; raises the connector's errors."""
    log_ends = connectors.load("kafka").log_ends
    alike: dict[str, set[tuple[str, int]]] = {}
    for at in standing:
        alike.setdefault(_key(params[at.stream]), set()).add((at.topic, at.partition))
    ends = {key: log_ends(*json.loads(key), sorted(partitions)) for key, partitions in alike.items()}
    return [Row(at, ends[_key(params[at.stream])][at.topic, at.partition]) for at in standing]


def _key(params: tuple[_Params, _Params]) -> str:
    return json.dumps([dict(p) for p in params], sort_keys=True)


def check(rows: list[Row], max_lag: int) -> None:
    """Ends the program with a sentence when a partition is further behind, or its lag cannot be told."""
    over = [row for row in rows if row.lag > max_lag]
    short = [row for row in rows if row.note == SHORTER]
    if over:
        most = max(over, key=lambda row: row.lag)
        others = f", and {count(len(over) - 1, 'other partition')} too" if len(over) > 1 else ""
        fail(f"{most.name} is {count(most.lag, 'record')} behind, above --max-lag {max_lag}{others}")
    if short:
        row = short[0]
        fail(f"{row.name} ends at {row.end}, before {row.at.next}, the next offset to read: the topic was truncated or made anew")


# -- for people and as JSON


def totals(rows: list[Row]) -> list[dict[str, Any]]:
    """Per stream and topic, in order. A log shorter than read counts as nothing to do, not as less than nothing."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for row in rows:
        key = (row.at.stream, row.at.topic)
        total = found.setdefault(key, {"stream": key[0], "topic": key[1], "partitions": 0, "unplanned": 0, "lag": 0})
        total["partitions"] += 1
        total["unplanned"] += max(0, row.unplanned)
        total["lag"] += max(0, row.lag)
    return [found[key] for key in sorted(found)]


def as_data(url: str, rows: list[Row], contents: LogContents) -> dict[str, Any]:
    """All of it as JSON values; `given_up` are batch times in ms."""
    partitions = [
        {
            "stream": row.at.stream, "topic": row.at.topic, "partition": row.at.partition, "completed": row.at.completed,
            "next": row.at.next, "log_end": row.end, "unplanned": row.unplanned, "lag": row.lag, "note": row.note,
        }
        for row in rows
    ]  # fmt: skip
    given_up = [time.milliseconds for time in sorted(contents.given_up)]
    return {"path": url, "partitions": partitions, "topics": totals(rows), "given_up": given_up}


def _print(url: str, rows: list[Row], contents: LogContents) -> None:
    console = Console(highlight=False, soft_wrap=False)
    console.print(f"[bold]{escape(url)}[/bold]")
    right = {"completed", "next", "log end", "unplanned", "lag"}
    table = Table()
    for head in ("stream", "partition", "completed", "next", "log end", "unplanned", "lag", "note"):
        table.add_column(head, justify="right" if head in right else "left")
    for row in rows:
        at = row.at
        table.add_row(str(at.stream), escape(row.name), *map(str, (at.completed, at.next, row.end, row.unplanned, row.lag)), row.note)
    console.print(table)
    topics = totals(rows)
    for total in topics:
        words = f"{count(total['lag'], 'record')} behind, {total['unplanned']} of them in no batch yet"
        console.print(escape(f"stream {total['stream']}, {total['topic']}: {words if total['lag'] else 'nothing is behind'}"))
    if contents.given_up:
        console.print(f"{count(len(contents.given_up), 'kept batch')} given up: its records are not waited for")
