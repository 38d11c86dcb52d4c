"""Where a batch of a query begins and ends in its Kafka sources, as the checkpoint tells it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from kstream_kafka.sink import query_sources
from kstream_kafka.sink.query_sources import QuerySources

from kstream.storage import StorePlace


def stored(checkpoint: Path, batch: int, *lines: str, version: str = "v1") -> QuerySources:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text("\n".join([version, "{}", *lines]))
    return QuerySources(StorePlace(str(checkpoint), exclusive=False))


def test_a_batch_lies_between_the_offsets_of_two_files(tmp_path: Path) -> None:
    stored(tmp_path, 4, '{"orders": {"0": 5, "1": 7}}')
    found = stored(tmp_path, 5, '{"orders": {"0": 5, "1": 9, "2": 3}}')
    assert found.ends(5) == {"0": {"orders": {"0": 5, "1": 9, "2": 3}}}
    assert found.ranges(5) == {"0": [("orders", 1, 7, 9)]}  # where partition 2 began is stored nowhere


def test_of_several_sources_those_count_that_are_kafka(tmp_path: Path) -> None:
    stored(tmp_path, 0, "a:-", 'b:{"logOffset":1}', 'c:{"orders":{"0":1}}', version="v2")
    found = stored(tmp_path, 1, 'a:{"users":{"0":4}}', 'b:{"logOffset":2}', 'c:{"orders":{"0":2}}', version="v2")
    assert found.ends(1) == {"a": {"users": {"0": 4}}, "c": {"orders": {"0": 2}}}
    assert found.ranges(1) == {"c": [("orders", 0, 1, 2)]}


def test_the_first_batch_has_an_end_only(tmp_path: Path) -> None:
    found = stored(tmp_path, 0, '{"orders":{"0":5}}')
    assert (found.ends(0), found.ranges(0)) == ({"0": {"orders": {"0": 5}}}, {})


def test_a_file_that_is_not_there_is_no_source_and_one_of_another_form_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for sources in (QuerySources(None), QuerySources(StorePlace(str(tmp_path), exclusive=False))):
            assert (sources.ends(3), sources.ranges(3)) == ({}, {})
        assert not caplog.records
        sources = stored(tmp_path, 4, version="v9")
        assert (sources.ends(4), sources.ends(4)) == ({}, {})
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_batch_of_very_many_partitions_tells_of_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_sources, "MOST_PARTITIONS", 1)
    assert stored(tmp_path, 0, '{"orders":{"0":5,"1":5}}').ends(0) == {}
