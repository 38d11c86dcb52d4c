"""Board: what is known of each batch, put together from the driver's journal. Pure but for `follow`.

The journal's lines are `{"event": …, "pid": …}` with `started` (at), `submitted` (batch, records), `attempt` (batch, ranges), `window`
(batch, totals), `completed` (batch, records, scheduling, processing, failures) and `stopped`. Batch times are ms since the epoch.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kstream.cli.ranges import Range


class Run(enum.Enum):
    """Why a batch ran when it did."""

    FIRST = "1st"
    RE_RUN = "re-run"
    MADE_UP = "made up"


@dataclass(slots=True)
class Row:
    """One batch in the life of one driver. Delays are ms, None until known; `lag` is in records when the batch began."""

    batch: int
    driver: int
    run: Run
    ranges: list[Range] = field(default_factory=list[Range])
    records: int | None = None
    scheduling: int | None = None
    processing: int | None = None
    lag: int | None = None
    state: str = "planned"
    failures: list[str] = field(default_factory=list[str])

    @property
    def tried(self) -> bool:
        return self.state != "planned"


class Board:
    """Fed with journal lines in their order. `acknowledged` is set from outside: how many orders Kafka has by now."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], Row] = {}
        self.drivers: list[int] = []
        self.totals: dict[str, tuple[int, int]] = {}
        self.acknowledged = 0
        self.note = ""
        """What goes on, in a few words."""
        self._pending: frozenset[int] = frozenset()
        self.restarted_at = 0

    def hear(self, line: dict[str, Any]) -> Row | None:
        """Takes one line in; returns the row when its batch has just ended."""
        event, pid = line["event"], line["pid"]
        if event == "started":
            self.drivers.append(pid)
            self.restarted_at = line["at"] if len(self.drivers) > 1 else 0
        if "batch" not in line:
            return None
        row = self._row(line["batch"], pid)
        row.records = line.get("records", row.records)
        if event == "attempt":
            row.ranges = [(t, p, a, b) for t, p, a, b in line["ranges"]]
            row.state = "running"
            row.lag = max(0, self.acknowledged - sum(r[3] for r in row.ranges))
        elif event == "window":
            self.totals = {region: (count, cents) for region, (count, cents) in line["totals"].items()}
        elif event == "completed":
            row.scheduling, row.processing, row.failures = line["scheduling"], line["processing"], line["failures"]
            row.state = "failed" if row.failures else "done"
            return row
        return None

    def killed(self, pending: set[int]) -> None:
        """The driver is dead; `pending` are the batches its checkpoint holds without an end."""
        self._pending = frozenset(pending)
        for row in self.rows.values():
            if row.state == "running":
                row.state = "killed"
            elif row.state == "planned":
                row.state = "not begun"

    def ended(self, driver: int | None = None, run: Run | None = None) -> list[Row]:
        """Rows that are done, of one driver (1, 2 …) and of one kind if these are given, by batch time."""
        rows = (r for r in self.rows.values() if r.state == "done" and driver in (None, r.driver) and run in (None, r.run))
        return sorted(rows, key=lambda r: r.batch)

    def newest(self, count: int) -> list[Row]:
        """So many rows in the order in which they ran, with the one that runs in the middle and the planned ones after it."""
        rows = sorted(self.rows.values(), key=lambda r: (r.driver, r.batch))
        current = next((i for i, r in enumerate(rows) if r.state in ("planned", "running")), len(rows))
        begin = max(0, min(current - count // 2, len(rows) - count))
        return rows[begin : begin + count]

    def _row(self, batch: int, pid: int) -> Row:
        driver = self.drivers.index(pid) + 1 if pid in self.drivers else len(self.drivers) + 1
        key = (batch, driver)
        if key not in self.rows:
            self.rows[key] = Row(batch, driver, self._kind(batch, driver))
        return self.rows[key]

    def _kind(self, batch: int, driver: int) -> Run:
        if driver > 1 and batch in self._pending:
            return Run.RE_RUN
        return Run.MADE_UP if driver > 1 and batch <= self.restarted_at else Run.FIRST


def follow(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Each step gives the whole lines appended since the last one; the file need not be there yet."""
    position = 0
    while True:
        lines: list[dict[str, Any]] = []
        if path.exists():
            with open(path, "rb") as file:
                file.seek(position)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            position += len(whole)
            lines = [json.loads(line) for line in whole.splitlines()]
        yield lines
