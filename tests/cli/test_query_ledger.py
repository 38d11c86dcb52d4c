"""The ledger of a query of Structured Streaming, as `ledger`, `lag`, `offsets show` and `status` show it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kstream.checkpoint.query_ledger import add_losses
from kstream.cli.exit_codes import ReadingCode
from kstream.offsets.offset_range import LostRange
from kstream.storage import LocalFileStore
from tests.cli.query_checkpoints import REAL, data, run

FOUND = 1_795_503_900_000


@pytest.fixture
def lossy(tmp_path: Path) -> str:
    """A real checkpoint with two entries."""
    path = tmp_path / "query"
    shutil.copytree(REAL / "v1", path)
    add_losses(LocalFileStore(str(path)), "batch-1", FOUND, [LostRange("orders", 0, 5, 9, "retention", "the log begins at 9")])
    add_losses(LocalFileStore(str(path)), "batch-2", FOUND + 1, [LostRange("orders", 1, 18, None, "recreation", "created again")])
    return str(path)


def test_the_ledger_of_a_query_has_a_row_for_each_range(lossy: str) -> None:
    rows = data("ledger", lossy)["lost"]
    assert [(row["at"], row["partition"], row["from"], row["until"], row["cause"]) for row in rows] == [
        (FOUND, 0, 5, 9, "retention"),
        (FOUND + 1, 1, 18, None, "recreation"),
    ]
    said = run("ledger", lossy).stdout
    assert "orders/0" in said and "[5, 9)" in said and "[18, …)" in said and "2026-11-24" in said


def test_the_exit_code_tells_a_monitor_of_an_entry(lossy: str) -> None:
    checked = run("ledger", lossy, "--check")
    assert checked.exit_code == ReadingCode.BEHIND and "2 entries in its ledger" in checked.stderr
    assert run("ledger", str(REAL / "v1"), "--check").exit_code == 0


def test_an_empty_ledger_says_so() -> None:
    assert "is empty" in run("ledger", str(REAL / "v1")).stdout
    assert data("status", str(REAL / "v1"))["ledger"] == 0


def test_status_offsets_and_lag_name_the_losses(lossy: str, bootstrap: str) -> None:
    words = "the ledger has 2 ranges of lost records of orders, 4 offsets as far as their ends are known"
    assert words in run("status", lossy).stdout and data("status", lossy)["ledger"] == 2
    for command in (("offsets", "show", lossy), ("lag", lossy, "--bootstrap", bootstrap)):
        [note] = data(*command)["notes"]
        assert note == f"{words}: `kstream ledger {lossy}`"


def test_a_damaged_entry_is_an_error_and_never_an_empty_ledger(lossy: str) -> None:
    [entry, _] = sorted(Path(lossy, "kstream-ledger").iterdir())
    entry.write_bytes(entry.read_bytes()[:-5])
    for command in ("ledger", "status"):
        result = run(command, lossy)
        assert result.exit_code == ReadingCode.UNREADABLE and "is damaged" in result.stderr


def test_acknowledged_entries_are_no_alarm_and_are_hidden_unless_they_are_asked_for(lossy: str) -> None:
    assert run("ledger", "ack", lossy, str(FOUND)).stdout == "1 acknowledged, 0 had been before\n"
    said = run("ledger", lossy, "--check")
    assert said.exit_code == ReadingCode.BEHIND and "has 1 entry in its ledger" in said.stderr
    assert "retention" not in said.stdout and "1 batch with acknowledged entries not shown (--all shows them)" in said.stdout
    assert data("status", lossy)["ledger"] == 1
    assert run("ledger", "ack", lossy, "--all").stdout == "1 acknowledged, 1 had been before\n"
    assert run("ledger", lossy, "--check").exit_code == 0 and "2 batches with" in run("ledger", lossy).stdout
    assert data("ledger", lossy)["hidden"] == 2 and data("ledger", lossy)["lost"] == []
    assert data("status", lossy)["ledger"] == 0 and data("offsets", "show", lossy)["notes"] == []
    shown = run("ledger", lossy, "--all", "--check")
    assert shown.exit_code == 0 and "retention" in shown.stdout
    assert [row["acknowledged"] for row in data("ledger", lossy, "--all")["lost"]] == [True, True]


def test_a_time_at_which_nothing_was_found_is_one_line_and_nothing_is_acknowledged(lossy: str) -> None:
    result = run("ledger", "ack", lossy, str(FOUND), "17")
    assert result.exit_code == 1 and "no entry found at 17 ms: nothing is acknowledged" in result.stderr
    assert len(data("ledger", lossy)["lost"]) == 2
    assert str(FOUND) in run("ledger", lossy).stdout, "the table has the times that the command takes"
