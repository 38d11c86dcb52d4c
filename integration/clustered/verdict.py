"""Recounts every batch of a campaign from its ranges: a record's offset is its number, so ranges tell what each output must have."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration.clustered.job import KEYS, ORDERS, OUTPUTS, PAYMENTS, WINDOW
from integration.exactness.verdict import Range, Verdict, check_ranges, check_sink, ranges_by_time, read_lines
from kstream.checkpoint import read_log
from kstream.checkpoint.history import read_history
from kstream.storage import open_store

Ranges = Mapping[int, Sequence[Range]]
"""By batch time, in milliseconds."""
Counts = dict[int, int]
"""By key."""


@dataclass
class Recount:
    """How many batches there were, in how many of them each output was right, and every breach in words."""

    streams: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    plans: int = 0
    """Batches whose plans were compared with what was tried."""
    unfinished: list[int] = field(default_factory=list[int])
    """Batches that were tried and have never ended."""
    changed: int = 0
    """Plans that differ from what was tried, and batches that were tried with two sets of ranges."""
    right: dict[str, int] = field(default_factory=dict[str, int])
    breaches: list[str] = field(default_factory=list[str])

    @property
    def batches(self) -> int:
        return self.streams[ORDERS].batches if self.streams else 0

    def lines(self) -> list[str]:
        told = [
            f"{name}: {v.records} records in {v.batches} batches, {v.attempts} attempts, {v.runs_again} run again"
            for name, v in self.streams.items()
        ]
        ended = self.batches - len(self.unfinished)
        right = ", ".join(f"{name} {found} of {ended}" for name, found in self.right.items())
        return [*told, f"plans compared: {self.plans}, ranges changed: {self.changed}", f"batches that are right: {right}"]


def recount(root: Path, checkpoint: str, ends: Mapping[str, Mapping[int, int]], interval_ms: int) -> Recount:
    """The whole judgement of a campaign. `ends`: how many records each partition has, by topic's role; empty if it was cut short."""
    found = Recount()
    ended = {line["time"] for line in read_lines(root / "ended.jsonl")}
    tried: dict[str, Ranges] = {}
    for name in (ORDERS, PAYMENTS):
        verdict = found.streams[name] = Verdict()
        by_time = tried[name] = ranges_by_time(root / name, verdict)
        found.changed += len(verdict.breaches)
        check_ranges(by_time, dict(ends.get(name, {})), verdict)
        check_sink(root / name, {time: ranges for time, ranges in by_time.items() if time in ended}, verdict)
        found.breaches += [f"{name}: {breach}" for breach in verdict.breaches]
    found.unfinished = sorted(tried[ORDERS].keys() - ended)
    if found.unfinished:
        found.breaches.append(f"{len(found.unfinished)} batches were tried and have not ended: {found.unfinished[:5]}")
    _compare_plans(checkpoint, tried, found)
    expected = expectations(tried[ORDERS], tried[PAYMENTS], interval_ms)
    for name in OUTPUTS:
        wrong = [time for time in expected[name] if time in ended and _written(root / name / f"{time}.json") != expected[name][time]]
        found.right[name] = len(expected[name]) - len(found.unfinished) - len(wrong)
        if wrong:
            first = f"batch {wrong[0]} is {_written(root / name / f'{wrong[0]}.json')}, should be {expected[name][wrong[0]]}"
            found.breaches.append(f"{name}: {len(wrong)} batches are wrong: {first}"[:600])
    return found


def _written(path: Path) -> Any:
    return [tuple(row) for row in json.loads(path.read_text())] if path.exists() else None


def _compare_plans(checkpoint: str, tried: Mapping[str, Ranges], found: Recount) -> None:
    """Each plan that the checkpoint still has, in the log or in the history, has the ranges with which its batch was tried."""
    store = open_store(checkpoint)
    plans = {batch.plan.time: batch.plan for batch in read_history(store)}
    plans |= {time: plan for time, plan in read_log(store).plans.items() if not plan.void}
    for time, plan in plans.items():
        if time.milliseconds not in tried[ORDERS]:
            continue  # it has not been run yet
        planned = {r for data in plan.inputs.values() for r in _ranges(data)}
        was = {r for ranges in tried.values() for r in ranges.get(time.milliseconds, ()) if r[2] < r[3]}
        found.plans += 1
        if planned != was:
            found.changed += 1
            found.breaches.append(f"batch {time.milliseconds} is planned with {sorted(planned)} and was tried with {sorted(was)}")


def _ranges(data: Any) -> list[Range]:
    return [(r[0], r[1], r[2], r[3]) for r in data["ranges"] if r[2] < r[3]]


def expectations(orders: Ranges, payments: Ranges, interval_ms: int) -> dict[str, dict[int, list[tuple[Any, ...]]]]:
    """What each output must have in each batch, as sorted rows. A window has fewer batches where an outage has left some out."""
    each = {time: keys_of(ranges) for time, ranges in sorted(orders.items())}
    times = list(each)
    paid = {time: keys_of(payments.get(time, ())) for time in times}
    totals, running = dict[int, Counts](), Counter[int]()
    for time, counts in each.items():
        running.update(counts)
        totals[time] = dict(running)
    windows: dict[int, Counts] = {}
    for time in times:
        window = range(time - (WINDOW - 1) * interval_ms, time + 1, interval_ms)
        windows[time] = dict(sum((Counter(each[t]) for t in window if t in each), Counter[int]()))
    made: dict[str, Callable[[int], list[tuple[Any, ...]]]] = {
        "totals": lambda t: sorted(totals[t].items()),
        "snapshots": lambda t: sorted(totals[t].items()),
        "mapped": lambda t: sorted((key, totals[t][key]) for key in each[t]),
        "inverse": lambda t: sorted(windows[t].items()),
        "window": lambda t: sorted(windows[t].items()),
        "join": lambda t: sorted((key, [each[t][key], paid[t][key]]) for key in each[t].keys() & paid[t].keys()),
        "frames": lambda t: sorted((partition, until - start) for _, partition, start, until in orders[t] if until > start),
    }
    return {name: {time: rows(time) for time in times} for name, rows in made.items()}


def keys_of(ranges: Sequence[Range]) -> Counts:
    """How many records of each key there are in the ranges; no key with none."""
    counts = Counter[int]()
    for _topic, _partition, start, until in ranges:
        for key in range(KEYS):
            counts[key] += len(range(start + (key - start) % KEYS, until, KEYS))
    return {key: n for key, n in counts.items() if n}
