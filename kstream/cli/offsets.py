"""`kstream offsets show | reset | rewind`: where the Kafka streams of a checkpoint stand, and setting them elsewhere.

Needs neither Java nor pyspark. A change is a plan of its own epoch that reads nothing: a driver that runs is fenced by it, and one
that starts goes on from it. What is pending keeps its ranges and runs again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kstream import connectors
from kstream.batch import InputOutcome
from kstream.batch_time import Time
from kstream.checkpoint import LogContents, read_log
from kstream.checkpoint.binding import names_of, rebound
from kstream.checkpoint.history import read_history
from kstream.checkpoint.reader import has_checkpoint
from kstream.checkpoint.takeover import Places, move_streams
from kstream.cli.errors import clear_errors, fail
from kstream.cli.kafka_params import given_params, names_brokers, stored_params
from kstream.cli.lag import Standing, standing_of
from kstream.cli.moments import parse_moment
from kstream.cli.ranges import kafka_ranges
from kstream.cli.words import count
from kstream.storage import FileStore, open_store

BUSY_INTERVALS = 3
"""A checkpoint whose last batch is no older than so many intervals seems to have a driver."""
_path = click.argument("path")
_topic = click.option("--topic", "topics", multiple=True, help="Only this topic; may be given several times.")
_stream = click.option("--stream", type=click.IntRange(min=0), help="Only this stream (by its id, see show).")
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
_take_over = click.option("--take-over", is_flag=True, help="Also where a driver seems to run: it is fenced and stops.")
Choose = Callable[[LogContents], "dict[int, Any]"]


@click.group("offsets")
def offsets_commands() -> None:
    """See and set where a checkpoint's Kafka streams go on."""


@offsets_commands.command()
@_path
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def show(path: str, as_json: bool) -> None:
    """Show the next offset of every partition, and how far all before it is completed.

    Offsets of partitions that have left a stream's list are shown, too: the stream goes on from them when the list has them again.
    """
    with clear_errors():
        store = _opened(path)
        contents = read_log(store)
        rows = standing_of(contents)
    if as_json:
        click.echo(json.dumps(_as_data(store.url, contents, rows), indent=2))
    else:
        _print_standing(store.url, contents, rows)


@offsets_commands.command()
@_path
@click.option("--to", required=True, help="earliest, latest, -2h, -1000 (records before the end), an ISO time, or a .json file.")
@_topic
@_stream
@_dry_run
@_take_over
@click.option("--bootstrap", metavar="HOST:PORT", help="The brokers, where the checkpoint does not store them or they have moved.")
@click.option("--param", "params", multiple=True, metavar="KEY=VALUE", help="A Kafka parameter; may be given several times.")
@click.option("--params-file", metavar="FILE", help="Kafka parameters, as .json or .properties; the place for secrets.")
def reset(
    path: str, to: str, topics: tuple[str, ...], stream: int | None, dry_run: bool, take_over: bool, bootstrap: str | None,
    params: tuple[str, ...], params_file: str | None,
) -> None:  # fmt: skip
    """Set a stream to other offsets, as Kafka has them now.

    A .json file holds {"topic": {"0": 5, "1": "latest"}}: just those partitions move. A topic that was deleted and made anew is
    taken as it is now. Offsets that are skipped go to the ledger. Batches that are pending run again with their own ranges.
    """
    with clear_errors():
        store = _opened(path)
        given, wanted = given_params(bootstrap, params, params_file), _position(to)
        named = tuple(wanted) if isinstance(wanted, dict) else topics
        kafka = connectors.load("kafka")
        stored = stored_params(store)

        def choose(contents: LogContents) -> dict[int, Any]:
            moved: dict[int, Any] = {}
            for number, data in _streams(contents, stream, named).items():
                read = _read_of(data, named)
                if number not in stored and not names_brokers(given):
                    fail(f"{store.url} stores no Kafka parameters of stream {number}: give --bootstrap HOST:PORT or --params-file FILE")
                here = {topic: wanted[topic] for topic in read} if isinstance(wanted, dict) else wanted
                moved[number] = kafka.reset_offsets(stored.get(number, {}), given, data, here, read)
            return moved

        _change(store, choose, dry_run, take_over)


@offsets_commands.command()
@_path
@click.option("--to", required=True, help="A batch time: ms since the epoch, an ISO time, or -2h.")
@_topic
@_stream
@_dry_run
@_take_over
def rewind(path: str, to: str, topics: tuple[str, ...], stream: int | None, dry_run: bool, take_over: bool) -> None:
    """Set a stream back to where it stood before a batch of its history; what came since is read again, in new batches.

    The batch is the first at or after the time. Asks no broker; how far back the history goes is spark.streaming.kstream.history.
    """
    with clear_errors():
        store = _opened(path)
        moment = Time(parse_moment(to, _now_ms()))
        kafka = connectors.load("kafka")

        def choose(contents: LogContents) -> dict[int, Any]:
            moved: dict[int, Any] = {}
            for number, data in _streams(contents, stream, topics).items():
                then = _plan_at_or_after(store, contents, number, moment)
                if then is None:
                    fail(f"{store.url} holds no batch of stream {number} at or after {moment.milliseconds} ms")
                moved[number] = kafka.rewound_offsets(data, then, _read_of(data, topics))
            return moved

        _change(store, choose, dry_run, take_over)


def _opened(path: str) -> FileStore:
    store = open_store(path)
    if not has_checkpoint(store):
        fail(f"there is no checkpoint in {store.url}: no stream has started there")
    return store


def _now_ms() -> int:
    return round(time.time() * 1000)


def _position(to: str) -> Any:
    """The text, or what the .json file of that name holds."""
    if not to.endswith(".json"):
        return to
    try:
        found = json.loads(Path(to).read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        fail(f"{to} cannot be read: {e.strerror if isinstance(e, OSError) else f'it is not JSON: {e}'}")
    if not isinstance(found, dict):
        fail(f'{to} holds no object of topics and partitions: write {{"topic": {{"0": 5}}}}')
    return found


def _streams(contents: LogContents, stream: int | None, topics: tuple[str, ...]) -> dict[int, Mapping[str, Any]]:
    """Stream id → newest plan data, of the Kafka streams that are meant. Ends the program when there are none."""
    numbers = sorted({number for plan in contents.plans.values() for number in plan.inputs})
    newest: dict[int, Mapping[str, Any]] = {n: found[1] for n in numbers if (found := contents.newest_data(n)) is not None}
    kafka = {number: data for number, data in newest.items() if kafka_ranges(data) is not None}
    read = {topic for data in kafka.values() for topic, _, _, _ in kafka_ranges(data) or ()}
    if away := [(at, place) for number, topic, place, at in kept_offsets(contents) if topic in topics and stream in (None, number)]:
        fail(
            f"the stream does not read {', '.join(f'{place} (kept offset {at})' for at, place in away)} now, and kept offsets cannot be "
            "set. Start the job with the topic in its list, stop it, and set the offsets then"
        )
    if stray := sorted(set(topics) - read):
        fail(f"no stream of this checkpoint reads {', '.join(map(repr, stray))}; they read {', '.join(sorted(read)) or 'nothing of Kafka'}")
    meant = {number: data for number, data in kafka.items() if stream in (None, number) and (not topics or _read_of(data, topics))}
    if not meant:
        fail(f"no Kafka stream of this checkpoint is meant; it has the streams {sorted(kafka) or 'none'}: see `kstream offsets show`")
    return meant


def kept_offsets(contents: LogContents) -> list[tuple[int, str, str, int]]:
    """Stream id, topic, partition (`orders/0`) and next offset of what is kept besides the newest plans, in order. Pure."""
    begun = [plan for plan in contents.plans.values() if not plan.void]
    if contents.kept is None or not begun:
        return []
    now = rebound(contents, names_of(max(begun, key=lambda plan: plan.time)))
    found: list[tuple[int, str, str, int]] = []
    for number, kept in sorted(now.kept.inputs.items() if now.kept is not None else ()):
        newest = now.newest_data(number)
        planned = {(topic, partition) for topic, partition, _, _ in kafka_ranges(newest[1] if newest else {}) or ()}
        rows = sorted(kafka_ranges(kept) or ())
        found += [(number, topic, f"{topic}/{partition}", at) for topic, partition, _, at in rows if (topic, partition) not in planned]
    return found


def _read_of(data: Mapping[str, Any], topics: tuple[str, ...]) -> list[str]:
    """Those of the topics that this stream reads."""
    read = {topic for topic, _, _, _ in kafka_ranges(data) or ()}
    return [topic for topic in topics if topic in read]


def _plan_at_or_after(store: FileStore, contents: LogContents, stream: int, moment: Time) -> Mapping[str, Any] | None:
    past = [(b.plan.time, b.plan) for b in read_history(store, moment)]
    later = sorted([*past, *((t, p) for t, p in contents.plans.items() if t >= moment)], key=lambda found: found[0])
    return next((plan.inputs[stream] for _, plan in later if stream in plan.inputs), None)


def _change(store: FileStore, choose: Choose, dry_run: bool, take_over: bool) -> None:
    """Shows the change and, unless it is a dry run, makes it: chosen again once no driver can plan any more."""
    contents = read_log(store)
    moved = choose(contents)
    moves = [(number, move) for number, found in moved.items() for move in found.moves]
    if not moves:
        click.echo("every partition stands there already: nothing to change")
        return
    _print_moves(moves, contents)
    if dry_run:
        click.echo("dry run: nothing was changed")
        return
    _refuse_if_busy(store, contents, take_over)

    def places(now: LogContents) -> Places:
        chosen = choose(now)
        kafka = connectors.load("kafka")
        inputs = {number: kafka.standing_still(data) for number, data in _streams(now, None, ()).items()}
        inputs.update({number: found.data for number, found in chosen.items()})
        return inputs, {number: InputOutcome((), found.skipped) for number, found in chosen.items() if found.skipped}

    at, _ = move_streams(store, _now_ms(), places)
    click.echo(f"set, as batch {at.milliseconds} ms: the next driver goes on from there")


def _refuse_if_busy(store: FileStore, contents: LogContents, take_over: bool) -> None:
    assert contents.meta is not None and contents.last_planned is not None
    age = _now_ms() - contents.last_planned.milliseconds
    if not take_over and age < BUSY_INTERVALS * contents.meta.interval.milliseconds:
        fail(
            f"a driver planned a batch of {store.url} {max(age, 0)} ms ago and seems to run: stop it and try again after "
            f"{BUSY_INTERVALS} batch intervals, or give --take-over (it is then fenced: it ends with FencedError and submits nothing more)"
        )


# -- for people and as JSON


def _as_data(url: str, contents: LogContents, rows: list[Standing]) -> dict[str, Any]:
    last = contents.last_planned
    partitions = [
        {"stream": r.stream, "topic": r.topic, "partition": r.partition, "completed": r.completed, "next": r.next, "waiting": r.waiting}
        for r in rows
    ]
    pending = [t.milliseconds for t in contents.pending]
    kept = [{"stream": n, "topic": t, "partition": int(place.rpartition("/")[2]), "next": at} for n, t, place, at in kept_offsets(contents)]
    last_ms = None if last is None else last.milliseconds
    return {"path": url, "last_batch": last_ms, "pending": pending, "partitions": partitions, "kept": kept}


def _print_standing(url: str, contents: LogContents, rows: list[Standing]) -> None:
    console = Console(highlight=False, soft_wrap=False)
    console.print(f"[bold]{escape(url)}[/bold]")
    table = Table("stream", "partition", "completed", "next", "in unfinished batches")
    for row in rows:
        unfinished = row.next - row.completed
        table.add_row(str(row.stream), escape(f"{row.topic}/{row.partition}"), str(row.completed), str(row.next), str(unfinished or ""))
    console.print(table)
    _print_kept(console, contents)
    last = contents.last_planned
    if last is not None:
        console.print(f"after batch {last.milliseconds} ms ({_utc(last)} UTC), {count(len(contents.pending), 'pending batch')}")


def _print_kept(console: Console, contents: LogContents) -> None:
    kept = kept_offsets(contents)
    if kept:
        console.print("kept offsets, of topics that are not in the list of the stream now:")
        table = Table("stream", "partition", "next")
        for number, _, place, at in kept:
            table.add_row(str(number), escape(place), str(at))
        console.print(table)


def _print_moves(moves: list[tuple[int, Any]], contents: LogContents) -> None:
    console = Console(highlight=False, soft_wrap=False)
    table = Table("stream", "partition", "next now", "next then", "change", "")
    for number, move in moves:
        gone, new = move.new is None, move.old is None
        by = "gone" if gone else "new" if new else f"{move.new - move.old:+d}"
        place = escape(f"{move.topic}/{move.partition}")
        table.add_row(str(number), place, "" if new else str(move.old), "" if gone else str(move.new), by, escape(move.note))
    console.print(table)
    for number, _, place, at in kept_offsets(contents):
        console.print(escape(f"the kept offset of {place} (stream {number}, at {at}) stays: the topic is not in the stream's list now"))
    if contents.pending:
        console.print(f"{count(len(contents.pending), 'pending batch')} will run again with the ranges planned for them")


def _utc(at: Time) -> str:
    return f"{datetime.fromtimestamp(at.milliseconds / 1000, timezone.utc):%Y-%m-%d %H:%M:%S}"
