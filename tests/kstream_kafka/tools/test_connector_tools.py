"""What the connector tells the commands about plan data and connections, without a broker."""

from __future__ import annotations

from kstream_kafka import connector_tools
from kstream_kafka.planning.plan import KafkaPlan

from kstream.offsets.offset_range import OffsetRange, PlannedRange


def plan() -> KafkaPlan:
    return KafkaPlan([OffsetRange("a", 0, 5, 9), OffsetRange("a", 1, 7, 7)], [1, None], [1, None], {"a": "id"}, frozenset({("a", 1)}))


def test_the_stored_form_of_a_plan_is_its_ranges_and_the_partitions_that_wait_for_their_start() -> None:
    tools, data = connector_tools(), plan().encode()
    assert tools.ranges(data) == [PlannedRange("a", 0, 5, 9), PlannedRange("a", 1, 7, 7)]
    assert set(tools.waiting(data)) == {("a", 1)}


def test_plan_data_of_other_inputs_is_left_to_others() -> None:
    tools = connector_tools()
    for data in ({}, {"files": ["a"]}, {"ranges": 3}, {"ranges": [["a", 0]]}, {"blocks": []}):
        assert tools.ranges(data) is None


def test_a_connection_needs_brokers_from_the_checkpoint_or_the_command_line() -> None:
    tools = connector_tools()
    assert tools.connection(None, {"group.id": "g"}) is None
    assert tools.connection(None, {"metadata.broker.list": "h:1"}) == {"metadata.broker.list": "h:1"}
    stored = {"bootstrap.servers": "h:1", "group.id": "g"}
    assert tools.connection(stored, {"metadata.broker.list": "h:2"}) == {"group.id": "g", "metadata.broker.list": "h:2"}


def test_an_empty_plan_has_the_ends_of_the_plan_before() -> None:
    assert connector_tools().empty_plan_at(plan().encode()) == {
        **plan().encode(),
        "ranges": [["a", 0, 9, 9], ["a", 1, 7, 7]],
    }
