"""The checks of the log ends before a batch is planned, and the plan of a batch."""

from __future__ import annotations

import pytest
from kstream_kafka.errors import LogShrankError, PartitionRevokedError
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.planning.planner import checked_ends

from kstream.offsets.offset_range import LostRange, OffsetRange


def parts(*ends: int) -> dict[tuple[str, int], int]:
    return {("t", i): end for i, end in enumerate(ends)}


def test_KD13_a_partition_that_is_gone_raises_with_its_name():
    with pytest.raises(PartitionRevokedError, match="t-1") as caught:
        checked_ends(parts(0, 5), parts(10))
    assert caught.value.partitions == [("t", 1)]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_batch_may_read_to_the_end_of_each_log_of_the_stream():
    assert checked_ends(parts(3, 4), {**parts(10, 4), ("other", 0): 9}) == parts(10, 4)


def test_a_log_that_ends_before_the_next_offset_is_an_error_never_a_negative_range():
    with pytest.raises(LogShrankError, match="next to read is 9, the log ends at 4"):
        checked_ends(parts(0, 9), parts(5, 4))


def test_a_start_given_past_the_end_waits_with_an_empty_range():
    assert checked_ends(parts(11), parts(10), ahead=[("t", 0)]) == parts(11)


def test_a_plan_is_empty_if_its_ranges_are_and_nothing_was_lost():
    idle, busy = OffsetRange("t", 0, 5, 5), OffsetRange("t", 1, 5, 6)
    lost = LostRange("t", 0, 1, 5, "retention", "gone")
    plans = [KafkaPlan([idle], [0], [0]), KafkaPlan([idle, busy], [0, 0], [0, 0]), KafkaPlan([idle], [0], [0], lost=[lost])]
    assert [plan.is_empty for plan in plans] == [True, False, False]
