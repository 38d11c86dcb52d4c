"""Positions: what users may say, and what it becomes."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.starting_offsets import OffsetResolver

from kstream.errors import ConfigurationError
from kstream.offsets.offset_range import TopicAndPartition
from kstream.offsets.positions import Position, Positions
from tests.kstream_kafka.fakes import FakeClient

NOON = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
NOON_MS = round(NOON.timestamp() * 1000)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("earliest", Position("earliest")),
        ("Latest", Position("latest")),
        ("smallest", Position("earliest")),
        ("largest", Position("latest")),
        ("committed", Position("committed")),
        (0, Position("offset", 0)),
        ("17", Position("offset", 17)),
        ("-1000", Position("back", 1000)),
        ("-10m", Position("ago", 600_000)),
        ("-2h", Position("ago", 7_200_000)),
        ("-30s", Position("ago", 30_000)),
        ("-1d", Position("ago", 86_400_000)),
        (NOON, Position("time", NOON_MS)),
        ("2026-11-21T12:00:00Z", Position("time", NOON_MS)),
        ("2026-11-21T13:00:00+01:00", Position("time", NOON_MS)),
    ],
)
def test_a_position_is_said_in_words_numbers_or_times(given: Any, expected: Position) -> None:
    assert Position.parse(given, "fromOffsets") == expected
    assert Position.from_json(json.loads(json.dumps(expected.to_json()))) == expected


def test_a_time_without_a_zone_is_local() -> None:
    local = Position.parse("2026-11-21T12:00:00", "fromOffsets")
    assert local.value == round(datetime(2026, 11, 21, 12).timestamp() * 1000)


@pytest.mark.parametrize("given", [-1, -2, "yesterday", "-10y", 1.5, None, True, b"earliest", ""])
def test_what_cannot_be_meant_is_refused_with_the_parameter_and_the_choices(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'fromOffsets'.*'earliest'"):
        Position.parse(given, "fromOffsets")


def test_positions_by_partition_take_every_way_to_name_one() -> None:
    positions = Positions.parse({TopicAndPartition("t", 0): 5, ("t", 1): "-10"}, "fromOffsets")
    assert positions.each == {("t", 0): Position("offset", 5), ("t", 1): Position("back", 10)}
    assert positions.of(("t", 2)) is None and positions
    assert Positions.from_json(json.loads(json.dumps(positions.to_json()))) == positions


def test_one_position_serves_all_partitions_but_not_one_offset() -> None:
    assert Positions.parse("-1h", "fromOffsets").of(("t", 9)) == Position("ago", 3_600_000)
    with pytest.raises(ConfigurationError, match="by partition"):
        Positions.parse(5, "fromOffsets")
    assert not Positions.parse(None, "fromOffsets")


def test_a_key_that_is_no_partition_is_refused() -> None:
    for key in ("t", "t1"):  # a text of two characters is no pair
        with pytest.raises(ConfigurationError, match="TopicAndPartition"):
            Positions.parse({key: 5}, "fromOffsets")


# -- from positions to offsets

A, B = ("t", 0), ("t", 1)


def resolve(client: FakeClient, position: Any, reset: str = "latest", group: str | None = None) -> dict[Any, int]:
    parsed = None if position is None else Position.parse(position, "fromOffsets")
    return OffsetResolver(reset, group, lambda: NOON_MS).resolve(client, dict.fromkeys(client.logs, parsed))


def cluster() -> FakeClient:
    return FakeClient({A: (10, 100), B: (0, 3)}, times={A: [(NOON_MS - 60_000, 40), (NOON_MS - 1000, 90)], B: [(NOON_MS - 60_000, 1)]})


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("earliest", {A: 10, B: 0}),
        ("latest", {A: 100, B: 3}),
        (7, {A: 7, B: 7}),
        ("-20", {A: 80, B: 0}),
        ("-1000", {A: 10, B: 0}),
        ("-30s", {A: 90, B: 3}),
        ("-10m", {A: 40, B: 1}),
        (NOON, {A: 100, B: 3}),
    ],
)
def test_each_position_becomes_an_offset_of_each_partition(position: Any, expected: dict[Any, int]) -> None:
    assert resolve(cluster(), position) == expected


@pytest.mark.parametrize(("reset", "expected"), [("earliest", {A: 10, B: 0}), ("latest", {A: 100, B: 3})])
def test_without_a_position_the_reset_policy_decides(reset: str, expected: dict[Any, int]) -> None:
    assert resolve(cluster(), None, reset) == expected


def test_without_a_position_and_with_reset_none_it_is_an_error() -> None:
    with pytest.raises(KafkaConfigError, match="given no offset"):
        resolve(cluster(), None, "error")


def test_committed_takes_what_the_group_committed_and_leaves_the_rest_to_reset() -> None:
    client = cluster()
    client.groups["g"] = {A: 50}
    assert resolve(client, "committed", "earliest", "g") == {A: 50, B: 0}


@pytest.mark.parametrize("at", [9, 101])
def test_a_committed_offset_outside_of_the_log_is_left_to_reset_as_kafkas_consumers_do(at: int) -> None:
    client = cluster()
    client.groups["g"] = {A: at, B: 2}
    assert resolve(client, "committed", "earliest", "g") == {A: 10, B: 2}


def test_committed_without_a_group_is_an_error_that_names_it() -> None:
    with pytest.raises(KafkaConfigError, match=r"group\.id"):
        resolve(cluster(), "committed")


def test_partitions_of_the_same_position_cost_one_question() -> None:
    client = FakeClient({("t", n): (0, n) for n in range(50)})
    resolve(client, "-10")
    assert client.asked == ["earliest", "latest"]


def test_positions_can_be_given_by_topic_as_structured_streaming_writes_offsets() -> None:
    given = {"orders": {"0": 5, "1": "latest"}, ("clicks", 0): 7}
    each = {("orders", 0): Position("offset", 5), ("orders", 1): Position("latest"), ("clicks", 0): Position("offset", 7)}
    assert Positions.parse(given, "fromOffsets").each == each
    with pytest.raises(ConfigurationError, match="negative offset: -2"):
        Positions.parse({"orders": {"0": -2}}, "fromOffsets")
    with pytest.raises(ConfigurationError, match="has the key"):
        Positions.parse({"orders": {"first": 2}}, "fromOffsets")
