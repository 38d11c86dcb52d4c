"""The tools of commands for Logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kstream.connectors import ToolNotOfferedError, installed_tools
from kstream.direct.connector import LogPlanTools, LogTools, connector_tools
from kstream.direct.log_plan import LogPlan
from kstream.errors import ConfigurationError, KStreamError
from kstream.offsets.log import Log
from kstream.offsets.offset_range import OffsetRange, Partition, PlannedRange


@dataclass(frozen=True)
class Shards(Log):
    """Shards that begin at 2 and end at `end`."""

    name = "shards"
    end: int
    count: int = 2

    def latest(self) -> dict[Partition, int]:
        return {("s", n): self.end for n in range(self.count)}

    def earliest(self) -> dict[Partition, int]:
        return {("s", n): 2 for n in range(self.count)}

    def read(self, offsets: OffsetRange) -> Iterator[Any]:
        yield from ()


DATA = LogPlan("shards", [OffsetRange("s", 0, 3, 5), OffsetRange("s", 1, 3, 4)]).encode()
TOOLS = LogTools(Shards)


def test_ranges_are_shown_by_the_connector_of_the_log_and_without_one_by_the_core() -> None:
    ranges = [PlannedRange("s", 0, 3, 5), PlannedRange("s", 1, 3, 4)]
    assert TOOLS.ranges(DATA) == ranges == connector_tools().ranges(DATA)
    assert TOOLS.ranges({**DATA, "log": "other"}) is None and connector_tools().ranges({"ranges": []}) is None


def test_the_tools_of_the_core_come_last_and_no_other_connector_takes_the_plan_of_a_log() -> None:
    tools = installed_tools()
    assert type(tools[-1]) is LogPlanTools
    assert [known.ranges(DATA) is not None for known in tools] == [False] * (len(tools) - 1) + [True]


def test_without_the_connector_of_the_log_nobody_can_be_asked() -> None:
    with pytest.raises(ToolNotOfferedError, match=r"no installed connector offers .*LogTools for the class of the Log"):
        connector_tools().log_ends({}, [])


def test_the_ends_come_from_the_log_of_the_stored_and_the_given_arguments() -> None:
    given = TOOLS.read_parameters(None, ["end=9"], None)
    connection = TOOLS.connection({"end": 7, "count": 2}, given)
    assert connection is not None and connection == {"end": 9, "count": 2}
    assert TOOLS.log_ends(connection, [("s", 1)]) == {("s", 1): 9}
    assert TOOLS.connection(None, {}) is None


def test_parameters_come_from_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"end": 3}')
    assert TOOLS.read_parameters(None, ["name=text"], str(tmp_path / "p.json")) == {"end": 3, "name": "text"}


@pytest.mark.parametrize(
    ("bootstrap", "params", "content", "words"),
    [
        ("h:1", [], None, "--bootstrap is of no use"),
        (None, ["end"], None, "KEY=VALUE"),
        (None, [], "[1]", "no JSON object"),
        (None, [], "{", "is not JSON"),
    ],
)
def test_options_that_cannot_be_read_are_refused(tmp_path: Path, bootstrap: Any, params: Any, content: Any, words: str) -> None:
    file = tmp_path / "p.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigurationError, match=words):
        TOOLS.read_parameters(bootstrap, params, None if content is None else str(file))


@pytest.mark.parametrize(("connection", "partitions", "words"), [({}, [], "cannot be opened"), ({"end": 1}, [("s", 7)], "does not have")])
def test_a_log_that_cannot_answer_is_a_sentence(connection: Any, partitions: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        TOOLS.log_ends(connection, partitions)


def test_any_error_of_a_log_is_one_sentence_of_a_command() -> None:
    class Broken(Shards):
        def latest(self) -> dict[Partition, int]:
            raise FileNotFoundError("/nowhere")

    with pytest.raises(KStreamError, match="shards cannot be asked for its offsets: FileNotFoundError: /nowhere"):
        LogTools(Broken).log_ends({"end": 1}, [])


def test_a_reset_forward_tells_what_is_skipped_and_back_what_is_read_again() -> None:
    result = TOOLS.reset({"end": 9}, DATA, "latest", ())
    assert result.data == LogPlan.empty_at("shards", {("s", 0): 9, ("s", 1): 9}).encode()
    assert [(entry["from"], entry["until"], entry["cause"]) for entry in result.skipped] == [(5, 9, "reset"), (4, 9, "reset")]
    back = TOOLS.reset({"end": 9}, DATA, {"s": {"1": "earliest"}}, ())
    assert [(c.partition, c.old, c.new) for c in back.changes] == [(1, 4, 2)] and back.skipped == []
    with pytest.raises(ConfigurationError, match="does not read"):
        TOOLS.reset({"end": 9}, DATA, {"s": {"7": "earliest"}}, ())


@pytest.mark.parametrize("to", [{"s": 5}, {"s1": "latest"}, {"s": {"first": 5}}], ids=["no partition", "two characters", "no number"])
def test_a_position_of_no_partition_is_refused_and_names_the_option(to: Any) -> None:
    with pytest.raises(ConfigurationError, match="Option '--to' has the key"):
        TOOLS.reset({"end": 9}, DATA, to, ())


def test_a_rewind_goes_to_the_beginning_of_the_earlier_plan() -> None:
    then = LogPlan("shards", [OffsetRange("s", 0, 0, 3), OffsetRange("s", 9, 0, 1)]).encode()
    assert TOOLS.rewind(DATA, then, ()).data == LogPlan.empty_at("shards", {("s", 0): 0, ("s", 1): 4}).encode()


def test_a_plan_of_nothing_ends_where_the_plan_ends() -> None:
    assert TOOLS.empty_plan_at(DATA) == LogPlan.empty_at("shards", {("s", 0): 5, ("s", 1): 4}).encode()
