"""The forms of the inputs of a batch."""

from __future__ import annotations

from kstream.batch import StreamInputInfo
from kstream.offsets.offset_range import OffsetRange
from kstream.ui.batch_forms import input_form


def test_an_input_names_its_skewed_partitions() -> None:
    ranges = [OffsetRange("orders", 0, 0, 100), OffsetRange("orders", 1, 0, 100), OffsetRange("orders", 2, 0, 5000)]
    assert input_form(StreamInputInfo(0, 5200, {"offsets": ranges}))["skewed"] == [
        {"topic": "orders", "partition": 2, "count": 5000, "median": 100.0, "factor": 50.0}
    ]
    assert input_form(StreamInputInfo(0, 200, {"offsets": ranges[:2]}))["skewed"] == []
    assert input_form(StreamInputInfo(0, 200))["skewed"] == []
