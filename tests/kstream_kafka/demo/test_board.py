"""What the demo makes of a driver's journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner
from kstream_kafka.demo.board import Board, PlainView, Run, follow, short_ranges

from kstream.cli import main
from kstream.offsets.offset_range import PlannedRange


def lines(pid: int, batch: int, begin: int, end: int, ended: bool = True) -> list[dict[str, Any]]:
    """A batch's life in the journal."""
    said: list[dict[str, Any]] = [
        {"event": "submitted", "pid": pid, "batch": batch, "records": end - begin},
        {"event": "attempt", "pid": pid, "batch": batch, "ranges": [["orders", 0, begin, end]]},
    ]
    if ended:
        delays = {"scheduling": 3, "processing": 40, "failures": []}
        said.append({"event": "completed", "pid": pid, "batch": batch, "records": end - begin, **delays})
    return said


def killed_and_restarted() -> Board:
    """Batch 1000 done, 2000 killed while it ran, 3000 planned only; then both again, 4000 made up, 5000 on time."""
    board = Board()
    board.acknowledged = 100
    first = [{"event": "started", "pid": 7, "at": 500}, *lines(7, 1000, 0, 10), *lines(7, 2000, 10, 20, ended=False)]
    for line in [*first, {"event": "submitted", "pid": 7, "batch": 3000, "records": 5}]:
        board.add(line)
    board.killed({2000, 3000})
    second = [{"event": "started", "pid": 8, "at": 4500}, *lines(8, 2000, 10, 20), *lines(8, 3000, 20, 25)]
    for line in [*second, *lines(8, 4000, 25, 70), *lines(8, 5000, 70, 100)]:
        board.add(line)
    return board


def test_a_batch_is_told_apart_by_why_it_ran() -> None:
    board = killed_and_restarted()
    assert [(r.batch, r.run) for r in board.ended(driver=2)] == [
        (2000, Run.RE_RUN),
        (3000, Run.RE_RUN),
        (4000, Run.MADE_UP),
        (5000, Run.FIRST),
    ]
    assert [r.batch for r in board.ended(run=Run.FIRST)] == [1000, 5000]


def test_what_a_killed_driver_left_is_shown_as_killed_or_not_begun() -> None:
    board = killed_and_restarted()
    assert [(r.batch, r.state) for r in board.newest(20) if r.driver == 1] == [
        (1000, "done"),
        (2000, "killed"),
        (3000, "not begun"),
    ]


def test_lag_is_what_kafka_had_beyond_the_batch_when_it_began() -> None:
    assert [r.lag for r in killed_and_restarted().ended()] == [90, 80, 75, 30, 0]


def test_the_journal_is_followed_by_whole_lines(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    steps = follow(journal)
    assert next(steps) == []
    journal.write_text('{"event": "started"}\n{"event": "att')
    assert next(steps) == [{"event": "started"}]
    with open(journal, "a") as file:
        file.write('empt"}\n')
    assert next(steps) == [{"event": "attempt"}]
    assert next(steps) == []


def test_a_plain_line_holds_all_that_the_table_does(capsys: Any) -> None:
    board = killed_and_restarted()
    PlainView(board, 1000).show_ended(board.ended(run=Run.MADE_UP)[0])
    line = capsys.readouterr().out
    for part in ("made up", "done", "45 orders", "delay      3 ms", "processing     40 ms", "lag     30", "0 [25, 70)"):
        assert part in line


def test_the_ranges_of_one_topic_are_shown_without_its_name() -> None:
    assert short_ranges([PlannedRange("a", 0, 5, 10), PlannedRange("a", 1, 7, 9)]) == "0 [5, 10) 1 [7, 9)"


def test_the_demo_refuses_numbers_that_cannot_work() -> None:
    assert CliRunner().invoke(main, ["demo", "--batches", "2"]).exit_code == 2


def test_the_table_keeps_the_running_batch_in_sight_when_many_wait() -> None:
    board = Board()
    board.add({"event": "started", "pid": 7, "at": 0})
    for n in range(1, 41):
        for line in lines(7, n * 1000, n, n + 1) if n <= 10 else lines(7, n * 1000, n, n + 1)[: 2 if n == 11 else 1]:
            board.add(line)
    shown = board.newest(6)
    assert [r.batch for r in shown] == [8000, 9000, 10000, 11000, 12000, 13000]
    assert shown[3].state == "running"


def test_a_batch_that_was_completed_before_the_kill_counts_though_its_listener_never_heard_of_it() -> None:
    board = Board()
    board.add({"event": "started", "pid": 7, "at": 500})
    for line in lines(7, 1000, 0, 10, ended=False):
        board.add(line)
    board.killed(set())
    assert [(r.batch, r.records) for r in board.ended()] == [(1000, 10)]
