"""Board: the state of each batch of the demo, from the journal of the driver. The two views display it as a live table or as plain lines.

The journal has lines `{"event": …, "pid": …}` with `started` (at), `submitted` (batch, records), `attempt` (batch, ranges), `window`
(batch, totals), `completed` (batch, records, scheduling, processing, failures) and `stopped`. Batch times are ms since the epoch.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kstream.batch_time import Duration, Time, format_batch_time
from kstream.cli.terminal import compact, echo
from kstream.offsets.offset_range import PlannedRange

# -- the state of each batch


class Run(enum.Enum):
    """The reason for which a batch ran: at its time, again after a kill, or for the downtime of the driver."""

    FIRST = "1st"
    RE_RUN = "re-run"
    MADE_UP = "made up"


@dataclass(slots=True)
class Row:
    """One batch of one driver. Delays are in ms. A number is None until it is known.

    Attributes:
        batch: the batch time.
        driver: the number of the driver (1, 2 …).
        run: the reason for which the batch ran.
        ranges: the ranges of the batch.
        records: the number of its records.
        scheduling: the scheduling delay.
        processing: the processing time.
        lag: the number of records in Kafka after the batch, when the batch began.
        state: planned, running, done, failed, killed or not begun.
        failures: the reasons of failed output operations.
    """

    batch: int
    driver: int
    run: Run
    ranges: list[PlannedRange] = field(default_factory=list[PlannedRange])
    records: int | None = None
    scheduling: int | None = None
    processing: int | None = None
    lag: int | None = None
    state: str = "planned"
    failures: list[str] = field(default_factory=list[str])

    @property
    def tried(self) -> bool:
        """Whether the state is another one than planned."""
        return self.state != "planned"


class Board:
    """The batches of all drivers, from the lines of the journal in their order. Used by one thread.

    Attributes:
        rows: the rows by batch time and number of the driver.
        drivers: the pids of the drivers, in the order of their starts.
        totals: (orders, cents) by region, of the last window.
        acknowledged: the number of orders that Kafka has so far; set by the demo.
        note: the current step of the demo, in a few words; set by the demo.
        restarted_at: the start of the latest driver, in ms since the epoch; 0 before the first restart.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], Row] = {}
        self.drivers: list[int] = []
        self.totals: dict[str, tuple[int, int]] = {}
        self.acknowledged = 0
        self.note = ""
        self._pending: frozenset[int] = frozenset()
        self.restarted_at = 0

    def add(self, line: dict[str, Any]) -> Row | None:
        """Add a line of the journal. Return the row of a batch that this line ends."""
        event, pid = line["event"], line["pid"]
        if event == "started":
            self.drivers.append(pid)
            self.restarted_at = line["at"] if len(self.drivers) > 1 else 0
        if "batch" not in line:
            return None
        row = self._row(line["batch"], pid)
        row.records = line.get("records", row.records)
        if event == "attempt":
            row.ranges = [PlannedRange(*r) for r in line["ranges"]]
            row.state = "running"
            row.lag = max(0, self.acknowledged - sum(r.until for r in row.ranges))
        elif event == "window":
            self.totals = {region: (count, cents) for region, (count, cents) in line["totals"].items()}
        elif event == "completed":
            row.scheduling, row.processing, row.failures = line["scheduling"], line["processing"], line["failures"]
            row.state = "failed" if row.failures else "done"
            return row
        return None

    def killed(self, pending: set[int]) -> None:
        """Note the death of the driver: no batch is running or planned any more.

        A batch that was running and is not pending was completed, and the driver died before its listener heard of it.

        Args:
            pending: the batch times of the checkpoint's pending batches.
        """
        self._pending = frozenset(pending)
        for row in self.rows.values():
            if row.state == "running":
                row.state = "killed" if row.batch in pending else "done"
            elif row.state == "planned":
                row.state = "not begun"

    def ended(self, driver: int | None = None, run: Run | None = None) -> list[Row]:
        """Return the rows that are done, by batch time.

        Args:
            driver: only rows of this driver (1, 2 …); None for all.
            run: only rows of this kind of run; None for all.
        """
        rows = (r for r in self.rows.values() if r.state == "done" and driver in (None, r.driver) and run in (None, r.run))
        return sorted(rows, key=lambda r: r.batch)

    def newest(self, count: int) -> list[Row]:
        """Return `count` rows in the order in which they ran. The running row is in the middle, planned rows follow it."""
        rows = sorted(self.rows.values(), key=lambda r: (r.driver, r.batch))
        current = next((i for i, r in enumerate(rows) if r.state in ("planned", "running")), len(rows))
        begin = max(0, min(current - count // 2, len(rows) - count))
        return rows[begin : begin + count]

    def _row(self, batch: int, pid: int) -> Row:
        """Return the row of a batch in the driver of this pid; create it if it is missing."""
        driver = self.drivers.index(pid) + 1 if pid in self.drivers else len(self.drivers) + 1
        key = (batch, driver)
        if key not in self.rows:
            self.rows[key] = Row(batch, driver, self._kind(batch, driver))
        return self.rows[key]

    def _kind(self, batch: int, driver: int) -> Run:
        """Return the reason for which a batch runs in a driver."""
        if driver > 1 and batch in self._pending:
            return Run.RE_RUN
        return Run.MADE_UP if driver > 1 and batch <= self.restarted_at else Run.FIRST


def follow(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield, at each step, the complete lines appended since the step before. Does not block. The file may not exist yet."""
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


# -- the display

_STATE = {"done": "green", "running": "bold", "killed": "bold red", "failed": "red", "not begun": "red"}
_RUN = {Run.FIRST: "", Run.RE_RUN: "yellow", Run.MADE_UP: "cyan"}
_ROWS = 14


def batch_text(batch: int, interval_ms: int) -> str:
    """Return the time of a batch, as Spark shows it."""
    return format_batch_time(Time(batch), Duration(interval_ms))


def _number(value: int | None) -> str:
    """Return a number for the table; an empty text for None."""
    return "" if value is None else f"{value:,}"


def short_ranges(ranges: Sequence[PlannedRange]) -> str:
    """Return the ranges of one topic without its name: `0 [5, 10) 1 [7, 9)`."""
    return compact([PlannedRange("", *r[1:]) for r in ranges]).replace("/", "")


class PlainView:
    """A view that prints a line per batch. Used by one thread."""

    def __init__(self, board: Board, interval_ms: int) -> None:
        self._interval = interval_ms

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def show_sentence(self, text: str) -> None:
        """Print a sentence."""
        echo(text)

    def show_ended(self, row: Row) -> None:
        """Print the line of a batch that has ended."""
        echo(
            f"  {batch_text(row.batch, self._interval)}  {row.run.value:<7}  {row.state:<6} {row.records or 0:>6,} orders  "
            f"delay {row.scheduling or 0:>6,} ms  processing {row.processing or 0:>6,} ms  lag {row.lag or 0:>6,}  "
            f"{short_ranges(row.ranges)}"
        )

    def refresh(self) -> None:
        return None


class LiveView:
    """A view that redraws the newest batches and the totals of the last window. Sentences scroll above. Used by one thread."""

    def __init__(self, board: Board, interval_ms: int) -> None:
        self._board = board
        self._interval = interval_ms
        self._console = Console(highlight=False)
        self._live = Live(Text(""), console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.update(self._drawn(), refresh=True)
        self._live.transient = False
        self._live.stop()

    def show_sentence(self, text: str) -> None:
        """Print a sentence above the table."""
        self._live.console.print(Text(text))

    def show_ended(self, row: Row) -> None:
        """Redraw the table, which has the ended batch."""
        self.refresh()

    def refresh(self) -> None:
        """Redraw the table."""
        self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> Group:
        """Return the whole picture: a head line, the batches and the totals."""
        board = self._board
        head = Text(f"{board.acknowledged:,} orders acknowledged by Kafka   {board.note}", style="bold")
        return Group(head, self._batches(), self._regions())

    def _batches(self) -> Table:
        """Return the table of the newest batches."""
        table = Table("batch", "run", "", "ranges", title="batches", title_justify="left", expand=False)
        for name in ("records", "scheduling\ndelay, ms", "processing\ntime, ms", "lag"):
            table.add_column(name, justify="right")
        for row in self._board.newest(_ROWS):
            table.add_row(
                batch_text(row.batch, self._interval),
                Text(row.run.value, _RUN[row.run]),
                Text(row.state, _STATE.get(row.state, "dim")),
                Text(short_ranges(row.ranges)),
                *map(_number, (row.records, row.scheduling, row.processing, row.lag)),
            )
        return table

    def _regions(self) -> Table:
        """Return the table of the last window's totals by region."""
        table = Table(title="totals of the last window", title_justify="left", show_header=True)
        totals = sorted(self._board.totals.items())
        for region, _ in totals:
            table.add_column(region, justify="right")
        if totals:
            table.add_row(*(f"{count:,}" for _, (count, _) in totals))
            table.add_row(*(f"{cents / 100:,.0f} €" for _, (_, cents) in totals))
        return table


View: TypeAlias = PlainView | LiveView


def make_view(board: Board, interval_ms: int, plain: bool) -> View:
    """Make a view of the board: plain lines if `plain` is set or standard output is no terminal, else the live table."""
    if plain or not Console().is_terminal:
        return PlainView(board, interval_ms)
    return LiveView(board, interval_ms)
