"""Offsets as Structured Streaming writes them: one text for equal offsets, and none of another form is taken for offsets."""

from __future__ import annotations

from typing import Any

import pytest

from kstream.offsets.topic_offsets import by_partition, by_topic, text_of

OFFSETS = {("b", 10): 7, ("b", 9): 1 << 40, ("a", 0): 0}
TEXT = '{"a":{"0":0},"b":{"9":1099511627776,"10":7}}'


def test_the_text_of_offsets_is_that_of_sparks_kafka_source() -> None:
    assert text_of(OFFSETS) == TEXT
    assert text_of({}) == "{}"


def test_equal_offsets_have_one_text_whatever_their_order() -> None:
    """Spark compares texts: another order would be new data."""
    assert text_of(dict(reversed(OFFSETS.items()))) == TEXT


def test_offsets_come_back_as_they_were() -> None:
    assert by_partition(by_topic(OFFSETS)) == OFFSETS and by_partition({}) == {}


@pytest.mark.parametrize(
    "value", [None, 3, [], "a", {"a": 1}, {"a": {}}, {"a": {"x": 1}}, {"a": {"0": -1}}, {"a": {"0": True}}, {"a": {"0": 1.5}}, {"a": [1]}]
)
def test_a_value_of_another_form_is_no_offset(value: Any) -> None:
    assert by_partition(value) is None
