"""What a query has lost, as its planner knows it, and the ledger of the query."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from kstream_kafka.errors import SourceOptionError, UnknownTopicError
from kstream_kafka.structured.options import SourceOptions

from kstream.checkpoint.query_ledger import FOLDER, read_query_ledger
from kstream.offsets.offset_range import LostRange
from kstream.storage import LocalFileStore
from tests.kstream_kafka.structured.micro_batches import EARLIEST, TWO, Query, recreated

Loss = tuple[str, int, int, int | None, str]


@pytest.fixture(params=["4.1", "4.2"])
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def ledger(tmp_path: Path) -> Callable[[], list[Loss]]:
    """Returns the losses in the ledger."""

    def read() -> list[Loss]:
        entries = read_query_ledger(LocalFileStore(str(tmp_path)))
        return [(each.topic, each.partition, each.lost_from, each.lost_until, each.cause) for entry in entries for each in entry.lost]

    return read


def going_on(tmp_path: Path) -> dict[str, str]:
    return {"failOnDataLoss": "false", "checkpointLocation": str(tmp_path)}


def test_records_that_retention_removed_are_in_the_ledger_before_a_task_runs(
    tmp_path: Path,
    ledger: Callable[[], list[Loss]],
    version: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    query = Query(TWO, version, **EARLIEST, **going_on(tmp_path)).begin()
    query.construct()
    query.client.logs["t", 0] = (4, 10)
    query.client.logs["t", 1] = (50, 60)
    with caplog.at_level(logging.WARNING):
        query.run()
    assert ledger() == [("t", 0, 0, 4, "retention"), ("t", 1, 5, 20, "retention")]
    assert "t-0: the query goes on without records from offset 0: the log begins at 4" in caplog.text


def test_a_batch_that_is_planned_again_has_one_entry(tmp_path: Path, ledger: Callable[[], list[Loss]], version: str) -> None:
    query = Query(TWO, version, startingOffsets='{"t":{"0":0,"1":5}}', **going_on(tmp_path))
    query.construct()
    query.client.logs["t", 0] = (4, 10)
    query.reader.partitions(query.start(), query.offsets[-1])
    query.client.logs["t", 0] = (6, 10)
    query.restart()
    assert ledger() == [("t", 0, 0, 6, "retention")]
    assert len(list((tmp_path / FOLDER).iterdir())) == 1


def test_each_batch_with_a_loss_has_an_entry_of_its_own(tmp_path: Path, ledger: Callable[[], list[Loss]]) -> None:
    query = Query(TWO, **EARLIEST, **going_on(tmp_path)).begin()
    for begin in (2, 15):
        query.construct()
        query.client.logs["t", 0] = (begin, begin + 8)
        query.run()
        query.produce(("t", 0), 18)
    assert [found[2:4] for found in ledger()] == [(0, 2), (10, 15)]


def test_a_topic_made_anew_and_a_log_that_was_cut_are_in_the_ledger_once(tmp_path: Path, ledger: Callable[[], list[Loss]]) -> None:
    query = recreated({("t", 0): (0, 2), ("t", 1): (0, 1)}, **going_on(tmp_path))
    query.construct()
    query.reader.partitions(query.start(), query.offsets[-1])
    assert ledger() == [("t", 0, 10, None, "recreation"), ("t", 1, 20, None, "recreation")]
    query.restart()
    assert [found[4] for found in ledger()] == ["recreation", "recreation"]


def test_a_batch_that_ends_before_it_begins_is_a_loss_in_the_ledger(tmp_path: Path, ledger: Callable[[], list[Loss]]) -> None:
    query = Query(TWO, **going_on(tmp_path))
    query.offsets, query.committed = [{"t": {"0": 9, "1": 9}}, {"t": {"0": 4, "1": 9}}], 1
    query.restart()
    assert ledger() == [("t", 0, 4, 9, "truncation")]


def test_a_query_that_fails_on_data_loss_asks_for_no_begins() -> None:
    query = Query(TWO, **EARLIEST).begin()
    query.construct()
    query.client.asked.clear()
    query.run()
    assert query.client.asked == []


def test_a_batch_without_records_asks_for_no_begins_and_one_with_records_once(tmp_path: Path) -> None:
    query = Query(TWO, **EARLIEST, **going_on(tmp_path)).begin()
    query.construct()
    query.client.asked.clear()
    query.run()
    query.trigger()
    assert query.client.asked == ["earliest", "latest"]


def test_without_the_place_of_the_checkpoint_a_loss_is_in_the_log_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(TWO, **EARLIEST, failOnDataLoss="false").begin()
    query.construct()
    query.client.logs["t", 0] = (4, 10)
    with caplog.at_level(logging.WARNING):
        query.run()
    assert "t-0: the query goes on without records from offset 0" in caplog.text


def test_a_topic_that_is_gone_before_its_batch_runs_is_left_to_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(TWO, **EARLIEST, **going_on(tmp_path)).begin()
    query.construct()

    def gone(_: object) -> dict[tuple[str, int], LostRange]:
        raise UnknownTopicError(["t"], 0)

    monkeypatch.setattr(query.client, "earliest", gone)
    assert len(query.run()) == 25


@pytest.mark.parametrize("place", ["", "relative/path", "hdfs://n/c"])
def test_a_place_that_a_python_process_cannot_open_is_refused_when_the_query_is_defined(place: str) -> None:
    with pytest.raises(SourceOptionError, match="an absolute path, or a URL of an object store"):
        SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "checkpointLocation": place})
