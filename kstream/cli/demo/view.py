"""What the demo shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from typing import Protocol

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kstream.batch_time import Duration, Time, format_batch_time
from kstream.cli.demo.board import Board, Row, Run
from kstream.cli.ranges import Range, compact

_STATE = {"done": "green", "running": "bold", "killed": "bold red", "failed": "red", "not begun": "red"}
_RUN = {Run.FIRST: "", Run.RE_RUN: "yellow", Run.MADE_UP: "cyan"}
_ROWS = 14


class View(Protocol):
    """Called by the stage's one thread."""

    def __enter__(self) -> View: ...

    def __exit__(self, *exception: object) -> None: ...

    def say(self, text: str) -> None:
        """A sentence that stays."""
        ...

    def ended(self, row: Row) -> None:
        """A batch has ended."""
        ...

    def refresh(self) -> None:
        """The board has changed."""
        ...


def batch_text(batch: int, interval_ms: int) -> str:
    return format_batch_time(Time(batch), Duration(interval_ms))


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def short_ranges(ranges: list[Range] | tuple[Range, ...]) -> str:
    """The ranges of one topic without its name: `0 [5, 10) 1 [7, 9)`."""
    return compact([("", *r[1:]) for r in ranges]).replace("/", "")


class PlainView:
    """A line a batch."""

    def __init__(self, board: Board, interval_ms: int) -> None:
        self._interval = interval_ms

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def say(self, text: str) -> None:
        click.echo(text)

    def ended(self, row: Row) -> None:
        click.echo(
            f"  {batch_text(row.batch, self._interval)}  {row.run.value:<7}  {row.state:<6} {row.records or 0:>6,} orders  "
            f"delay {row.scheduling or 0:>6,} ms  processing {row.processing or 0:>6,} ms  lag {row.lag or 0:>6,}  "
            f"{short_ranges(row.ranges)}"
        )

    def refresh(self) -> None:
        return None


class LiveView:
    """The newest batches and the totals of the last window, redrawn in place; sentences scroll above."""

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

    def say(self, text: str) -> None:
        self._live.console.print(Text(text))

    def ended(self, row: Row) -> None:
        self.refresh()

    def refresh(self) -> None:
        self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> Group:
        board = self._board
        head = Text(f"{board.acknowledged:,} orders acknowledged by Kafka   {board.note}", style="bold")
        return Group(head, self._batches(), self._regions())

    def _batches(self) -> Table:
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
        table = Table(title="totals of the last window", title_justify="left", show_header=True)
        totals = sorted(self._board.totals.items())
        for region, _ in totals:
            table.add_column(region, justify="right")
        if totals:
            table.add_row(*(f"{count:,}" for _, (count, _) in totals))
            table.add_row(*(f"{cents / 100:,.0f} €" for _, (_, cents) in totals))
        return table


def make_view(board: Board, interval_ms: int, plain: bool) -> View:
    """Plain lines where `plain` asks for them or standard output is no terminal."""
    if plain or not Console().is_terminal:
        return PlainView(board, interval_ms)
    return LiveView(board, interval_ms)
