"""`kstream ledger`: what a person sees of what was lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from kstream.batch import BatchOutcome, BatchPlan, InputOutcome
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, take_epoch
from kstream.checkpoint.reader import write_meta
from kstream.cli import main
from kstream.storage import LocalFileStore

ZERO = 1_700_000_000_000
AT = Time(ZERO + 1000)


def ledger(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["ledger", str(folder), *options], env={"COLUMNS": "220"})


def entry(**fields: Any) -> dict[str, Any]:
    return {"topic": "orders", "partition": 1, "from": 5, "until": 8, "cause": "retention", "detail": "removed too early", **fields}


def checkpoint(folder: Path) -> PlanLog:
    store = LocalFileStore(folder)
    write_meta(store, Meta(Time(ZERO), Duration(1000)))
    return PlanLog(store, take_epoch(store, ZERO))


def test_an_empty_ledger_says_so_and_is_no_alarm(tmp_path: Path) -> None:
    checkpoint(tmp_path).complete(AT, 1, BatchOutcome(ZERO))
    result = ledger(tmp_path, "--check")
    assert result.exit_code == 0 and "is empty" in result.output
    assert json.loads(ledger(tmp_path, "--json").output)["lost"] == []


def test_every_loss_is_shown_with_its_batch_its_offsets_and_its_cause(tmp_path: Path) -> None:
    log = checkpoint(tmp_path)
    outcome = InputOutcome([3], [entry(), entry(partition=2, until=None, cause="deletion", detail="[gone]")])
    log.complete(AT, log.epoch, BatchOutcome(ZERO + 2000, {0: outcome}))
    output = ledger(tmp_path).output
    one, two = (line for line in output.splitlines() if "orders/" in line)
    assert "orders/1" in one and "[5, 8)" in one and "retention" in one and "removed too early" in one
    assert str(AT.milliseconds) in one and "2023-11-14 22:13:21" in one
    assert "[5, …)" in two and "deletion" in two and "[gone]" in two
    assert "2 entries, 3 offsets" in output
    assert json.loads(ledger(tmp_path, "--json").output)["lost"][0] == {
        "batch": AT.milliseconds,
        "at": ZERO + 2000,
        "epoch": 1,
        "stream": 0,
        **entry(),
    }


def test_a_loss_of_an_input_with_other_partitions_is_told_as_it_is(tmp_path: Path) -> None:
    """Its partitions have the name of Kafka's, and other types."""
    log = checkpoint(tmp_path)
    log.complete(AT, log.epoch, BatchOutcome(ZERO, {0: InputOutcome([], [entry(partition="shard-0", **{"from": "4958"})])}))
    output = ledger(tmp_path).output
    assert "shard-0" in output and "4958" in output and "1 entry" in output


def test_a_batch_that_was_given_up_counts_with_all_its_ranges(tmp_path: Path) -> None:
    log = checkpoint(tmp_path)
    data = {0: {"ranges": [["orders", 0, 5, 9], ["orders", 1, 7, 7]]}, 1: {"from": 3}}
    log.give_up(BatchPlan(AT, 1, "n", data, {}, AT), ZERO, 4)
    rows = json.loads(ledger(tmp_path, "--json").output)["lost"]
    assert [(r["stream"], r.get("from"), r.get("until"), r["cause"]) for r in rows] == [(0, 5, 9, "given up"), (1, None, None, "given up")]
    replay = f"kstream replay MODULE:SETUP --checkpoint {tmp_path} --from {AT.milliseconds} --to {AT.milliseconds} --sink same"
    assert [r["replay"].replace("file://", "") for r in rows] == [replay, replay]
    output = ledger(tmp_path).output
    assert "failed 4 times" in output
    assert output.replace("file://", "").count(replay) == 1, "once a batch, in one line that can be copied"


def test_with_check_a_loss_is_exit_code_1_and_one_line(tmp_path: Path) -> None:
    log = checkpoint(tmp_path)
    log.complete(AT, 1, BatchOutcome(ZERO, {0: InputOutcome([], [entry()])}))
    result = ledger(tmp_path, "--check")
    assert result.exit_code == 1 and "has 1 entry in its ledger" in result.output


def test_a_place_without_a_checkpoint_is_one_line(tmp_path: Path) -> None:
    result = ledger(tmp_path)
    assert result.exit_code == 3 and result.output.startswith("kstream: there is no checkpoint in")


def test_a_damaged_checkpoint_is_exit_code_3_also_if_its_ledger_is_empty(tmp_path: Path) -> None:
    log = checkpoint(tmp_path)
    log.write_plan(BatchPlan(AT, 1, "n", {0: {"ranges": [["orders", 0, 5, 9]]}}, {}, AT))
    (plan,) = (tmp_path / "plans").iterdir()
    plan.write_bytes(plan.read_bytes().replace(b"orders", b"0rders", 1))
    result = ledger(tmp_path)
    assert result.exit_code == 3 and "is damaged" in result.stderr and str(plan) in result.stderr
    assert "is empty" in result.stdout


# -- acknowledged entries


def losses(folder: Path) -> PlanLog:
    log = checkpoint(folder)
    log.complete(AT, 1, BatchOutcome(ZERO, {0: InputOutcome([], [entry()])}))
    log.give_up(BatchPlan(LATER, 1, "n", {0: {"ranges": [["orders", 0, 5, 9]]}}, {}, AT), ZERO, 4)
    return log


LATER = Time(ZERO + 2000)


def ack(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["ledger", "ack", str(folder), *words])


def test_an_acknowledged_entry_is_no_alarm_and_is_hidden_unless_it_is_asked_for(tmp_path: Path) -> None:
    losses(tmp_path)
    assert ack(tmp_path, str(AT.milliseconds)).output == "1 acknowledged, 0 had been before\n"
    shown = ledger(tmp_path, "--check")
    assert shown.exit_code == 1 and "has 1 entry in its ledger" in shown.output
    assert "retention" not in shown.output and "given up" in shown.output and "1 batch with acknowledged entries not shown" in shown.output
    assert ack(tmp_path, "--all").output == "1 acknowledged, 1 had been before\n"
    assert ledger(tmp_path, "--check").exit_code == 0
    everything = ledger(tmp_path, "--all", "--check")
    assert everything.exit_code == 0 and "retention" in everything.output, "shown, and no alarm"
    data = json.loads(ledger(tmp_path, "--all", "--json").output)
    assert [row["acknowledged"] for row in data["lost"]] == [True, True] and data["hidden"] == 0
    assert json.loads(ledger(tmp_path, "--json").output) == {"path": data["path"], "lost": [], "hidden": 2}


def test_an_entry_that_comes_after_the_acknowledgement_is_a_new_one(tmp_path: Path) -> None:
    log = losses(tmp_path)
    ack(tmp_path, "--all")
    log.epoch += 1
    log.complete(AT, 1, BatchOutcome(ZERO, {0: InputOutcome([], [entry(partition=7)])}))
    result = ledger(tmp_path, "--check")
    assert result.exit_code == 1 and "orders/7" in result.output and "orders/1" not in result.output


def test_a_batch_without_an_entry_is_one_line_and_nothing_is_acknowledged(tmp_path: Path) -> None:
    losses(tmp_path)
    result = ack(tmp_path, str(AT.milliseconds), "17")
    assert result.exit_code == 1 and "no entry of batch 17 ms: nothing is acknowledged" in result.output
    assert ledger(tmp_path, "--json").output.count('"batch"') == 2
    assert ack(tmp_path).exit_code == 2 and ack(tmp_path, "--all", "17").exit_code == 2


def test_the_ledger_says_what_it_can_do(tmp_path: Path) -> None:
    assert "ack" in CliRunner().invoke(main, ["ledger", "--help"]).output
    assert CliRunner().invoke(main, ["ledger", "show", str(tmp_path)]).exit_code == 3
