"""`kstream checkpoint diff`: the differences between two checkpoints. Needs neither Java nor pyspark nor brokers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kstream.batch_time import Duration, Time
from kstream.checkpoint.reader import StartedLog, read_started_log
from kstream.cli.checkpoint import state_of
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import PlanData, newest_plans, open_existing, plan_text, ranges_of
from kstream.cli.terminal import batch_moment, clear_errors, count, echo, table_console
from kstream.offsets.offset_range import Partition

MOST_ROWS = 20
MOST_RANGES = 8
SIDES = ("first", "second")
K = TypeVar("K")
V = TypeVar("V")
Data = dict[str, Any]


@click.command("diff")
@click.argument("first")
@click.argument("second")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with every difference instead of short tables.")
def diff_command(first: str, second: str, as_json: bool) -> None:
    """Show the differences between two checkpoints: batches with their ranges and states, and next offsets.

    Deprecated: compare what `kstream checkpoint show --json` prints of each, by the tool that you like.

    Exit code 0 if nothing differs, 1 if something does. A checkpoint that does not exist or cannot be read is one line on standard
    error and exit code 3, with nothing on standard output.
    """
    with clear_errors(code=ReadingCode.UNREADABLE):
        sides = [Side.of(read_started_log(open_existing(path))) for path in (first, second)]
    echo("kstream checkpoint diff is deprecated: compare what `kstream checkpoint show --json` prints of each checkpoint", err=True)
    found = differences(*sides)
    if as_json:
        echo(json.dumps({"first": first, "second": second, **found}, indent=2))
    elif found["same"]:
        batches = count(len(sides[0].batches), "batch")
        echo(f"nothing differs: {batches}, with their ranges and states, and the offsets reached are the same")
    else:
        _print(first, second, found, sides[0].interval)
    raise SystemExit(0 if found["same"] else 1)


# -- the differences, as JSON values


class Side(NamedTuple):
    """The compared parts of one checkpoint. Times are in ms.

    Attributes:
        meta: the meta record.
        batches: by batch time, the state of the batch and its plan data by stream number.
        next: the next offset by stream, topic and partition.
    """

    meta: Mapping[str, int]
    batches: Mapping[int, tuple[str, Mapping[int, PlanData]]]
    next: Mapping[tuple[int, str, int], int]

    @staticmethod
    def of(log: StartedLog) -> Side:
        """Return the compared parts of a checkpoint's content. Pure."""
        meta, contents = log.meta, log.contents
        ends = ((stream, r) for stream, data in newest_plans(contents).items() for r in ranges_of(data) or ())
        return Side(
            {"zero_time": meta.zero_time.milliseconds, "interval": meta.interval.milliseconds},
            {time.milliseconds: (state_of(time, contents), plan.inputs) for time, plan in contents.plans.items()},
            {(stream, r.topic, r.partition): r.until for stream, r in ends},
        )

    @property
    def interval(self) -> Duration:
        return Duration(self.meta["interval"])


def differences(first: Side, second: Side) -> Data:
    """Return all differences as JSON values. Pure.

    `batches` are those that both checkpoints have. `standing` has the next offsets. There `records` says how far the second is ahead of the
    first; it is None where only one of the two has the partition.
    """
    both = sorted(first.batches.keys() & second.batches.keys())
    found: Data = {
        "meta": [{"name": n, "first": at, "second": second.meta[n]} for n, at in first.meta.items() if at != second.meta[n]],
        "only_in_first": _only(first, second),
        "only_in_second": _only(second, first),
        "batches": [row for time in both if (row := _batch(time, first, second)) is not None],
        "standing": [
            {"stream": s, "topic": t, "partition": p, "first": a, "second": b, "records": None if a is None or b is None else b - a}
            for (s, t, p), a, b in _differing(first.next, second.next)
        ],
    }
    return {"same": not any(found.values()), **found}


def _differing(first: Mapping[K, V], second: Mapping[K, V]) -> list[tuple[K, V | None, V | None]]:
    """Return (key, first value, second value) where the values differ, in order of keys; None stands for no value."""
    keys: set[Any] = {*first, *second}
    rows = ((key, first.get(key), second.get(key)) for key in sorted(keys))
    return [row for row in rows if row[1] != row[2]]


def _only(mine: Side, others: Side) -> list[Data]:
    """Return the batches that only `mine` has, oldest first."""
    rows = [(time, *mine.batches[time]) for time in sorted(mine.batches.keys() - others.batches.keys())]
    return [
        {"time": time, "state": state, "streams": [{"id": n, "plan": dict(data)} for n, data in sorted(inputs.items())]}
        for time, state, inputs in rows
    ]


def _batch(time: int, first: Side, second: Side) -> Data | None:
    """Return the differences in a batch that both have; None if there are none."""
    (state, inputs), (other_state, other_inputs) = first.batches[time], second.batches[time]
    streams = [_stream(number, a, b) for number, a, b in _differing(inputs, other_inputs)]
    streams = [stream for stream in streams if stream is not None]
    return {"time": time, "first": state, "second": other_state, "streams": streams} if streams or state != other_state else None


def _stream(number: int, first: PlanData | None, second: PlanData | None) -> Data | None:
    """Return the ranges of a stream that differ in a batch; the plan data if its connector offers no ranges; None if no range differs."""
    ranges, other_ranges = _by_partition(first), _by_partition(second)
    if ranges is None or other_ranges is None:
        return {"id": number, **{side: None if data is None else dict(data) for side, data in zip(SIDES, (first, second), strict=True)}}
    rows = [{"topic": t, "partition": p, "first": a, "second": b} for (t, p), a, b in _differing(ranges, other_ranges)]
    return {"id": number, "ranges": rows} if rows else None


def _by_partition(data: PlanData | None) -> dict[Partition, list[int]] | None:
    """Return [from, until] by partition: nothing for a batch without this stream, None if its connector offers no ranges."""
    ranges = [] if data is None else ranges_of(data)
    return None if ranges is None else {(r.topic, r.partition): [r.begin, r.until] for r in ranges}


# -- for people


def _print(first: str, second: str, found: Data, interval: Duration) -> None:
    """Print the differences as short tables, and a sentence."""
    console = table_console()
    console.print(f"first  [bold]{escape(first)}[/bold]\nsecond [bold]{escape(second)}[/bold]")
    for row in found["meta"]:
        console.print(f"{row['name'].replace('_', ' ')}: {row['first']} ms in the first, {row['second']} ms in the second")
    rows = sorted([*_only_rows(found["only_in_first"], 0), *_only_rows(found["only_in_second"], 1), *_batch_rows(found["batches"])])
    _print_table(
        console,
        ("batch (local)", "ms", "what", "first", "second"),
        [[batch_moment(Time(ms), interval), str(ms), *cells] for ms, *cells in rows],
    )
    _print_table(
        console,
        ("stream", "partition", "next in first", "next in second", "records"),
        [
            [str(r["stream"]), f"{r['topic']}/{r['partition']}", _cell(r["first"]), _cell(r["second"]), _cell(r["records"], "+d")]
            for r in found["standing"]
        ],
    )
    console.print(_summary(found))


def _print_table(console: Console, head: tuple[str, ...], rows: list[list[str]]) -> None:
    """Print the first rows of a table, and the number of the others. Prints nothing without rows."""
    if not rows:
        return
    table = Table(*head)
    for row in rows[:MOST_ROWS]:
        table.add_row(*map(escape, row))
    console.print(table)
    if len(rows) > MOST_ROWS:
        console.print(f"… {len(rows) - MOST_ROWS} more rows; --json has all")


def _cell(value: int | None, form: str = "d") -> str:
    """Return a number for a table; a dash for None."""
    return "–" if value is None else format(value, form)


def _only_rows(batches: list[Data], side: int) -> Iterable[tuple[int, str, str, str]]:
    """Yield the table rows of batches that only one side has. `side` is 0 for the first."""
    for batch in batches:
        text = "; ".join([batch["state"], *(f"stream {s['id']}: {plan_text(s['plan'])}" for s in batch["streams"])])
        yield batch["time"], "only in one", text if side == 0 else "–", "–" if side == 0 else text


def _batch_rows(batches: list[Data]) -> Iterable[tuple[int, str, str, str]]:
    """Yield the table rows of batches that both sides have."""
    for batch in batches:
        if batch["first"] != batch["second"]:
            yield batch["time"], "state", batch["first"], batch["second"]
        for stream in batch["streams"]:
            yield batch["time"], f"stream {stream['id']}", _side_text(stream, "first"), _side_text(stream, "second")


def _side_text(stream: Data, side: str) -> str:
    """Return the differing ranges of a stream as one side has them; `–` where it has none."""
    if "ranges" not in stream:
        return "–" if stream[side] is None else json.dumps(stream[side])
    mine = [f"{r['topic']}/{r['partition']} [{r[side][0]}, {r[side][1]})" for r in stream["ranges"] if r[side] is not None]
    more = [f"… {len(mine) - MOST_RANGES} more"] if len(mine) > MOST_RANGES else []
    return " ".join([*mine[:MOST_RANGES], *more]) or "–"


def _summary(found: Data) -> str:
    """Return a sentence with the number of differences of each kind."""
    words = [f"{count(len(batches), 'batch')} only in the {side}" for side in SIDES if (batches := found[f"only_in_{side}"])]
    if found["batches"]:
        words.append(f"{count(len(found['batches']), 'batch')} of both")
    words += [row["name"].replace("_", " ") for row in found["meta"]]
    moved = [r["records"] for r in found["standing"] if r["records"] is not None]
    for records, side in ((sum(r for r in moved if r > 0), "ahead of"), (-sum(r for r in moved if r < 0), "behind")):
        if records:
            words.append(f"the second is {count(records, 'record')} {side} the first")
    if len(moved) < len(found["standing"]):
        words.append(f"{count(len(found['standing']) - len(moved), 'partition')} only in one")
    return "the two differ: " + ", ".join(words)
