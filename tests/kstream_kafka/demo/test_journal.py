"""What the demo makes of the journal of its drivers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from kstream_kafka.demo.command import short_ranges
from kstream_kafka.demo.journal import Journal

from kstream.cli import main
from kstream.offsets.offset_range import PlannedRange


def attempt(pid: int, batch: int, begin: int, end: int) -> dict[str, Any]:
    return {"event": "attempt", "pid": pid, "batch": batch, "ranges": [["orders", 0, begin, end]]}


def killed_and_restarted(folder: Path) -> Journal:
    """Batch 1000 done, 2000 killed while it ran, 3000 planned only; then both again, 4000 made up, 5000 on time."""
    path = folder / "journal.jsonl"
    first = [{"event": "started", "pid": 7, "at": 500}, attempt(7, 1000, 0, 10), attempt(7, 2000, 10, 20)]
    again = [{"event": "started", "pid": 8, "at": 4500}, attempt(8, 2000, 10, 20), attempt(8, 3000, 20, 25)]
    lines = [*first, *again, attempt(8, 4000, 25, 70), attempt(8, 5000, 70, 100)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    journal = Journal(path)
    journal.read()
    return journal


def test_a_batch_is_told_apart_by_why_it_ran(tmp_path: Path) -> None:
    journal = killed_and_restarted(tmp_path)
    assert [(one.batch, one.driver) for one in journal.attempts] == [(1000, 1), (2000, 1), (2000, 2), (3000, 2), (4000, 2), (5000, 2)]
    assert [one.batch for one in journal.made_up({2000, 3000})] == [4000]
    assert [one.batch for one in journal.live()] == [5000]


def test_the_records_of_a_batch_that_ran_again_count_once(tmp_path: Path) -> None:
    assert killed_and_restarted(tmp_path).num_records() == 100


def test_the_journal_is_followed_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.read()
    path.write_text('{"event": "started", "pid": 7, "at": 1}\n{"event": "started", "p')
    journal.read()
    assert (journal.drivers, journal.restarted_at) == ([7], 0)
    with open(path, "a") as file:
        file.write('id": 8, "at": 2}\n')
    for _ in range(2):
        journal.read()
        assert (journal.drivers, journal.restarted_at) == ([7, 8], 2)


def test_an_attempt_before_the_listener_hears_of_the_start_is_of_the_driver_that_starts(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    started, early = {"event": "started", "pid": 7, "at": 1}, attempt(8, 1000, 0, 10)
    path.write_text(f"{json.dumps(started)}\n{json.dumps(early)}\n")
    journal = Journal(path)
    journal.read()
    assert [one.driver for one in journal.attempts] == [2]


def test_the_first_failure_and_no_attempt_without_records_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    lines = [{**attempt(7, 1000, 0, 10), "ranges": []}, *({"event": "failed", "pid": 7, "batch": 1000, "reason": why} for why in "ab")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    journal = Journal(path)
    journal.read()
    assert (journal.attempts, journal.failure) == ([], (1000, "a"))


def test_the_ranges_of_one_topic_are_shown_without_its_name() -> None:
    assert short_ranges([PlannedRange("a", 0, 5, 10), PlannedRange("a", 1, 7, 9)]) == "0 [5, 10) 1 [7, 9)"


def test_the_demo_refuses_numbers_that_cannot_work() -> None:
    assert CliRunner().invoke(main, ["demo", "--batches", "2"]).exit_code == 2
