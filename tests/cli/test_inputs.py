"""Inputs of any connector, as commands show them: through its tools, or as JSON where it offers none."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kstream.batch import BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, read_log, take_epoch
from kstream.checkpoint.reader import write_meta
from kstream.cli import inputs, main
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.terminal import compact
from kstream.connectors import ConnectorTools, OffsetChange, Partition, PlannedRange, ResetResult
from kstream.storage import LocalFileStore

ZERO = 1_760_000_000_000


class PulsarTools(ConnectorTools):
    """The tools of another connector. Its plan data is `{"cursors": {"topic": [from, until]}}`, and every log ends at 50."""

    name = "Pulsar"
    input_kind = "pulsar-reader"

    def ranges(self, data: Mapping[str, Any]) -> list[PlannedRange] | None:
        return [PlannedRange(topic, 0, *span) for topic, span in data["cursors"].items()] if "cursors" in data else None

    def read_parameters(self, bootstrap: str | None, params: Any, file: str | None) -> dict[str, Any]:
        return {} if bootstrap is None else {"url": bootstrap}

    def connection(self, stored: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any] | None:
        return {**(stored or {}), **given} or None

    def log_ends(self, connection: Mapping[str, Any], partitions: Collection[Partition]) -> dict[Partition, int]:
        assert connection == {"url": "pulsar:6650"}
        return dict.fromkeys(partitions, 50)

    def reset(self, connection: Mapping[str, Any], data: Mapping[str, Any], to: Any, topics: Collection[str]) -> ResetResult:
        cursors = {topic: [50, 50] for topic in data["cursors"]}
        changes = [OffsetChange(topic, 0, until, 50) for topic, (_, until) in data["cursors"].items()]
        return ResetResult({"cursors": cursors}, changes, [])

    def empty_plan_at(self, data: Mapping[str, Any]) -> dict[str, Any]:
        return {"cursors": {topic: [until, until] for topic, (_, until) in data["cursors"].items()}}


@pytest.fixture(autouse=True)
def _pulsar(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The other connector is installed beside that of Kafka."""
    found = {"kstream.connectors": [SimpleNamespace(name="pulsar", load=lambda: SimpleNamespace(connector_tools=PulsarTools))]}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **asked: found.get(asked["group"], []))
    inputs.tools.cache_clear()
    yield
    inputs.tools.cache_clear()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """One pending batch of three inputs: of the other connector, of Kafka, and of a connector without tools."""
    store = LocalFileStore(tmp_path)
    write_meta(store, Meta(Time(ZERO), Duration(1000)))
    data = {0: {"cursors": {"clicks": [10, 30]}}, 1: {"ranges": [["orders", 2, 5, 9]]}, 2: {"files": ["a"]}}
    PlanLog(store, take_epoch(store, ZERO)).write_plan(BatchPlan(Time(ZERO + 1000), 1, "n", data, {}, Time(ZERO + 1000)))
    return tmp_path


def kstream(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], env={"COLUMNS": "200"})


def test_each_input_is_shown_by_its_connector_and_as_json_where_that_offers_no_tools(checkpoint: Path) -> None:
    rows = [line.split("│") for line in kstream("checkpoint", "show", checkpoint).output.splitlines() if line.count("│") > 5]
    assert [row[7].strip() for row in rows] == ["clicks/0 [10, 30)", "orders/2 [5, 9)", '{"files": ["a"]}']


def test_offsets_show_has_the_partitions_of_all_connectors_and_a_sentence_for_an_input_without_tools(checkpoint: Path) -> None:
    shown = json.loads(kstream("offsets", "show", checkpoint, "--json").output)
    assert [(row["stream"], row["topic"], row["completed"], row["next"]) for row in shown["partitions"]] == [
        (0, "clicks", 10, 30),
        (1, "orders", 5, 9),
    ]
    output = kstream("offsets", "show", checkpoint).output
    assert output.count("stream 2: its connector offers no offsets; `kstream checkpoint show` shows its plans\n") == 1


def test_the_lag_comes_from_the_brokers_of_the_connector(tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path)
    write_meta(store, Meta(Time(ZERO), Duration(1000)))
    data = {0: {"cursors": {"clicks": [10, 30]}}, 1: {"files": ["a"]}}
    PlanLog(store, take_epoch(store, ZERO)).write_plan(BatchPlan(Time(ZERO + 1000), 1, "n", data, {}, Time(ZERO + 1000)))
    result = kstream("lag", tmp_path, "--bootstrap", "pulsar:6650")
    assert result.exit_code == 0, result.output
    assert "stream 0, clicks: 40 records behind, 20 of them in no batch yet" in result.output
    assert result.output.count("stream 1: its connector offers no lag;") == 1
    refused = kstream("lag", tmp_path)
    assert refused.exit_code == ReadingCode.UNREADABLE and f"{tmp_path} stores no Pulsar parameters of stream 0 (" in refused.output


def test_where_no_input_has_tools_the_lag_is_one_sentence(tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path)
    write_meta(store, Meta(Time(ZERO), Duration(1000)))
    PlanLog(store, take_epoch(store, ZERO)).write_plan(BatchPlan(Time(ZERO + 1000), 1, "n", {0: {"files": ["a"]}}, {}, Time(ZERO + 1000)))
    result = kstream("lag", tmp_path)
    assert result.exit_code == ReadingCode.UNREADABLE
    assert (
        result.output
        == f"kstream: {tmp_path} holds no ranges of a Kafka or Pulsar or log stream: see `kstream checkpoint show {tmp_path}`\n"
    )


def test_a_reset_moves_the_chosen_stream_and_the_streams_of_other_connectors_stay(checkpoint: Path) -> None:
    result = kstream("offsets", "reset", checkpoint, "--to", "latest", "--stream", 0, "--bootstrap", "pulsar:6650")
    assert result.exit_code == 0, result.output
    contents = read_log(LocalFileStore(checkpoint))
    newest = contents.plans[Time(ZERO + 2000)].inputs
    assert newest[0] == {"kind": "json", "cursors": {"clicks": [50, 50]}} and newest[1]["ranges"] == [["orders", 2, 9, 9]]
    assert 2 not in newest, "an input without offsets has none to keep"


@pytest.mark.parametrize(
    ("words", "tool", "code"),
    [
        (("lag", "PATH"), "the parameters of its brokers", ReadingCode.UNREADABLE),
        (("offsets", "reset", "PATH", "--to", "latest", "--stream", "0"), "the parameters of its brokers", 1),
        (("offsets", "rewind", "PATH", "--to", "0", "--stream", "0"), "a rewind of offsets", 1),
    ],
)
def test_a_connector_that_offers_ranges_only_is_one_sentence_for_the_other_commands(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], tool: str, code: int
) -> None:
    monkeypatch.delattr(PulsarTools, "read_parameters")
    result = kstream(*(str(checkpoint) if word == "PATH" else word for word in words))
    assert (result.exit_code, result.output) == (code, f"kstream: the connector of Pulsar does not offer {tool}\n")
    assert "epoch-2" not in LocalFileStore(checkpoint).list(), "no driver is fenced for nothing"


def test_a_batch_that_was_given_up_is_in_the_ledger_with_the_ranges_of_every_connector(checkpoint: Path) -> None:
    store = LocalFileStore(checkpoint)
    PlanLog(store, 1).give_up(read_log(store).plans[Time(ZERO + 1000)], ZERO, 4)
    rows = json.loads(kstream("ledger", checkpoint, "--json").output)["lost"]
    assert [(row.get("topic"), row.get("from"), row.get("until")) for row in rows] == [
        ("clicks", 10, 30),
        ("orders", 5, 9),
        (None, None, None),
    ]


def test_ranges_are_compact_and_those_left_out_are_counted() -> None:
    ranges = [PlannedRange(*r) for r in (("a", 1, 7, 9), ("a", 0, 5, 10), ("b", 0, 1, 2), ("b", 1, 3, 3))]
    assert compact(ranges) == "a/0 [5, 10) /1 [7, 9) b/0 [1, 2) (1 empty)"
    assert compact(ranges, most=1) == "a/0 [5, 10) … 2 more (1 empty)"
