"""`kstream checkpoint show`: the content of a checkpoint, as a table and as JSON. Needs neither Java nor pyspark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from kstream.batch import BatchPlan, SkippedRecord, StateCheckpoint
from kstream.batch_time import Time
from kstream.checkpoint import LogContents, Meta, names
from kstream.checkpoint.plan_log import epoch_taken_ms
from kstream.checkpoint.reader import StartedLog, read_started_log
from kstream.checkpoint.state_log import stored_states
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import open_existing, plan_text
from kstream.cli.terminal import batch_moment, clear_errors, echo, table_console
from kstream.errors import MissingFileError
from kstream.storage import FileStore


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state of one stream, as a completion record names it.

    Attributes:
        stream: the stream.
        time: the batch that left the state.
        files: the names of the files in the store.
        bytes: the size of the files together, without the missing ones.
        missing: the files that no longer exist, because a newer state has replaced them.
    """

    stream: str
    time: Time
    files: Sequence[str]
    bytes: int
    missing: tuple[str, ...]

    def in_words(self) -> str:
        """Return the state as words for people."""
        files = f"{len(self.files)} file{'' if len(self.files) == 1 else 's'}"
        if self.missing:
            return f"as batch {self.time} left it: {files}, {len(self.missing)} of them not there any more"
        return f"as batch {self.time} left it: {files}, {self.bytes:,} bytes"


States = Mapping[Time, list[StoredState]]
"""The states by the batch whose completion record names them."""

LAST = 20
"""The number of batches that commands show by default."""
_STYLES = {"done": "green", "pending": "yellow", "void": "dim"}


@click.group("checkpoint")
def checkpoint_commands() -> None:
    """Look into a checkpoint."""


@checkpoint_commands.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--last", type=click.IntRange(min=1), default=LAST, show_default=True, help="The number of batches, the newest ones.")
@click.option("--all", "show_all", is_flag=True, help="All batches that are not in the history yet.")
def show(path: str, as_json: bool, last: int | None, show_all: bool) -> None:
    """Show the newest batches of a checkpoint: their ranges, their ends, and the states stored with them.

    `kstream history` shows older ones, too.
    """
    last = None if show_all else last
    with clear_errors(code=ReadingCode.UNREADABLE):
        store = open_existing(path)
        log = read_started_log(store)
        epochs = read_epochs(store)
        states = read_states(store, log.contents, last)
    if as_json:
        echo(json.dumps(as_data(store.url, log, epochs, states, last), indent=2))
    else:
        _print(store.url, log, epochs, states, last)


def read_epochs(store: FileStore) -> list[tuple[int, int]]:
    """Return (epoch, time of the start in ms since 1970) for every driver that has started here, oldest first. Reads the store."""
    numbers = sorted(n for n in map(names.parse_epoch, store.list()) if n is not None)
    return [(n, epoch_taken_ms(store, n)) for n in numbers]


def read_states(store: FileStore, contents: LogContents, last: int | None) -> States:
    """Read the states that the completion records of the shown batches name.

    Costs one listing. If there are states, this also costs a read per batch and a request per file.

    Args:
        store: the checkpoint.
        contents: the content of its log.
        last: the number of shown batches, the newest; None for all.
    """
    if not store.list(names.STATE):
        return {}
    ended = (plan for plan in _newest(contents, last) if plan.time in contents.done)
    return {plan.time: [_measured(store, *of) for of in sorted(stored_states(store, plan.time, plan.epoch).items())] for plan in ended}


def _measured(store: FileStore, stream: str, state: StateCheckpoint) -> StoredState:
    """Return the state of one stream, with the sizes of its files. Costs a request per file."""
    total, missing = 0, list[str]()
    for file in state.files:
        try:
            total += store.size(file)
        except MissingFileError:
            missing.append(file)
    return StoredState(stream, state.time, state.files, total, tuple(missing))


def state_of(time: Time, contents: LogContents) -> str:
    """Return the state of a batch: done, pending, `failed n` (and still pending), given up, or void."""
    if contents.plans[time].void:
        return "void"
    if time in contents.done:
        return "done"
    if time in contents.given_up:
        return "given up"
    failures = contents.failures.get(time, 0)
    return f"failed {failures}" if failures else "pending"


def _newest(contents: LogContents, last: int | None) -> list[BatchPlan]:
    """Return the `last` newest plans, oldest first; all if it is None."""
    plans = [contents.plans[time] for time in sorted(contents.plans)]
    return plans if last is None else plans[-last:]


def as_data(url: str, log: StartedLog, epochs: list[tuple[int, int]], states: States, last: int | None) -> dict[str, Any]:
    """Return the content of the checkpoint as JSON values; times in ms since the Unix epoch."""
    meta, contents = log.meta, log.contents
    plans = [
        {
            "time": plan.time.milliseconds,
            "epoch": plan.epoch,
            "state": state_of(plan.time, contents),
            "failures": contents.failures.get(plan.time, 0),
            **skipped_data(contents.skipped.get(plan.time, ())),
            "streams": [
                {"id": number, **_name(plan, number), "records": plan.num_records.get(number, 0), "plan": dict(data)}
                for number, data in sorted(plan.inputs.items())
            ],
            "states": [
                {"stream": s.stream, "time": s.time.milliseconds, "files": list(s.files), "bytes": s.bytes, "missing": list(s.missing)}
                for s in states.get(plan.time, ())
            ],
        }
        for plan in _newest(contents, last)
    ]
    return {
        "path": url,
        "zero_time": meta.zero_time.milliseconds,
        "interval": meta.interval.milliseconds,
        **({} if meta.after is None else {"interval_changed_after": meta.after.milliseconds}),
        "epochs": [{"epoch": number, "taken_at": at} for number, at in epochs],
        "plans": plans,
    }


def skipped_data(skipped: Sequence[SkippedRecord]) -> dict[str, Any]:
    """Return the records that a batch leaves out as a JSON object, which is empty without any."""
    return {"skipped": [record.to_json() for record in sorted(skipped)]} if skipped else {}


def _name(plan: BatchPlan, number: int) -> dict[str, str]:
    """Return the name of a stream as a JSON object; an empty one if the stream has no name."""
    name = plan.names.get(number)
    return {} if name is None else {"name": name}


def _print(url: str, log: StartedLog, epochs: list[tuple[int, int]], states: States, last: int | None) -> None:
    """Print the content of the checkpoint as a table."""
    console = table_console()
    meta, contents = log.meta, log.contents
    console.print(f"[bold]{escape(url)}[/bold]")
    first = f"batch interval {meta.interval}, first batch at {_moment(meta.zero_time + meta.interval, meta)}"
    console.print(first if meta.after is None else f"{first} (after batch {meta.after}, the last one of another interval)")
    for number, at in epochs:
        console.print(f"epoch {number}: a driver started at {datetime.fromtimestamp(at / 1000):%Y-%m-%d %H:%M:%S}")
    table = Table("batch (local)", "ms", "epoch", "state", "stream", "records", "ranges")
    for plan in _newest(contents, last):
        _add_rows(table, plan, state_of(plan.time, contents), meta)
        skipped = contents.skipped.get(plan.time, ())
        if skipped:
            table.add_row("", "", "", "", "", f"-{len(skipped)}", escape(f"without {', '.join(map(str, sorted(skipped)))}"))
        for stored in states.get(plan.time, ()):
            table.add_row("", "", "", "", f"state {stored.stream}", "", stored.in_words())
    console.print(table)
    console.print(_summary(contents, last))


def _add_rows(table: Table, plan: BatchPlan, state: str, meta: Meta) -> None:
    """Add a batch to the table, with a row for each input."""
    shown = f"[{_STYLES.get(state, 'red')}]{state}[/]"
    head = (_moment(plan.time, meta), str(plan.time.milliseconds), str(plan.epoch), shown)
    if not plan.inputs:
        table.add_row(*head, "", "", "")
    for index, (number, data) in enumerate(sorted(plan.inputs.items())):
        cells = head if index == 0 else ("", "", "", "")
        stream = " ".join([str(number), *_name(plan, number).values()])
        table.add_row(*cells, escape(stream), str(plan.num_records.get(number, 0)), escape(plan_text(data)))


def _summary(contents: LogContents, last: int | None) -> str:
    """Return a sentence with the number of batches in each state."""
    counts: dict[str, int] = {}
    for time in contents.plans:
        kind = state_of(time, contents).partition(" ")[0].replace("given", "given up")
        counts[kind] = counts.get(kind, 0) + 1
    words = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    shown = "" if last is None or last >= len(contents.plans) else f" (the last {last} shown)"
    return f"{len(contents.plans)} batches kept{shown}{': ' + words if words else ''}"


def _moment(time: Time, meta: Meta) -> str:
    """Return the date and time of a batch, local."""
    return batch_moment(time, meta.interval)
