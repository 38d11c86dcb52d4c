"""The planner against a fake cluster: where it starts, what it plans, what survives. And the checks of the log ends."""

from __future__ import annotations

import re

import pytest
from kstream_kafka.errors import (
    BrokerUnreachableError,
    KafkaConfigError,
    LogShrankError,
    PartitionRevokedError,
    TopicNotAvailableError,
    UnknownTopicError,
)
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.planning.planner import checked_ends

from kstream.offsets.offset_range import LostRange, OffsetRange
from tests.kstream_kafka.planner import Planner


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


def test_a_pattern_never_takes_kafkas_own_topics():
    p = Planner({("__consumer_offsets", 0): (0, 9), ("t", 0): (0, 1)}, re.compile(".*"), auto_offset_reset="earliest").start()
    assert p.batch() == [["t", 0, 0, 1]]


def test_a_start_past_the_end_still_waits_after_a_restart():
    p = Planner({("t", 0): (0, 10)}, given={("t", 0): 11}).start()
    data = p.plan()
    again = Planner({("t", 0): (0, 10)}, given={("t", 0): 11})
    again.restore(data)
    assert again.start().batch() == [["t", 0, 11, 11]]


def test_given_offsets_of_a_partition_that_is_not_there_fail_the_start():
    with pytest.raises(KafkaConfigError, match="fromOffsets"):
        Planner({("t", 0): (0, 10)}, given={("t", 5): 4}).start()


def test_planning_moves_no_cursor_until_the_plan_is_durable():
    p = Planner({("t", 0): (0, 10)}, auto_offset_reset="earliest").start()
    first = p.plan()
    p.client.logs["t", 0] = (0, 15)
    assert first["ranges"] == [["t", 0, 0, 10]]
    assert p.batch() == [["t", 0, 0, 15]]


def test_one_question_a_batch_whatever_the_number_of_partitions():
    p = Planner({("t", i): (0, 10) for i in range(1000)}, auto_offset_reset="earliest").start()
    p.client.asked.clear()
    for _ in range(3):
        p.batch()
    assert p.client.asked == ["latest"] * 3


def test_a_partition_found_later_begins_at_earliest_whatever_the_reset_policy_says():
    p = Planner({("t", 0): (0, 10)}, auto_offset_reset="latest", metadata_max_age_ms=5000).start()
    p.client.logs["t", 1] = (3, 8)
    p.clock.advance(4999)
    assert p.batch() == [["t", 0, 10, 10]]
    p.clock.advance(1)
    assert p.batch() == [["t", 0, 10, 10], ["t", 1, 3, 8]]
    assert p.batch() == [["t", 0, 10, 10], ["t", 1, 8, 8]]


def test_a_new_partition_is_not_lost_with_a_plan_that_could_not_be_stored():
    p = Planner({("t", 0): (0, 10)}, metadata_max_age_ms=5000).start()
    p.client.logs["t", 1] = (3, 8)
    p.clock.advance(5000)
    lost = p.plan()
    assert lost["ranges"][1] == ["t", 1, 3, 8]
    assert p.batch()[1] == ["t", 1, 3, 8]


def test_a_partition_that_vanishes_fails_each_batch_until_it_is_back():
    p = Planner({("t", 0): (0, 10), ("t", 1): (0, 5)}, metadata_max_age_ms=5000).start()
    kept = p.client.logs.pop(("t", 1))
    for advance in (0, 5000, 0):
        p.clock.advance(advance)
        with pytest.raises(PartitionRevokedError, match="t-1"):
            p.plan()
    p.client.logs["t", 1] = kept
    assert p.batch() == [["t", 0, 10, 10], ["t", 1, 5, 5]]


@pytest.mark.parametrize("finder", ["the look for partitions", "the question for ends"])
def test_a_topic_that_is_read_and_vanishes_was_revoked_whoever_finds_out(finder: str):
    """UnknownTopicError, to correct the name, is for topics that were never there."""
    p = Planner({("t", 0): (0, 10), ("u", 0): (0, 5)}, ("t", "u"), metadata_max_age_ms=5000).start()
    p.batch()
    if finder == "the look for partitions":
        kept = p.client.logs.pop(("u", 0))
        p.clock.advance(5000)
    else:
        kept, p.client.failure = (0, 5), UnknownTopicError(["u"], 1)
    with pytest.raises(PartitionRevokedError, match=r"u-0 are being read"):
        p.plan()
    p.client.logs["u", 0], p.client.failure = kept, None
    assert p.batch() == [["t", 0, 10, 10], ["u", 0, 5, 5]]


def test_a_topic_that_is_missing_after_an_outage_was_not_revoked():
    """A driver waits in an outage. A partition that was revoked is an error at once."""
    p = Planner({("t", 0): (0, 10)}, auto_offset_reset="earliest").start()
    p.client.failure = TopicNotAvailableError(["t"], "no broker answered just before")
    with pytest.raises(TopicNotAvailableError):
        p.plan()
    p.client.failure = None
    assert p.batch() == [["t", 0, 0, 10]]


def test_an_unreachable_broker_fails_the_batch_and_the_next_starts_at_the_same_place():
    p = Planner({("t", 0): (0, 10)}, auto_offset_reset="earliest").start()
    p.client.failure = BrokerUnreachableError("h:1", 10)
    with pytest.raises(BrokerUnreachableError):
        p.plan()
    p.client.failure = None
    assert p.batch() == [["t", 0, 0, 10]]


def test_an_unknown_topic_fails_the_start():
    with pytest.raises(UnknownTopicError, match="'nope'"):
        Planner({("t", 0): (0, 1)}, ("nope",)).start()


def test_reset_none_without_offsets_fails_the_start():
    with pytest.raises(KafkaConfigError, match=r"auto\.offset\.reset.*t-0 is given no offset"):
        Planner({("t", 0): (0, 1)}, auto_offset_reset="none").start()


def test_a_restart_goes_on_from_the_newest_plan_and_resolves_nothing():
    p = Planner({("t", 0): (0, 30)}, auto_offset_reset="latest")
    p.restore({"ranges": [["t", 0, 5, 20]], "leader_epochs": [None], "topic_ids": None})
    p.start()
    assert p.client.asked == []
    assert p.batch() == [["t", 0, 20, 30]]


def test_a_partition_made_while_the_driver_was_down_begins_at_earliest():
    p = Planner({("t", 0): (0, 30), ("t", 1): (0, 4)}, auto_offset_reset="latest")
    p.restore({"ranges": [["t", 0, 5, 20]]})
    assert p.start().batch() == [["t", 0, 20, 30], ["t", 1, 0, 4]]


def test_partitions_of_topics_no_longer_asked_for_are_let_go():
    p = Planner({("t", 0): (0, 30)})
    p.restore({"ranges": [["old", 0, 5, 20], ["t", 0, 5, 20]]})
    assert p.start().batch() == [["t", 0, 20, 30]]


def test_the_leader_epoch_of_each_partition_is_in_the_plan():
    p = Planner({("t", 0): (0, 1), ("t", 1): (0, 1)}).start()
    assert p.plan()["leader_epochs"] == [7, 7]
    p.client.epoch = None
    assert p.plan()["leader_epochs"] == [None, None]
