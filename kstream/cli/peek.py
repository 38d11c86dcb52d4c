"""`kstream peek`: the records of a batch, or those from an offset on, as their producers wrote them. Needs neither Java nor pyspark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from kstream.batch import BatchPlan
from kstream.batch_time import Time
from kstream.checkpoint import LogContents, read_log
from kstream.checkpoint.history import read_history
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import (
    Connections,
    PlanData,
    connection_options,
    newest_plans,
    open_existing,
    parse_place,
    systems,
    tools_of,
)
from kstream.cli.record_text import FORMATS, MOST_BYTES, TEXT, lines_of
from kstream.cli.terminal import clear_errors, count, echo, fail, parse_moment
from kstream.connectors import ConnectorTools, LogRecord
from kstream.errors import ConfigurationError
from kstream.offsets.offset_range import PlannedRange, UnreadableRange
from kstream.storage import FileStore

RECORDS = 5
"""The number of records that are shown by default."""


@click.command("peek")
@click.argument("path")
@click.option("--batch", "moment", metavar="TIME", help="The records of this batch: ms, an ISO time, -2h or now.")
@click.option("--offset", "place", metavar="TOPIC-P@N", help="The record at this offset, and those after it.")
@click.option("-n", "most", type=click.IntRange(min=1), default=RECORDS, show_default=True, help="The most records.")
@click.option("--format", "form", type=click.Choice(FORMATS), default=TEXT, show_default=True, help="json: one object a line.")
@click.option(
    "--max-bytes",
    type=click.IntRange(min=0),
    help=f"Cut keys, values and headers that are longer; 0: never. Default: {MOST_BYTES}, in JSON never.",
)
@connection_options
def peek_command(
    path: str,
    moment: str | None,
    place: str | None,
    most: int,
    form: str,
    max_bytes: int | None,
    bootstrap: str | None,
    params: tuple[str, ...],
    params_file: str | None,
) -> None:
    """Print records of a stream's log: place, timestamp, key, headers and value. Nothing is committed, no driver is disturbed.

    --batch shows the first records of a batch, by the exact ranges of its plan. --offset shows the record that an error names:
    `kstream peek PATH --offset orders-0@12 -n 1`. The checkpoint stores the parameters of a connection, unless they may hold a secret.
    Parameters that are given here win.

    The exit code is 3 if the checkpoint cannot be read, if the brokers do not answer, or if a record is gone from its log.
    """
    if (moment is None) == (place is None):
        raise click.UsageError("give --batch TIME or --offset TOPIC-P@N")
    with clear_errors(code=ReadingCode.UNREADABLE):
        store = open_existing(path)
        contents = read_log(store)
        wanted = _of_batch(store, contents, moment) if moment is not None else [_from_offset(store, contents, str(place))]
        connections = Connections(store, bootstrap, params, params_file)
        first = wanted[0].ranges[0].begin if place is not None else None
        gone = _print(_records(wanted, connections), most, form, max_bytes, first)
    if gone:
        lost, others = gone[0], f", and {count(len(gone) - 1, 'other range')} too" if len(gone) > 1 else ""
        offsets = f"{lost.topic}-{lost.partition} [{lost.begin}, {lost.until})"
        fail(f"{offsets} cannot be shown: {lost.reason}{others}", ReadingCode.UNREADABLE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The ranges of one stream to read.

    Attributes:
        stream: the number of the stream.
        tools: those of its connector.
        data: plan data of the stream.
        ranges: the ranges. The last offset is the end of the log if `is_open`.
        is_open: whether the end of the range is not known yet.
    """

    stream: int
    tools: ConnectorTools
    data: PlanData
    ranges: list[PlannedRange]
    is_open: bool = False


def _of_batch(store: FileStore, contents: LogContents, moment: str) -> list[Wanted]:
    """Return the ranges of a batch. ConfigurationError if its plan is not kept, or has no ranges."""
    at = Time(parse_moment(moment, round(time.time() * 1000)))
    plan = _plan_of(store, contents, at, moment)
    wanted = [
        Wanted(number, known, data, [r for r in sorted(known.ranges(data) or ()) if r.begin < r.until])
        for number, data in sorted(plan.inputs.items())
        if (known := tools_of(data)) is not None
    ]
    if not wanted and plan.inputs:
        text = f"batch {at} of {store.url} has no stream of a {systems()} log: `kstream checkpoint show` shows its plan"
        raise ConfigurationError(text, key="batch", value=moment)
    if not any(of.ranges for of in wanted):
        raise ConfigurationError(f"batch {at} of {store.url} has no offsets: its ranges are empty", key="batch", value=moment)
    return wanted


def _plan_of(store: FileStore, contents: LogContents, at: Time, moment: str) -> BatchPlan:
    """Return the plan of a batch, from the log or the history. ConfigurationError if there is none."""
    plan = contents.plans.get(at)
    if plan is None:
        plan = next((past.plan for past in read_history(store, at, at)), None)
    if plan is None:
        kept = f"its log has batches {min(contents.plans)} to {max(contents.plans)}" if contents.plans else "its log has no plan"
        text = f"{store.url} has no plan of batch {at}: {kept}; `kstream history` shows older batches that are kept"
        raise ConfigurationError(text, key="batch", value=moment)
    return plan


def _from_offset(store: FileStore, contents: LogContents, place: str) -> Wanted:
    """Return a range from an offset on, of the stream that reads its partition. ConfigurationError if none does."""
    topic, partition, offset = parse_place(place)
    known_partitions: set[str] = set()
    for number, data in newest_plans(contents).items():
        known = tools_of(data)
        if known is None:
            continue
        partitions = {(r.topic, r.partition) for r in known.ranges(data) or ()}
        if (topic, partition) in partitions:
            return Wanted(number, known, data, [PlannedRange(topic, partition, offset, offset + 1)], is_open=True)
        known_partitions |= {name for name, _ in partitions}
    reads = f"they read {', '.join(sorted(known_partitions))}" if known_partitions else f"none is of a {systems()} log"
    raise ConfigurationError(f"no stream of {store.url} reads {topic}-{partition}: {reads}", key="offset", value=place)


def _records(wanted: list[Wanted], connections: Connections) -> Iterator[LogRecord | UnreadableRange]:
    """Yield the records of all streams. Lazy; blocks on the brokers. ConfigurationError for an offset after the end of its log."""
    for of in wanted:
        if not of.ranges:
            continue
        connection = connections.parameters_of(of.stream, of.tools)
        ranges = [_up_to_the_end(of, connection)] if of.is_open else of.ranges
        yield from of.tools.read_records(connection, of.data, ranges)


def _up_to_the_end(of: Wanted, connection: dict[str, Any]) -> PlannedRange:
    """Return the range of `of` with the end of its log. Asks the brokers."""
    (topic, partition, offset, _) = of.ranges[0]
    end = of.tools.log_ends(connection, [(topic, partition)])[topic, partition]
    if offset >= end:
        text = f"{topic}-{partition} ends at {end}: there is no offset {offset} yet"
        raise ConfigurationError(text, key="offset", value=offset)
    return PlannedRange(topic, partition, offset, end)


def _print(
    found: Iterator[LogRecord | UnreadableRange], most: int, form: str, max_bytes: int | None, first: int | None
) -> list[UnreadableRange]:
    """Print the first records. Return the ranges before and between them that cannot be read.

    Args:
        found: the records.
        most: the most records to print.
        form, max_bytes: as of `lines_of`.
        first: the offset that the user gave; None for none.
    """
    gone: list[UnreadableRange] = []
    shown = 0
    for entry in found:
        if isinstance(entry, UnreadableRange):
            gone.append(entry)
            continue
        if not shown and not gone and first is not None and entry.offset > first:
            echo(f"no record at offset {first}: compaction or a transaction has left a gap; the next ones follow", err=True)
        for line in lines_of(entry, form, max_bytes):
            echo(line)
        shown += 1
        if shown == most:
            break
    if not shown and not gone:
        echo("no record: compaction or transactions have left gaps only", err=True)
    return gone
