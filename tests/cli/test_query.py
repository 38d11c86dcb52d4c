"""`kstream lag`, `offsets show` and `status` on the checkpoint of a query of Structured Streaming.

The checkpoints under `structured_streaming/` are real. What a test writes itself has the form of Spark's own Kafka source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta
from kstream.checkpoint.reader import write_meta
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.query import judge_query, read_query
from kstream.storage import LocalFileStore
from tests.cli.query_checkpoints import BEGUN, KAFKA, REAL, data, query, run


def figures(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("source", "topic", "partition", *names)) for row in rows]


def refusal(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == ReadingCode.UNREADABLE and len(result.stderr.splitlines()) == 1, result.output
    return result.stderr


# -- lag


@pytest.mark.parametrize("batches", [{5: [KAFKA], 9: [KAFKA]}, {9: [KAFKA]}])
def test_gaps_of_asynchronous_progress_tracking_are_no_damage(tmp_path: Path, bootstrap: str, batches: dict[int, list[str]]) -> None:
    """Spark removes the offsets of batch 5 before its commit, if a hundred batches have run until it stores the next one."""
    found = data("lag", str(query(tmp_path / "q", batches, [5])), "--bootstrap", bootstrap)
    assert figures(found["partitions"], "next", "lag") == [("0", "orders", 0, 15, 85), ("0", "orders", 1, 18, 82)]
    assert found["notes"][0] == "batch 9 has begun and is not committed"
    assert ("its end stands there" in found["notes"][-1]) == (5 not in batches)


def test_the_lag_of_a_query_is_from_its_last_committed_batch_to_the_ends_of_the_logs(bootstrap: str) -> None:
    found = data("lag", str(REAL / "v1"), "--bootstrap", bootstrap)
    rows = figures(found["partitions"], "completed", "next", "log_end", "unplanned", "lag")
    assert rows == [("0", "orders", 0, 15, 15, 100, 85, 85), ("0", "orders", 1, 18, 18, 100, 82, 82)]
    assert found["topics"] == [{"source": "0", "topic": "orders", "partitions": 2, "unplanned": 167, "lag": 167}]
    assert (found["batch"], found["committed"], found["notes"]) == (2, 2, [])


def test_the_records_of_an_open_batch_are_in_the_lag_and_planned(bootstrap: str) -> None:
    found = data("lag", str(REAL / "v2"), "--bootstrap", bootstrap)
    rows = figures(found["partitions"], "completed", "next", "unplanned", "lag")
    assert rows == [("shop", "orders", 0, 5, 10, 90, 95), ("shop", "orders", 1, 6, 12, 88, 94)]
    assert found["notes"] == ["batch 1 has begun and is not committed"]


def test_the_table_has_a_sentence_for_each_topic(bootstrap: str) -> None:
    said = run("lag", str(REAL / "v2"), "--bootstrap", bootstrap).stdout
    assert "source shop, orders: 189 records behind, 178 of them in no batch yet" in said
    assert "batch 1 has begun and is not committed" in said


@pytest.mark.parametrize(("most", "code"), [("100", 0), ("85", 0), ("84", 1)])
def test_max_lag_judges_a_query_as_it_judges_a_stream(bootstrap: str, most: str, code: int) -> None:
    result = run("lag", str(REAL / "v1"), "--bootstrap", bootstrap, "--max-lag", most)
    assert result.exit_code == code
    assert ("orders/0 is 85 records behind, above --max-lag 84" in result.stderr) == (code == 1)


def test_a_first_batch_counts_from_the_start_that_sparks_source_stores(bootstrap: str, tmp_path: Path) -> None:
    query(tmp_path, {0: ['{"orders":{"0":40,"1":50}}']}, [])
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_bytes(b'\0v1\n{"orders":{"0":10,"1":0}}')
    found = data("lag", str(tmp_path), "--bootstrap", bootstrap)
    assert [(row["completed"], row["lag"]) for row in found["partitions"]] == [(10, 90), (0, 100)]


def test_where_the_start_of_a_batch_is_not_stored_the_lag_says_so(bootstrap: str, tmp_path: Path) -> None:
    query(tmp_path, {0: ['{"orders": {"0": 40, "1": 50}}']}, [])
    found = data("lag", str(tmp_path), "--bootstrap", bootstrap)
    assert [(row["completed"], row["lag"]) for row in found["partitions"]] == [(40, 60), (50, 50)]
    assert "source 0: where the batch begins is not stored for all partitions; its end stands there" in found["notes"]


def test_each_source_of_a_query_has_its_rows_and_one_of_another_kind_has_a_note(bootstrap: str, tmp_path: Path) -> None:
    query(tmp_path, {3: ['{"orders":{"0":40}}', '{"logOffset":7}', '{"clicks":{"0":20}}', "-"]}, [3])
    found = data("lag", str(tmp_path), "--bootstrap", bootstrap)
    assert figures(found["partitions"], "lag") == [("0", "orders", 0, 60), ("2", "clicks", 0, 0)]
    assert found["notes"] == ["source 1: no connector knows its offsets", "source 3: no connector knows its offsets"]


def test_a_log_that_is_shorter_than_the_offsets_of_a_query_is_told(bootstrap: str, tmp_path: Path) -> None:
    query(tmp_path, {0: ['{"clicks":{"0":40}}']}, [0])
    assert data("lag", str(tmp_path), "--bootstrap", bootstrap)["partitions"][0]["note"] == "log is shorter than read"


def test_a_question_that_cannot_be_answered_is_one_sentence(bootstrap: str, tmp_path: Path) -> None:
    assert "stores no parameters of a connection: give --bootstrap HOST:PORT" in refusal("lag", str(REAL / "v1"))
    assert "has no source of Kafka" in refusal("lag", str(REAL / "rate"), "--bootstrap", bootstrap)
    query(tmp_path / "new", {}, [])
    assert "has begun no batch" in refusal("lag", str(tmp_path / "new"), "--bootstrap", bootstrap)
    assert "there is no checkpoint in" in refusal("lag", str(tmp_path / "nothing"), "--bootstrap", bootstrap)
    query(tmp_path / "odd", {0: ["x:{}"]}, [0], version="v7")
    assert "has the version v7" in refusal("lag", str(tmp_path / "odd"), "--bootstrap", bootstrap)


# -- offsets show


def test_the_offsets_of_a_query_are_shown() -> None:
    found = data("offsets", "show", str(REAL / "v2"))
    assert figures(found["partitions"], "completed", "next") == [("shop", "orders", 0, 5, 10), ("shop", "orders", 1, 6, 12)]
    said = run("offsets", "show", str(REAL / "v2")).stdout
    assert "orders/0" in said and "after batch 1 (2026-11-24 " in said and "batch 1 has begun and is not committed" in said


def test_a_query_without_a_batch_has_no_offsets(tmp_path: Path) -> None:
    query(tmp_path, {}, [])
    assert data("offsets", "show", str(tmp_path)) == {
        "path": str(tmp_path),
        "batch": None,
        "committed": None,
        "partitions": [],
        "notes": [],
    }
    assert "no batch has begun" in run("offsets", "show", str(tmp_path)).stdout


# -- status


def test_a_query_whose_newest_batch_is_committed_is_well(tmp_path: Path) -> None:
    found = data("status", str(REAL / "v1"))
    assert (found["state"], found["exit_code"], found["alive"], found["batch"]) == ("committed", 0, None, 2)
    said = run("status", str(REAL / "v1")).stdout
    assert "batch 2 is committed" in said and "sources: 0 (orders)" in said and "does not say whether it runs" in said
    query(tmp_path, {}, [])
    assert data("status", str(tmp_path))["state"] == "new"


@pytest.mark.parametrize(("most", "code"), [(None, ReadingCode.WELL), (60.0, ReadingCode.WELL), (59.9, ReadingCode.BEHIND)])
def test_a_batch_that_is_open_for_too_long_is_behind(most: float | None, code: ReadingCode) -> None:
    report = judge_query(read_query(LocalFileStore(REAL / "v2")), 60_000 + 1_795_503_820_458, most)
    assert (report.code, report.seconds_open) == (code, 60.0)
    assert report.state == ("behind" if code else "open")
    assert report.sentence.startswith("batch 1 has begun") and report.sentence.endswith(" ago and is not committed")


def test_a_committed_batch_is_never_behind_for_a_query_without_records_begins_none() -> None:
    assert judge_query(read_query(LocalFileStore(REAL / "v1")), 9_999_999_999_999, 1.0).code is ReadingCode.WELL


def test_the_command_ends_with_the_code_of_a_query_that_is_behind() -> None:
    found = data("status", str(REAL / "v2"), "--max-behind", "1", code=1)
    assert found["state"] == "behind" and found["committed"] == 0


# -- one folder, two kinds


def test_a_checkpoint_of_kstream_is_read_as_one_also_beside_the_files_of_a_query(tmp_path: Path) -> None:
    query(tmp_path, {0: ['{"orders":{"0":4}}']}, [0])
    write_meta(LocalFileStore(tmp_path), Meta(Time(BEGUN), Duration(1000)))
    assert data("offsets", "show", str(tmp_path))["partitions"] == []
