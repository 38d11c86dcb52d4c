"""`kstream checkpoint diff`: what differs between two checkpoints. Needs neither Java nor pyspark nor Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kstream.batch_time import Time, format_batch_time
from kstream.checkpoint import LogContents, read_log
from kstream.checkpoint.reader import has_checkpoint
from kstream.cli.checkpoint import state_of
from kstream.cli.errors import clear_errors, fail
from kstream.cli.ranges import compact, kafka_ranges
from kstream.cli.words import count
from kstream.spark.checkpoint_store import open_checkpoint

MOST_ROWS = 20
MOST_RANGES = 8
_Pair = tuple[LogContents, LogContents]


@click.command("diff")
@click.argument("first")
@click.argument("second")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with every difference instead of short tables.")
def diff_command(first: str, second: str, as_json: bool) -> None:
    """Show what differs between two checkpoints: batches, their ranges and states, and where each stands.

    Exit code 0 when nothing differs, 1 when something does. A checkpoint that is not there or cannot be read is one line on standard
    error and exit code 1 as well, with nothing on standard output.
    """
    with clear_errors():
        found = Differences.between(_load(first), _load(second))
    if as_json:
        click.echo(json.dumps({"first": first, "second": second, **found.as_data()}, indent=2))
    else:
        _print(first, second, found)
    raise SystemExit(1 if found else 0)


def _load(path: str) -> LogContents:
    store = open_checkpoint(path)
    if not has_checkpoint(store):
        fail(f"there is no checkpoint in {store.url}: no stream has started there")
    return read_log(store)


@dataclass(frozen=True, slots=True)
class Differences:
    """All differences as JSON values, times in ms; empty lists (and false as a whole) where there are none.

    `meta`: zero time and interval. `only`: batches that one of the two has. `batches`: those that both have, with what differs.
    `standing`: next offsets, stream by stream; `records` is how far the second is ahead of the first.
    """

    pair: _Pair
    meta: list[dict[str, Any]]
    only: tuple[list[dict[str, Any]], list[dict[str, Any]]]
    batches: list[dict[str, Any]]
    standing: list[dict[str, Any]]

    @staticmethod
    def between(first: LogContents, second: LogContents) -> Differences:
        """Compares; reads nothing more."""
        both = sorted(first.plans.keys() & second.plans.keys())
        return Differences(
            pair=(first, second),
            meta=_meta(first, second),
            only=(_only(first, second), _only(second, first)),
            batches=[found for time in both if (found := _batch(time, first, second)) is not None],
            standing=_standing(first, second),
        )

    def __bool__(self) -> bool:
        return bool(self.meta or any(self.only) or self.batches or self.standing)

    def as_data(self) -> dict[str, Any]:
        return {
            "same": not self,
            "meta": self.meta,
            "only_in_first": self.only[0],
            "only_in_second": self.only[1],
            "batches": self.batches,
            "standing": self.standing,
        }


def _meta(first: LogContents, second: LogContents) -> list[dict[str, Any]]:
    values = [
        {"zero_time": m.zero_time.milliseconds, "interval": m.interval.milliseconds} if (m := contents.meta) else {}
        for contents in (first, second)
    ]
    names = ("zero_time", "interval")
    found = [{"name": name, "first": values[0].get(name), "second": values[1].get(name)} for name in names]
    return [row for row in found if row["first"] != row["second"]]


def _only(mine: LogContents, others: LogContents) -> list[dict[str, Any]]:
    """The batches that are in `mine` alone, oldest first."""
    return [
        {
            "time": time.milliseconds,
            "state": state_of(time, mine),
            "streams": [{"id": number, "plan": dict(data)} for number, data in sorted(mine.plans[time].inputs.items())],
        }
        for time in sorted(mine.plans.keys() - others.plans.keys())
    ]


def _batch(time: Time, first: LogContents, second: LogContents) -> dict[str, Any] | None:
    """What differs in a batch that both have; None if nothing does."""
    states = [state_of(time, first), state_of(time, second)]
    inputs = first.plans[time].inputs, second.plans[time].inputs
    numbers = sorted(inputs[0].keys() | inputs[1].keys())
    streams = [s for n in numbers if (s := _stream(n, inputs[0].get(n), inputs[1].get(n))) is not None]
    if states[0] == states[1] and not streams:
        return None
    return {"time": time.milliseconds, "first": states[0], "second": states[1], "streams": streams}


def _stream(number: int, first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What differs in one stream's part of a batch: the ranges, partition by partition; of a stream that is not Kafka's, the plan."""
    ranges = _by_partition(first), _by_partition(second)
    if ranges[0] is None or ranges[1] is None:
        plans = [None if data is None else dict(data) for data in (first, second)]
        return None if plans[0] == plans[1] else {"id": number, "first": plans[0], "second": plans[1]}
    rows = [
        {"topic": p[0], "partition": p[1], "first": ranges[0].get(p), "second": ranges[1].get(p)}
        for p in sorted(ranges[0].keys() | ranges[1].keys())
        if ranges[0].get(p) != ranges[1].get(p)
    ]
    return {"id": number, "ranges": rows} if rows else None


def _by_partition(data: Mapping[str, Any] | None) -> dict[tuple[str, int], list[int]] | None:
    """(topic, partition) → [from, until]; of a batch without this stream none, and None for what is not Kafka's."""
    if data is None:
        return {}
    ranges = kafka_ranges(data)
    return None if ranges is None else {(topic, number): [begin, end] for topic, number, begin, end in ranges}


def _standing(first: LogContents, second: LogContents) -> list[dict[str, Any]]:
    """The partitions whose next offsets differ; `records` is None where only one of the two has the partition."""
    at = _next_offsets(first), _next_offsets(second)
    return [
        {
            "stream": key[0], "topic": key[1], "partition": key[2],
            "first": at[0].get(key), "second": at[1].get(key),
            "records": at[1][key] - at[0][key] if key in at[0] and key in at[1] else None,
        }
        for key in sorted(at[0].keys() | at[1].keys())
        if at[0].get(key) != at[1].get(key)
    ]  # fmt: skip


def _next_offsets(contents: LogContents) -> dict[tuple[int, str, int], int]:
    """(stream, topic, partition) → the end of the newest plan's range."""
    found: dict[tuple[int, str, int], int] = {}
    for number in {n for plan in contents.plans.values() for n in plan.inputs}:
        newest = contents.newest_data(number)
        for topic, partition, _, until in kafka_ranges(newest[1] if newest else {}) or []:
            found[number, topic, partition] = until
    return found


# -- for people


def _print(first: str, second: str, found: Differences) -> None:
    console = Console(highlight=False, soft_wrap=False)
    if not found:
        batches = len(found.pair[0].plans)
        console.print(f"nothing differs: {count(batches, 'batch')}, with their ranges and states, and the offsets reached are the same")
        return
    console.print(f"first  [bold]{escape(first)}[/bold]\nsecond [bold]{escape(second)}[/bold]")
    for row in found.meta:
        console.print(f"{row['name'].replace('_', ' ')}: {row['first']} ms in the first, {row['second']} ms in the second")
    rows = [[_moment(ms, found.pair), str(ms), *cells] for ms, *cells in sorted((*_only_rows(found), *_batch_rows(found)))]
    if rows:
        _print_table(console, ("batch", "ms", "what", "first", "second"), rows)
    if found.standing:
        _print_table(console, ("stream", "partition", "next in first", "next in second", "records"), _standing_rows(found))
    console.print(_summary(found))


def _print_table(console: Console, head: tuple[str, ...], rows: list[list[str]]) -> None:
    table = Table(*head)
    for row in rows[:MOST_ROWS]:
        table.add_row(*map(escape, row))
    console.print(table)
    if len(rows) > MOST_ROWS:
        console.print(f"… {len(rows) - MOST_ROWS} more rows; --json has all")


def _only_rows(found: Differences) -> list[tuple[int, str, str, str]]:
    rows: list[tuple[int, str, str, str]] = []
    for side, batches in enumerate(found.only):
        for batch in batches:
            streams = [f"stream {s['id']}: {_plan_text(s['plan'])}" for s in batch["streams"]]
            text = "; ".join([batch["state"], *streams])
            rows.append((batch["time"], "only in one", text if side == 0 else "–", "–" if side == 0 else text))
    return rows


def _batch_rows(found: Differences) -> list[tuple[int, str, str, str]]:
    rows: list[tuple[int, str, str, str]] = []
    for batch in found.batches:
        if batch["first"] != batch["second"]:
            rows.append((batch["time"], "state", batch["first"], batch["second"]))
        for stream in batch["streams"]:
            rows.append((batch["time"], f"stream {stream['id']}", _side_text(stream, "first"), _side_text(stream, "second")))
    return rows


def _side_text(stream: Mapping[str, Any], side: str) -> str:
    """The ranges in which the two differ, as one of them has them; `–` where it has none."""
    if "ranges" not in stream:
        return "–" if stream[side] is None else json.dumps(stream[side])
    mine = [f"{r['topic']}/{r['partition']} [{r[side][0]}, {r[side][1]})" for r in stream["ranges"] if r[side] is not None]
    more = [f"… {len(mine) - MOST_RANGES} more"] if len(mine) > MOST_RANGES else []
    return " ".join([*mine[:MOST_RANGES], *more]) or "–"


def _plan_text(plan: Mapping[str, Any]) -> str:
    ranges = kafka_ranges(plan)
    return json.dumps(dict(plan)) if ranges is None else compact(ranges)


def _standing_rows(found: Differences) -> list[list[str]]:
    def shown(value: int | None) -> str:
        return "–" if value is None else str(value)

    return [
        [str(r["stream"]), f"{r['topic']}/{r['partition']}", shown(r["first"]), shown(r["second"]),
         "–" if r["records"] is None else f"{r['records']:+d}"]
        for r in found.standing
    ]  # fmt: skip


def _moment(ms: int, pair: _Pair) -> str:
    meta = pair[0].meta or pair[1].meta
    assert meta is not None
    time = Time(ms)
    return f"{time.to_datetime():%Y-%m-%d} {format_batch_time(time, meta.interval)}"


def _summary(found: Differences) -> str:
    words = [
        f"{count(len(batches), 'batch')} only in the {name}"
        for name, batches in zip(("first", "second"), found.only, strict=True)
        if batches
    ]
    if found.batches:
        words.append(f"{count(len(found.batches), 'batch')} of both")
    words += [row["name"].replace("_", " ") for row in found.meta]
    moved = [r["records"] for r in found.standing if r["records"] is not None]
    for records, side in ((sum(r for r in moved if r > 0), "ahead of"), (-sum(r for r in moved if r < 0), "behind")):
        if records:
            words.append(f"the second stands {count(records, 'record')} {side} the first")
    if len(moved) < len(found.standing):
        words.append(f"{count(len(found.standing) - len(moved), 'partition')} only in one")
    return "the two differ: " + ", ".join(words)
