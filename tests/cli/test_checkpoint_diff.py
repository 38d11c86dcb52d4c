"""`kstream checkpoint diff` on checkpoints written as a driver writes them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kstream.batch import BatchOutcome, BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, take_epoch
from kstream.checkpoint.reader import write_meta
from kstream.cli import main
from kstream.storage import LocalFileStore
from tests.cli.written_checkpoints import INTERVAL, ZERO, at, write_checkpoint


def diff(first: Path, second: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["checkpoint", "diff", str(first), str(second), *options], env={"COLUMNS": "200"})


def data_of(first: Path, second: Path) -> dict[str, Any]:
    result = diff(first, second, "--json")
    assert result.exit_code == 1, result.stdout
    return json.loads(result.stdout)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A checkpoint and a copy of it."""
    write_checkpoint(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    return tmp_path / "one", tmp_path / "two"


def log_of(folder: Path) -> PlanLog:
    return PlanLog(LocalFileStore(folder), 1)


def orders(number: int, **ends: int) -> BatchPlan:
    """A batch of stream 0; `p0=7` is partition 0 from 5 times its number to 7."""
    ranges = [["orders", int(name[1:]), number * 5, end] for name, end in ends.items()]
    return BatchPlan(at(number), 1, "n", {0: {"ranges": ranges, "leader_epochs": [], "topic_ids": None}}, {0: 1}, at(1))


def test_a_copy_does_not_differ_and_that_is_a_sentence(pair: tuple[Path, Path]) -> None:
    result = diff(*pair)
    assert (result.exit_code, result.stdout) == (
        0,
        "nothing differs: 5 batches, with their ranges and states, and the offsets reached are the same\n",
    )
    as_json = diff(*pair, "--json")
    assert as_json.exit_code == 0 and json.loads(as_json.stdout)["same"] is True


def test_the_command_is_deprecated_and_names_the_other_one_beside_its_answer(pair: tuple[Path, Path]) -> None:
    assert "is deprecated: compare what `kstream checkpoint show --json` prints" in diff(*pair).stderr
    assert json.loads(diff(*pair, "--json").stdout)["same"] is True


def test_a_batch_that_only_one_has_is_shown_with_its_ranges_and_moves_where_it_stands(pair: tuple[Path, Path]) -> None:
    log_of(pair[1]).write_plan(orders(6, p0=40, p1=34, p2=7))
    found = data_of(*pair)
    assert found["only_in_first"] == [] and [b["time"] for b in found["only_in_second"]] == [at(6).milliseconds]
    assert found["standing"] == [
        {"stream": 0, "topic": "orders", "partition": 0, "first": 30, "second": 40, "records": 10},
        {"stream": 0, "topic": "orders", "partition": 1, "first": 32, "second": 34, "records": 2},
    ]
    output = diff(*pair).stdout
    assert "only in one" in output and "stream 0: orders/0 [30, 40)" in output and "+10" in output
    assert "the two differ: 1 batch only in the second, the second is 12 records ahead of the first" in output
    assert "the second is 12 records behind the first" in diff(pair[1], pair[0]).stdout


def test_states_and_ranges_of_a_batch_that_both_have_are_compared_partition_by_partition(tmp_path: Path) -> None:
    for name, plan in (("one", orders(1, p0=9, p1=6, p2=5)), ("two", orders(1, p0=8, p1=6, p3=7))):
        store = LocalFileStore(tmp_path / name)
        write_meta(store, Meta(Time(ZERO), Duration(INTERVAL)))
        PlanLog(store, take_epoch(store, ZERO)).write_plan(plan)
    log_of(tmp_path / "two").complete(at(1), 1, BatchOutcome(ZERO))
    (batch,) = data_of(tmp_path / "one", tmp_path / "two")["batches"]
    assert (batch["time"], batch["first"], batch["second"]) == (at(1).milliseconds, "pending", "done")
    assert batch["streams"] == [
        {
            "id": 0,
            "ranges": [
                {"topic": "orders", "partition": 0, "first": [5, 9], "second": [5, 8]},
                {"topic": "orders", "partition": 2, "first": [5, 5], "second": None},
                {"topic": "orders", "partition": 3, "first": None, "second": [5, 7]},
            ],
        }
    ]
    result = diff(tmp_path / "one", tmp_path / "two")
    rows = [[cell.strip() for cell in line.split("│")[3:-1]] for line in result.stdout.splitlines() if line.count("│") > 5]
    assert rows[:2] == [
        ["state", "pending", "done"],
        ["stream 0", "orders/0 [5, 9) orders/2 [5, 5)", "orders/0 [5, 8) orders/3 [5, 7)"],
    ]
    assert "1 batch of both, the second is 1 record behind the first, 2 partitions only in one" in result.stdout


@pytest.mark.parametrize("number, states", [(1, ("done", "pending")), (2, ("failed 2", "failed 1")), (3, ("given up", "pending"))])
def test_every_state_is_told_apart(pair: tuple[Path, Path], number: int, states: tuple[str, str]) -> None:
    folder = {1: "done", 2: "failed", 3: "given-up"}[number]
    newest = sorted(p for p in (pair[1] / folder).iterdir() if str(at(number).milliseconds) in p.name)[-1]
    newest.unlink()
    (batch,) = data_of(*pair)["batches"]
    assert (batch["first"], batch["second"]) == states and batch["streams"] == []


def test_zero_time_and_interval_are_compared(tmp_path: Path) -> None:
    for name, zero, interval in (("one", ZERO, 1000), ("two", ZERO + 500, 2000)):
        write_meta(LocalFileStore(tmp_path / name), Meta(Time(zero), Duration(interval)))
    found = data_of(tmp_path / "one", tmp_path / "two")
    assert [(m["name"], m["second"] - m["first"]) for m in found["meta"]] == [("zero_time", 500), ("interval", 1000)]
    output = diff(tmp_path / "one", tmp_path / "two").stdout
    assert "interval: 1000 ms in the first, 2000 ms in the second" in output and "the two differ: zero time, interval" in output


def test_plans_of_other_inputs_are_compared_as_json(tmp_path: Path) -> None:
    for name, files in (("one", ["a"]), ("two", ["a", "b"])):
        store = LocalFileStore(tmp_path / name)
        write_meta(store, Meta(Time(ZERO), Duration(INTERVAL)))
        log = PlanLog(store, take_epoch(store, ZERO))
        log.write_plan(BatchPlan(at(1), 1, "n", {0: {"files": files}, 1: {"same": True}}, {}, at(1)))
    found = data_of(tmp_path / "one", tmp_path / "two")
    assert found["batches"][0]["streams"] == [{"id": 0, "first": {"files": ["a"]}, "second": {"files": ["a", "b"]}}]
    assert found["standing"] == [] and '{"files": ["a", "b"]}' in diff(tmp_path / "one", tmp_path / "two").stdout


def test_long_tables_are_cut_and_say_so(tmp_path: Path) -> None:
    for name in ("one", "two"):
        store = LocalFileStore(tmp_path / name)
        write_meta(store, Meta(Time(ZERO), Duration(INTERVAL)))
        take_epoch(store, ZERO)
    for number in range(1, 31):
        log_of(tmp_path / "one").write_plan(orders(number, p0=number * 5 + 5))
    output = diff(tmp_path / "one", tmp_path / "two").stdout
    assert "… 10 more rows; --json has all" in output and "30 batches only in the first, 1 partition only in one" in output


def test_a_place_without_a_checkpoint_and_a_damaged_plan_are_one_line_and_no_difference(pair: tuple[Path, Path]) -> None:
    nowhere = pair[0].parent / "nowhere"
    for_nothing = diff(pair[0], nowhere)
    assert for_nothing.exit_code == 3 and for_nothing.stdout == ""
    said = f"kstream: there is no checkpoint in {nowhere}: no stream has started there (looked for {nowhere / 'meta'})\n"
    assert for_nothing.stderr == said
    newest = sorted((pair[1] / "plans").iterdir())[-1]
    newest.write_bytes(newest.read_bytes().replace(b"orders", b"0rders", 1))
    damaged = diff(*pair)
    assert (damaged.exit_code, damaged.stdout) == (3, "")
    assert len(damaged.stderr.splitlines()) == 1 and str(newest) in damaged.stderr


def test_comparing_loads_neither_pyspark_nor_kafka(pair: tuple[Path, Path]) -> None:
    program = (
        "import sys; from click.testing import CliRunner; from kstream.cli import main\n"
        f"result = CliRunner().invoke(main, ['checkpoint', 'diff', {str(pair[0])!r}, {str(pair[1])!r}])\n"
        "loaded = [m for m in ('pyspark', 'py4j', 'confluent_kafka') if m in sys.modules]\n"
        "sys.exit(result.exit_code or ', '.join(loaded) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
