"""Reads what all drivers of a campaign left behind and says whether every promise held."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Range = tuple[str, int, int, int]


@dataclass
class Verdict:
    """Counts for the report, and every breach in words; `breaches` empty means exact."""

    attempts: int = 0
    batches: int = 0
    runs_again: int = 0
    """Attempts at a batch that had been tried before; one batch may be tried many times, when kill follows kill."""
    records: int = 0
    breaches: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        return [
            f"batches: {self.batches}, attempts: {self.attempts}, run again: {self.runs_again}, records: {self.records}",
            *(f"BREACH: {breach}" for breach in self.breaches),
            f"verdict: {'exact' if not self.breaches else f'{len(self.breaches)} breaches'}",
        ]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of an append-only file; a last line without its newline was cut by a kill."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def ranges_by_time(root: Path, verdict: Verdict) -> dict[int, tuple[Range, ...]]:
    """The one set of ranges of each batch time; a second, different one is a breach."""
    by_time: dict[int, tuple[Range, ...]] = {}
    for attempt in read_lines(root / "attempts.jsonl"):
        verdict.attempts += 1
        ranges = tuple(tuple(r) for r in sorted(attempt["ranges"]))
        time = attempt["time"]
        if time in by_time:
            verdict.runs_again += 1
            if by_time[time] != ranges:
                verdict.breaches.append(f"batch {time} was tried with {by_time[time]} and with {ranges}")
        by_time[time] = ranges
    verdict.batches = len(by_time)
    return by_time


def check_ranges(by_time: dict[int, tuple[Range, ...]], ends: dict[int, int], verdict: Verdict) -> None:
    """Per partition: the ranges of all batches, tried or done, tile [0, end) in the order of batch time."""
    position: dict[int, int] = defaultdict(int)
    for time in sorted(by_time):
        for _topic, partition, start, until in by_time[time]:
            if start != position[partition]:
                word = "overlaps the batch before" if start < position[partition] else "leaves records out"
                verdict.breaches.append(f"batch {time} partition {partition} [{start}, {until}) {word} ({position[partition]})")
            position[partition] = until
    for partition, end in ends.items():
        if position[partition] != end:
            verdict.breaches.append(f"partition {partition} was read up to {position[partition]} of {end}")


def check_sink(root: Path, by_time: dict[int, tuple[Range, ...]], verdict: Verdict) -> None:
    """Each batch's sink holds exactly the records of its ranges."""
    for time, ranges in by_time.items():
        expected = sorted(f"{p}:{offset}" for _t, p, start, until in ranges for offset in range(start, until))
        path = root / "sink" / f"{time}.json"
        found = json.loads(path.read_text()) if path.exists() else None
        verdict.records += len(expected)
        if found != expected:
            count = "nothing" if found is None else f"{len(found)} records"
            verdict.breaches.append(f"batch {time} should hold {len(expected)} records, its sink holds {count}")


def check_windows(root: Path, by_time: dict[int, tuple[Range, ...]], width_ms: int, verdict: Verdict) -> None:
    """Each window holds what the batches of (T − width, T] hold, as if the driver had never died."""
    for path in sorted((root / "windows").glob("*.json")):
        time = int(path.stem)
        expected: dict[str, int] = defaultdict(int)
        for other, ranges in by_time.items():
            if time - width_ms < other <= time:
                for _t, partition, start, until in ranges:
                    expected[f"key-{partition}"] += until - start
        found = dict(json.loads(path.read_text()))
        if found != {k: v for k, v in expected.items() if v}:
            verdict.breaches.append(f"window {time} is {found}, should be {dict(expected)}")


def check_order(root: Path, verdict: Verdict) -> None:
    """A batch is tried only after every earlier batch that was tried before has been written. For `failedBatch=hold`."""
    written: dict[int, int] = {}
    for write in read_lines(root / "writes.jsonl"):
        written.setdefault(write["time"], write["at"])
    tried: set[int] = set()
    for attempt in sorted(read_lines(root / "attempts.jsonl"), key=lambda a: a["at"]):
        time, at = attempt["time"], attempt["at"]
        early = [t for t in tried if t < time and written.get(t, at) >= at]
        if early:
            verdict.breaches.append(f"batch {time} was tried before batch {min(early)} was written")
        tried.add(time)


def judge(root: Path, ends: dict[int, int], interval_ms: int, window: int, in_order: bool = False) -> Verdict:
    """The whole judgement. `ends`: records fed per partition. `in_order`: whether outputs must see the batches in their order."""
    verdict = Verdict()
    by_time = ranges_by_time(root, verdict)
    times = sorted(by_time)
    if any(t % interval_ms != times[0] % interval_ms for t in times):
        verdict.breaches.append("batch times are not multiples of the interval")
    check_ranges(by_time, ends, verdict)
    check_sink(root, by_time, verdict)
    check_windows(root, by_time, interval_ms * window, verdict)
    if in_order:
        check_order(root, verdict)
    missing = [t for t in times if not (root / "windows" / f"{t}.json").exists()]
    if missing:
        verdict.breaches.append(f"{len(missing)} batches have no window: {missing[:5]}")
    return verdict
