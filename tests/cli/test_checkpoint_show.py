"""`kstream checkpoint show` on checkpoints written as a driver writes them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from kstream.batch import BatchOutcome, BatchPlan, StateCheckpoint
from kstream.batch_time import Duration
from kstream.checkpoint.interval_change import IntervalChange, write_change
from kstream.cli import main
from kstream.storage import LocalFileStore
from tests.cli.written_checkpoints import INTERVAL, ZERO, at, write_checkpoint


def show(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["checkpoint", "show", str(folder), *options], env={"COLUMNS": "200"})


def test_each_batch_is_shown_with_its_state_and_its_ranges(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    result = show(tmp_path)
    assert result.exit_code == 0, result.output
    rows = {line.split("│")[2].strip(): line for line in result.output.splitlines() if line.count("│") > 5}
    for number, state in ((1, "done"), (2, "failed 2"), (3, "given up"), (4, "void"), (5, "pending")):
        assert f" {state} " in rows[str(at(number).milliseconds)]
    assert "orders/0 [5, 10) /1 [5, 12) (1 empty)" in rows[str(at(1).milliseconds)]
    assert "5 batches kept: 1 done, 1 failed, 1 given up, 1 pending, 1 void" in result.output
    assert "batch interval 1000 ms" in result.output and "epoch 1: a driver started at" in result.output


def test_json_holds_the_plans_as_they_are_stored(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    data = json.loads(show(tmp_path, "--json").output)
    assert (data["zero_time"], data["interval"]) == (ZERO, INTERVAL)
    assert data["epochs"] == [{"epoch": 1, "taken_at": ZERO}]
    assert [plan["state"] for plan in data["plans"]] == ["done", "failed 2", "given up", "void", "pending"]
    assert data["plans"][0]["streams"][0]["records"] == 12
    assert data["plans"][0]["streams"][0]["plan"]["ranges"][1] == ["orders", 1, 5, 12]


def write_states(folder: Path) -> list[str]:
    """Batches 5 and 6 end, and name the states that batches 4 and 6 left; of the older ones one file has gone. The files of batch 6."""
    log, store = write_checkpoint(folder, 6), LocalFileStore(folder)
    files = {number: [f"state/{at(number).milliseconds}-000001-s0-0000{part}-{'0' * 16}" for part in (0, 1)] for number in (4, 6)}
    for name in (files[4][0], *files[6]):
        store.create(name, b"x" * 700)
    log.complete(at(5), 1, BatchOutcome(ZERO, states={"s0": StateCheckpoint(at(4), tuple(files[4]), 7)}))
    log.complete(
        at(6), 1, BatchOutcome(ZERO, states={"s0": StateCheckpoint(at(6), tuple(files[6]), 7), "s1": StateCheckpoint(at(6), (), None)})
    )
    return files[6]


def test_the_states_that_a_batchs_completion_names_are_shown_under_it(tmp_path: Path) -> None:
    write_states(tmp_path)
    rows = [line for line in show(tmp_path).output.splitlines() if line.count("│") > 5]
    (fifth,) = (index for index, line in enumerate(rows) if str(at(5).milliseconds) in line.split("│")[2])
    assert [row.split("│")[5].strip() for row in rows[fifth:]] == ["0", "state s0", "0", "state s0", "state s1"]
    told = [row.split("│")[7].strip() for row in rows[fifth:] if "state s" in row]
    assert told == [
        f"as batch {at(4)} left it: 2 files, 1 of them not there any more",
        f"as batch {at(6)} left it: 2 files, 1,400 bytes",
        f"as batch {at(6)} left it: 0 files, 0 bytes",
    ]


def test_json_holds_the_states_with_their_files_and_bytes(tmp_path: Path) -> None:
    files = write_states(tmp_path)
    data = json.loads(show(tmp_path, "--json", "--last", "1").output)
    assert data["plans"][0]["states"] == [
        {"stream": "s0", "time": at(6).milliseconds, "files": files, "bytes": 1400, "missing": []},
        {"stream": "s1", "time": at(6).milliseconds, "files": [], "bytes": 0, "missing": []},
    ]
    assert [plan["states"] for plan in json.loads(show(tmp_path, "--json").output)["plans"][:4]] == [[]] * 4


def test_last_leaves_out_older_batches_and_says_so(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    result = show(tmp_path, "--last", "2")
    assert str(at(5).milliseconds) in result.output and str(at(3).milliseconds) not in result.output
    assert "5 batches kept (the last 2 shown)" in result.output


def test_twenty_batches_are_shown_unless_more_are_asked_for(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 25)
    assert "25 batches kept (the last 20 shown)" in show(tmp_path).output and str(at(5).milliseconds) not in show(tmp_path).output
    assert str(at(5).milliseconds) in show(tmp_path, "--all").output and str(at(5).milliseconds) in show(tmp_path, "--last", "25").output


def test_in_a_pipe_no_row_is_wrapped_or_cut(tmp_path: Path) -> None:
    log = write_checkpoint(tmp_path)
    ranges = [[f"a-topic-with-quite-a-long-name-{n}", 0, 1_000_000, 2_000_000] for n in range(8)]
    log.write_plan(BatchPlan(at(6), log.epoch, "n", {0: {"ranges": ranges, "leader_epochs": [None] * 8, "topic_ids": None}}, {0: 8}, at(1)))
    result = CliRunner().invoke(main, ["checkpoint", "show", str(tmp_path)], env={"COLUMNS": "80"})
    (row,) = (line for line in result.output.splitlines() if str(at(6).milliseconds) in line)
    assert all(f"{topic}/0 [1000000, 2000000)" in row for topic, *_ in ranges)


def test_a_damaged_plan_is_one_line_that_names_the_file(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    newest = sorted((tmp_path / "plans").iterdir())[-1]
    newest.write_bytes(newest.read_bytes().replace(b"orders", b"0rders", 1))
    result = show(tmp_path)
    assert result.exit_code == 3
    assert len(result.output.splitlines()) == 1 and str(newest) in result.output and "damaged" in result.output


def test_a_place_without_a_checkpoint_is_one_line_and_stays_as_it_was(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    result = show(missing)
    assert result.exit_code == 3
    assert result.output.splitlines() == [
        f"kstream: there is no checkpoint in {missing}: no stream has started there (looked for {missing / 'meta'})"
    ]
    assert not missing.exists()


def test_a_store_that_cannot_hold_a_checkpoint_is_refused_in_one_line() -> None:
    result = CliRunner().invoke(main, ["checkpoint", "show", "s3://bucket/orders"])
    assert result.exit_code == 3 and len(result.output.splitlines()) == 1 and "s3://" in result.output


def test_showing_a_checkpoint_loads_no_pyspark(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    program = (
        "import sys; from click.testing import CliRunner; from kstream.cli import main\n"
        f"result = CliRunner().invoke(main, ['checkpoint', 'show', {str(tmp_path)!r}])\n"
        "loaded = [m for m in ('pyspark', 'py4j', 'confluent_kafka') if m in sys.modules]\n"
        "sys.exit(result.exit_code or ', '.join(loaded) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_a_changed_interval_is_shown_with_the_last_batch_before_it(tmp_path: Path) -> None:
    log = write_checkpoint(tmp_path)
    write_change(LocalFileStore(tmp_path), log.epoch, IntervalChange(at(5), at(3), Duration(3000)))
    said = " ".join(show(tmp_path).output.split())
    assert "batch interval 3000 ms, first batch at" in said and f"(after batch {at(5)}, the last one of another interval)" in said
    data = json.loads(show(tmp_path, "--json").output)
    assert (data["zero_time"], data["interval"], data["interval_changed_after"]) == (ZERO + 3000, 3000, at(5).milliseconds)
