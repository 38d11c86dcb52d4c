"""`kstream offsets show | reset | rewind`: the offsets of the streams of a checkpoint, and commands that set them.

`import` is in `offsets_import`. The commands need neither Java nor pyspark. A change is a plan of its own epoch that reads nothing. It
fences a running driver, and the next driver continues from it. Pending batches keep their ranges and run again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kstream.batch import InputOutcome
from kstream.batch_time import Time
from kstream.checkpoint import LogContents, read_log
from kstream.checkpoint.history import read_history
from kstream.checkpoint.offline import Places, move_streams
from kstream.checkpoint.reader import StartedLog, read_started_log
from kstream.checkpoint.sign_of_life import WAIT_S, find_driver
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import (
    CheckpointOffsets,
    Connections,
    PlanData,
    connection_options,
    holds_query,
    kept_offsets,
    newest_plans,
    note_inputs_without_ranges,
    offsets_of,
    open_existing,
    ranges_of,
    systems,
    tools_of,
)
from kstream.cli.query import print_offsets, read_query
from kstream.cli.query_offsets import reset_query, rewind_query
from kstream.cli.terminal import clear_errors, count, echo, fail, parse_moment, table_console, utc_text
from kstream.connectors import ConnectorTools, OffsetChange, ResetResult
from kstream.storage import FileStore, prepare_to_write

BUSY_INTERVALS = 3
"""A driver seems to run if the last batch of the checkpoint is less than this many intervals old."""
_path = click.argument("path")
topic_option = click.option("--topic", "topics", multiple=True, help="Only this topic; may be given several times.")
stream_option = click.option("--stream", type=click.IntRange(min=0), help="Only this stream (by its id, see show).")
source_option = click.option("--source", metavar="N", help="Only this source of a query (its number or name, see show).")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
take_over_option = click.option("--take-over", is_flag=True, help="Change even if a driver seems to run: it is fenced and stops.")
Choose = Callable[[LogContents], "dict[int, ResetResult]"]
"""Returns the new offsets by stream number, from the content of a checkpoint."""


@click.group("offsets")
def offsets_commands() -> None:
    """See and set the next offsets of the streams of a checkpoint."""


@offsets_commands.command()
@_path
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def show(path: str, as_json: bool) -> None:
    """Show the next offset of every partition, and the offset up to which all batches are completed.

    Offsets of topics that have left the list of a stream are shown, too: the stream continues there when the topic is in its list again.
    PATH may also be the checkpointLocation of a query of Structured Streaming.
    """
    with clear_errors(code=ReadingCode.UNREADABLE):
        store = open_existing(path, or_query=True)
        if holds_query(store):
            print_offsets(read_query(store), as_json)
            return
        contents = read_log(store)
        rows = offsets_of(contents)
    if as_json:
        echo(json.dumps(_as_data(store.url, contents, rows), indent=2))
    else:
        _print_offsets(store.url, contents, rows)


@offsets_commands.command()
@_path
@click.option("--to", required=True, help="earliest, latest, -2h, -1000 (records before the end), an ISO time, or a .json file.")
@topic_option
@stream_option
@source_option
@dry_run_option
@take_over_option
@connection_options
def reset(
    path: str,
    to: str,
    topics: tuple[str, ...],
    stream: int | None,
    source: str | None,
    dry_run: bool,
    take_over: bool,
    bootstrap: str | None,
    params: tuple[str, ...],
    params_file: str | None,
) -> None:
    """Set a stream to other offsets, which the brokers look up.

    A .json file holds {"topic": {"0": 5, "1": "latest"}}: only those partitions move. A topic that was deleted and recreated is taken as
    it is now. Skipped offsets go to the ledger. Pending batches run again with their own ranges.

    PATH may also be the checkpointLocation of a query of Structured Streaming. The last batch must be committed,
    and the query must have no state. The change is a batch without records, which is committed. A query that runs nevertheless ends with
    an error at its next batch. Give --bootstrap, since the checkpoint stores no brokers.
    """
    with clear_errors():
        store = open_existing(path, or_query=True)
        wanted = _position(to)
        named = tuple(wanted) if isinstance(wanted, dict) else topics
        if _holds_query(store, stream, source):
            reset_query(store, wanted, named, source, (bootstrap, params, params_file), _now_ms(), dry_run, take_over)
            return
        connections = Connections(store, bootstrap, params, params_file)
        reset_streams(store, wanted, named, stream, connections, dry_run, take_over)


@offsets_commands.command()
@_path
@click.option("--to", required=True, help="A batch time: ms since the epoch, an ISO time, or -2h.")
@topic_option
@stream_option
@source_option
@dry_run_option
@take_over_option
def rewind(path: str, to: str, topics: tuple[str, ...], stream: int | None, source: str | None, dry_run: bool, take_over: bool) -> None:
    """Set a stream back to the beginning of an earlier batch; all later records are read again, in new batches.

    The batch is the first at or after the time. Partitions that it did not have stay where they are. No broker is
    asked. spark.streaming.kstream.history limits how far back one can go.

    PATH may also be the checkpointLocation of a query of Structured Streaming, as with reset. How far back one can go there,
    spark.sql.streaming.minBatchesToRetain limits.
    """
    with clear_errors():
        store = open_existing(path, or_query=True)
        moment = Time(parse_moment(to, _now_ms()))
        if _holds_query(store, stream, source):
            rewind_query(store, moment.milliseconds, topics, source, _now_ms(), dry_run, take_over)
            return

        def choose(contents: LogContents) -> dict[int, ResetResult]:
            moved: dict[int, ResetResult] = {}
            for number, (known, data) in _chosen_streams(contents, stream, topics).items():
                then = _plan_at_or_after(store, contents, number, moment)
                if then is None:
                    fail(f"{store.url} holds no batch of stream {number} at or after {moment.milliseconds} ms")
                moved[number] = known.rewind(data, then, _read_of(data, topics))
            return moved

        _change(store, choose, dry_run, take_over)


def reset_streams(
    store: FileStore, wanted: Any, topics: tuple[str, ...], stream: int | None, connections: Connections, dry_run: bool, take_over: bool
) -> None:
    """Set streams to other offsets, which the brokers look up. Prints the changes. Blocks on brokers and store.

    End the program if the options choose no stream, or if a driver seems to run.

    Args:
        store: the checkpoint.
        wanted: one position for all partitions, or `{"topic": {"0": position}}`.
        topics: the topics to move; empty for all.
        stream: the number of the stream; None for all that read the topics.
        connections: the parameters of the brokers.
        dry_run: only show the change.
        take_over: make the change even if a driver seems to run.

    Raises:
        KStreamError: as `_change`, and an error of the connector.
    """

    def choose(contents: LogContents) -> dict[int, ResetResult]:
        moved: dict[int, ResetResult] = {}
        for number, (known, data) in _chosen_streams(contents, stream, topics).items():
            read = _read_of(data, topics)
            here = {topic: wanted[topic] for topic in read} if isinstance(wanted, dict) else wanted
            moved[number] = known.reset(connections.parameters_of(number, known), data, here, read)
        return moved

    _change(store, choose, dry_run, take_over)


def _holds_query(store: FileStore, stream: int | None, source: str | None) -> bool:
    """Return whether a store is the checkpoint of a query. UsageError if an option chooses what the other kind has. Blocks on the store."""
    is_query = holds_query(store)
    if is_query and stream is not None:
        raise click.UsageError("a query has no streams: choose one of its sources by --source")
    if not is_query and source is not None:
        raise click.UsageError("a checkpoint of kstream has no sources: choose one of its streams by --stream")
    return is_query


def _now_ms() -> int:
    """Return the machine's time in ms since the epoch."""
    return round(time.time() * 1000)


def _position(to: str) -> Any:
    """Return the text of `--to`, or the content of the .json file that it names. End the program if the file cannot be read."""
    if not to.endswith(".json"):
        return to
    try:
        found = json.loads(Path(to).read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        fail(f"{to} cannot be read: {e.strerror if isinstance(e, OSError) else f'it is not JSON: {e}'}")
    if not isinstance(found, dict):
        fail(f'{to} holds no object of topics and partitions: write {{"topic": {{"0": 5}}}}')
    return found


# -- which streams


def _settable_streams(contents: LogContents) -> dict[int, tuple[ConnectorTools, PlanData]]:
    """Return by number the streams whose connector offers tools, with their newest plan data."""
    newest = newest_plans(contents).items()
    return {number: (known, data) for number, data in newest if (known := tools_of(data)) is not None}


def _chosen_streams(contents: LogContents, stream: int | None, topics: tuple[str, ...]) -> dict[int, tuple[ConnectorTools, PlanData]]:
    """Return by number the streams that the options choose, with the tools of their connectors and their newest plan data.

    End the program if a topic is not read now, or if the options choose no stream.

    Args:
        contents: the content of the checkpoint.
        stream: the number of the stream; None for all.
        topics: the topics; empty for all.
    """
    settable = _settable_streams(contents)
    kept = [(at, f"{topic}/{n}") for number, topic, n, at in kept_offsets(contents) if topic in topics and stream in (None, number)]
    if kept:
        fail(
            f"the stream does not read {', '.join(f'{place} (kept offset {at})' for at, place in kept)} now, and kept offsets cannot be "
            "set. Start the job with the topic in its list, stop it, and set the offsets then"
        )
    read = {r.topic for _, data in settable.values() for r in ranges_of(data) or ()}
    if stray := sorted(set(topics) - read):
        reads = ", ".join(sorted(read)) or f"no {systems()} topic"
        fail(f"no stream of this checkpoint reads {', '.join(map(repr, stray))}; they read {reads}")
    meant = {n: found for n, found in settable.items() if stream in (None, n) and (not topics or _read_of(found[1], topics))}
    if not meant:
        has = sorted(settable) or "none"
        fail(f"the options choose no {systems()} stream of this checkpoint; it has the streams {has}: see `kstream offsets show`")
    return meant


def _read_of(data: PlanData, topics: tuple[str, ...]) -> list[str]:
    read = {r.topic for r in ranges_of(data) or ()}
    return [topic for topic in topics if topic in read]


def _plan_at_or_after(store: FileStore, contents: LogContents, stream: int, moment: Time) -> PlanData | None:
    """Return the plan data of a stream in its first batch at or after the moment, from history and log; None if there is none."""
    past = [(b.plan.time, b.plan) for b in read_history(store, moment)]
    later = sorted([*past, *((t, p) for t, p in contents.plans.items() if t >= moment)], key=lambda found: found[0])
    return next((plan.inputs[stream] for _, plan in later if stream in plan.inputs), None)


# -- the change


def _change(store: FileStore, choose: Choose, dry_run: bool, take_over: bool) -> None:
    """Print the changes that `choose` finds, and store them as one plan unless this is a dry run. Blocks on the store.

    End the program if a driver seems to run. `choose` is called again after the next epoch is taken, and the second result counts: from
    then on no other driver can plan. Streams that `choose` leaves out keep their offsets by an empty plan.

    Args:
        store: the checkpoint.
        choose: finds the new offsets.
        dry_run: only show the change.
        take_over: make the change even if a driver seems to run; that driver is fenced.

    Raises:
        UnsupportedStoreError: two drivers could overwrite each other's files in the store.
        FencedError: a driver has started meanwhile.
        CorruptRecordError: a record is damaged.
        StorageError: the store failed.
        KStreamError: an error of `choose`.
    """
    log = read_started_log(store)
    contents = log.contents
    changes = [(number, change) for number, found in choose(contents).items() for change in found.changes]
    if not changes:
        echo("every partition is there already: nothing to change")
        return
    _print_changes(changes, contents)
    if dry_run:
        echo("dry run: nothing was changed")
        return
    _refuse_if_busy(store, log, take_over)
    prepare_to_write(store, single_writer=False)

    def places(now: LogContents) -> Places:
        chosen = choose(now)
        at_rest = {number: known.empty_plan_at(data) for number, (known, data) in _settable_streams(now).items()}
        inputs: dict[int, PlanData] = {number: data for number, data in at_rest.items() if data is not None}
        inputs.update({number: found.data for number, found in chosen.items()})
        return inputs, {number: InputOutcome((), found.skipped) for number, found in chosen.items() if found.skipped}

    at, _ = move_streams(store, _now_ms(), places)
    echo(f"set, as batch {at.milliseconds} ms: the next driver continues from there")


def _refuse_if_busy(store: FileStore, log: StartedLog, take_over: bool) -> None:
    """End the program if a driver seems to run and `take_over` is false.

    Its status record tells it. Without one (an older kstream has written the checkpoint), or if the driver was killed, the age of its last
    plan does. Blocks on the store, and waits for a renewal before a driver is called dead.
    """
    if take_over:
        return
    found = find_driver(store, WAIT_S)
    if found.living is not None:
        status = found.living
        fail(
            f"the driver of epoch {status.epoch} runs on {store.url} ({status.host}, pid {status.pid}): stop it (`kstream stop "
            f"{store.url}`), or give --take-over (it is then fenced: it ends with FencedError and submits nothing more)"
        )
    if found.end()[0] == "ended":
        return
    age = _now_ms() - max(log.contents.plans).milliseconds
    if age < BUSY_INTERVALS * log.meta.interval.milliseconds:
        fail(
            f"a driver planned a batch of {store.url} {max(age, 0)} ms ago and seems to run: stop it and try again after "
            f"{BUSY_INTERVALS} batch intervals, or give --take-over (it is then fenced: it ends with FencedError and submits nothing more)"
        )


# -- for people and as JSON


def _as_data(url: str, contents: LogContents, rows: list[CheckpointOffsets]) -> dict[str, Any]:
    """Return the offsets as JSON values; times in ms since the epoch."""
    last = contents.last_planned
    partitions = [
        {"stream": r.stream, "topic": r.topic, "partition": r.partition, "completed": r.completed, "next": r.next, "waiting": r.waiting}
        for r in rows
    ]
    pending = [t.milliseconds for t in contents.pending]
    kept = [{"stream": stream, "topic": topic, "partition": n, "next": at} for stream, topic, n, at in kept_offsets(contents)]
    last_ms = None if last is None else last.milliseconds
    return {"path": url, "last_batch": last_ms, "pending": pending, "partitions": partitions, "kept": kept}


def _print_offsets(url: str, contents: LogContents, rows: list[CheckpointOffsets]) -> None:
    console = table_console()
    console.print(f"[bold]{escape(url)}[/bold]")
    table = Table("stream", "partition", "completed", "next", "in unfinished batches")
    for row in rows:
        unfinished = row.next - row.completed
        table.add_row(str(row.stream), escape(f"{row.topic}/{row.partition}"), str(row.completed), str(row.next), str(unfinished or ""))
    console.print(table)
    note_inputs_without_ranges(contents, "offsets")
    _print_kept(console, contents)
    last = contents.last_planned
    if last is not None:
        console.print(
            f"after batch {last.milliseconds} ms ({utc_text(last.milliseconds)} UTC), {count(len(contents.pending), 'pending batch')}"
        )


def _print_kept(console: Console, contents: LogContents) -> None:
    """Print the kept offsets as a table, if there are any."""
    kept = kept_offsets(contents)
    if kept:
        console.print("kept offsets, of topics that are not in the list of the stream now:")
        table = Table("stream", "partition", "next")
        for stream, topic, partition, at in kept:
            table.add_row(str(stream), escape(f"{topic}/{partition}"), str(at))
        console.print(table)


def _print_changes(changes: list[tuple[int, OffsetChange]], contents: LogContents) -> None:
    """Print the changes as a table, with sentences about kept offsets and pending batches."""
    console = table_console()
    table = Table("stream", "partition", "next now", "next then", "change", "")
    for number, change in changes:
        old, new = ("" if at is None else str(at) for at in (change.old, change.new))
        table.add_row(str(number), escape(f"{change.topic}/{change.partition}"), old, new, _difference(change), escape(change.note))
    console.print(table)
    for number, topic, partition, at in kept_offsets(contents):
        place = f"{topic}/{partition} (stream {number}, at {at})"
        console.print(escape(f"the kept offset of {place} stays: the topic is not in the stream's list now"))
    if contents.pending:
        console.print(f"{count(len(contents.pending), 'pending batch')} will run again with the ranges planned for them")


def _difference(change: OffsetChange) -> str:
    """Return the distance of a change in records, for a table."""
    if change.new is None:
        return "gone"
    return "new" if change.old is None else f"{change.new - change.old:+d}"
