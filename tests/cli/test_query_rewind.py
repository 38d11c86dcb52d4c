"""`kstream offsets rewind` on the checkpoint of a query of Structured Streaming: back to where an earlier batch begins."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kstream.cli.query_offsets import read_committed
from kstream.storage import LocalFileStore
from tests.cli.query_checkpoints import BEGUN, REAL, data, query, run

MINUTE = 60_000


def ends(*ends: int) -> dict[int, list[str]]:
    """A source of one topic by batch."""
    return {number: [f'{{"orders":{{"0":{end}}}}}'] for number, end in enumerate(ends)}


def stored(folder: Path, batches: dict[int, list[str]]) -> Path:
    """A query at rest, with a batch each minute."""
    return query(folder, batches, list(batches), every_ms=MINUTE)


def rewind(path: Path, to: object, *options: str) -> Result:
    return run("offsets", "rewind", str(path), "--to", str(to), *options)


def offsets(path: Path) -> dict[int, Any]:
    return {row["partition"]: (row["completed"], row["next"]) for row in data("offsets", "show", str(path))["partitions"]}


@pytest.mark.parametrize(("later_ms", "batch", "at"), [(MINUTE, 1, 10), (MINUTE + 1, 2, 25), (3 * MINUTE, 3, 40)])
def test_a_query_goes_back_to_where_the_first_batch_since_then_begins(tmp_path: Path, later_ms: int, batch: int, at: int) -> None:
    path = stored(tmp_path / "q", ends(10, 25, 40, 70))
    said = rewind(path, BEGUN + later_ms, "--take-over").stdout
    assert f"source 0 goes back to where batch {batch} begins (2026-11-24 " in said and "set, as batch 4" in said
    assert offsets(path) == {0: (at, at)}
    assert data("status", str(path))["state"] == "committed" and data("ledger", str(path))["lost"] == []


def test_a_query_goes_back_no_further_than_to_the_end_of_the_oldest_batch_that_spark_has_kept(tmp_path: Path) -> None:
    batches = ends(10, 25, 40, 70)
    path = stored(tmp_path / "q", {number: batches[number] for number in (1, 2, 3)})
    assert "where batch 2 begins" in rewind(path, 0, "--take-over").stdout
    assert offsets(path) == {0: (25, 25)}


def test_a_first_batch_begins_where_sparks_source_has_stored_it(tmp_path: Path) -> None:
    path = stored(tmp_path / "q", ends(10, 25))
    assert "where batch 1 begins" in rewind(path, 0, "--dry-run").stdout
    (path / "sources" / "0").mkdir(parents=True)
    (path / "sources" / "0" / "0").write_bytes(b'\0v1\n{"orders":{"0":3}}')
    assert rewind(path, 0, "--take-over").exit_code == 0 and offsets(path) == {0: (3, 3)}


def test_a_change_begins_where_it_ends_and_what_lies_between_is_in_the_ledger(tmp_path: Path) -> None:
    path = stored(tmp_path / "q", ends(10, 25, 40))
    assert rewind(path, BEGUN + MINUTE, "--take-over").exit_code == 0
    since = read_committed(LocalFileStore(str(path)), 0).entry.metadata["batchTimestampMs"]
    shutil.copy(path / "offsets" / "2", path / "offsets" / "4")
    shutil.copy(path / "commits" / "2", path / "commits" / "4")
    text = (path / "offsets" / "4").read_text().replace(str(BEGUN + 2 * MINUTE), str(since + 1))
    (path / "offsets" / "4").write_text(text)
    assert "where batch 3 begins" in rewind(path, since, "--take-over").stdout and offsets(path) == {0: (10, 10)}
    assert "where batch 4 begins" in rewind(path, since + 1, "--dry-run").stdout
    assert "where batch 5 begins" in rewind(path, since + 2, "--dry-run").stdout
    text = (path / "offsets" / "5").read_text().replace('"0":10', '"0":5')
    (path / "offsets" / "5").write_text(text)
    assert rewind(path, since, "--take-over").exit_code == 0
    assert [(row["from"], row["until"], row["cause"]) for row in data("ledger", str(path))["lost"]] == [(5, 10, "reset")]


def test_one_source_goes_back_and_the_others_stay(tmp_path: Path) -> None:
    lines = {number: [f'{{"orders":{{"0":{at}}}}}', f'{{"clicks":{{"0":{at}}}}}', '{"other":1}'] for number, at in enumerate((1, 2, 3))}
    path = stored(tmp_path / "q", lines)
    assert rewind(path, BEGUN + MINUTE, "--source", "1", "--take-over").exit_code == 0
    assert (path / "offsets" / "3").read_text().splitlines()[2:] == ['{"orders":{"0":3}}', '{"clicks":{"0":1}}', '{"other":1}']


def test_a_partition_that_came_later_stays_where_it_is(tmp_path: Path) -> None:
    path = stored(tmp_path / "q", {0: ['{"orders":{"0":1}}'], 1: ['{"orders":{"0":5,"1":7}}']})
    assert rewind(path, BEGUN + MINUTE, "--take-over").exit_code == 0
    assert offsets(path) == {0: (1, 1), 1: (7, 7)}


def test_named_sources_and_the_form_of_their_offsets_stay(tmp_path: Path) -> None:
    batches = {0: ['shop:{"orders": {"0": 5}}'], 1: ['shop:{"orders": {"0": 9}}']}
    path = query(tmp_path / "q", batches, [0, 1], "v2", MINUTE)
    assert rewind(path, BEGUN + 1, "--source", "shop", "--take-over").exit_code == 0
    assert (path / "offsets" / "2").read_text().splitlines()[2:] == ['shop:{"orders": {"0": 5}}']


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    path = stored(tmp_path / "q", ends(10, 25))
    said = rewind(path, BEGUN + MINUTE, "--dry-run").stdout
    assert "-15" in said and "dry run: nothing was changed" in said and not (path / "offsets" / "2").exists()


# -- refusals


def test_a_moment_behind_the_last_batch_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path / "q", ends(10, 25))
    said = rewind(path, BEGUN + 2 * MINUTE, "--take-over").stderr
    assert f"holds no batch at or after {BEGUN + 2 * MINUTE} ms of which it says where source 0 begins" in said


def test_what_a_reset_refuses_a_rewind_refuses_in_the_same_words(tmp_path: Path) -> None:
    path = stored(tmp_path / "q", ends(10, 25))
    assert "stop the query. If it is stopped, wait a minute, or give --take-over" in rewind(path, BEGUN + MINUTE).stderr
    assert "no source of this query reads 'users'; they read orders" in rewind(path, 0, "--topic", "users").stderr
    assert "choose one of its sources by --source" in rewind(path, 0, "--stream", "0").stderr
    (path / "state").mkdir()
    assert "has state, which belongs to the records that it has read" in rewind(path, 0, "--take-over").stderr
    assert "has begun and is not committed" in rewind(REAL / "v2", 0, "--take-over").stderr
