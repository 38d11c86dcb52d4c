"""`kstream history`: past batches of the history and of the log, as a person and as a machine read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kstream.batch import (
    BatchDelays,
    BatchOutcome,
    BatchPlan,
    InputOutcome,
    OutcomeFigures,
    OutputFigures,
    OutputOperationInfo,
    StateFigures,
)
from kstream.checkpoint.history import PastBatch, write_segment
from kstream.cli import main
from kstream.storage import LocalFileStore
from tests.cli.written_checkpoints import at, write_checkpoint


def history(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["history", str(folder), *options])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches −29 to 0 are in the history, the last of them without a completion; 1 to 5 are in the log (4 is void)."""
    log, store = write_checkpoint(tmp_path), LocalFileStore(tmp_path)
    data = {0: {"ranges": [["orders", 0, 5, 10]], "leader_epochs": [None], "topic_ids": None}}
    past = [BatchPlan(at(n), 1, "n", data, {0: 5}, at(n), names={0: "all"}) for n in range(-29, 1)]
    write_segment(store, 1, [PastBatch(plan, None if plan.time == at(0) else {0: [4]}) for plan in past])
    written = OutputOperationInfo(at(5), 1, "saveToKafka at job.py:41", "", 40, 1290, None, figures=OutputFigures(transactions=3))
    figures = OutcomeFigures(StateFigures(written_bytes=4096), (written,))
    log.complete(at(5), 1, BatchOutcome(0, {0: InputOutcome([5, 6, 0], [])}, delays=BatchDelays(40, 1250), figures=figures))
    return tmp_path


def test_the_newest_batches_are_shown_those_of_the_log_after_those_of_the_history(checkpoint: Path) -> None:
    shown = history(checkpoint)
    assert shown.exit_code == 0, shown.output
    rows = [[cell.strip() for cell in line.split("│")[2:9]] for line in shown.stdout.splitlines() if "orders/0" in line]
    assert len(rows) == 20 and "34 batches (the last 20 shown)" in shown.stdout
    assert rows[-5] == [str(at(0).milliseconds), "1", "not done", "", "0 all", "5", "orders/0 [5, 10)"]
    assert [row[2] for row in rows[-6:]] == ["done", "not done", "done", "failed 2", "given up", "done"]
    assert rows[-1][5] == "11", "what was read, where it is known"
    assert rows[-1][3] == "1,290 ms"


def test_a_span_of_time_has_all_of_its_batches_and_last_cuts_it(checkpoint: Path) -> None:
    span = ["--from", str(at(-28).milliseconds), "--to", str(at(1).milliseconds), "--json"]
    times = [batch["time"] for batch in json.loads(history(checkpoint, *span).stdout)["batches"]]
    assert times == [at(n).milliseconds for n in range(-28, 2)]
    assert [b["time"] for b in json.loads(history(checkpoint, *span, "--last", "2").stdout)["batches"]] == times[-2:]


def test_json_has_the_ranges_and_what_was_planned_and_read(checkpoint: Path) -> None:
    (batch,) = json.loads(history(checkpoint, "--from", str(at(-1).milliseconds), "--to", str(at(-1).milliseconds), "--json").stdout)[
        "batches"
    ]
    (stream,) = batch.pop("streams")
    assert batch == {"time": at(-1).milliseconds, "epoch": 1, "outcome": "done"}
    assert (stream["id"], stream["name"], stream["planned"], stream["read"]) == (0, "all", 5, 4)
    assert stream["plan"]["ranges"] == [["orders", 0, 5, 10]]


def test_json_has_the_delays_of_a_batch_that_had_jobs(checkpoint: Path) -> None:
    batches = json.loads(history(checkpoint, "--last", "3", "--json").stdout)["batches"]
    assert [(b.get("scheduling_delay"), b.get("processing")) for b in batches] == [(None, None), (None, None), (40, 1250)]


def test_json_has_the_figures_of_states_and_outputs_where_they_are_known(checkpoint: Path) -> None:
    older, batch = json.loads(history(checkpoint, "--last", "2", "--json").stdout)["batches"]
    assert "figures" not in older
    output = {"id": 1, "name": "saveToKafka at job.py:41", "durationMs": 1250, "transactions": 3}
    assert batch["figures"] == {"state": {"writtenBytes": 4096}, "outputs": [output]}


def test_a_place_without_a_checkpoint_is_one_line_with_the_code_of_all_commands_that_read(tmp_path: Path) -> None:
    result = history(tmp_path)
    assert result.exit_code == 3 and len(result.output.splitlines()) == 1 and "there is no checkpoint" in result.output
