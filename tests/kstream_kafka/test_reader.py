"""Reading one range: every way it can end, and every way it cannot be read."""

from __future__ import annotations

import pytest
from kstream_kafka.errors import KafkaError, LogRewrittenError, OffsetOutOfRangeError, PollTimeoutError, RangeUnreadableError
from kstream_kafka.offset_range import OffsetRange
from kstream_kafka.ports import Trouble
from kstream_kafka.reader import CHUNK, read_range

from tests.kstream_kafka.fakes import FakeConsumer, Message, records

EOF = Trouble.END_OF_PARTITION


def event(at: int, trouble: Trouble) -> Message:
    return Message(at, b"an error's text, not a value", problem=trouble)


def read(consumer: FakeConsumer, start: int, until: int, epoch: int | None = None, timeout_ms: int = 1000) -> list[int]:
    chunks = read_range(consumer, OffsetRange("t", 1, start, until), timeout_ms, epoch, consumer.monotonic)
    return [m.offset() for chunk in chunks for m in chunk]


def test_all_records_of_a_range_and_no_other():
    consumer = FakeConsumer([records(range(5, 9)), records(range(9, 12))])
    assert read(consumer, 5, 12) == list(range(5, 12))
    assert consumer.assigned == [("t", 1, 5, None)]


def test_an_empty_range_asks_nothing_of_the_broker():
    consumer = FakeConsumer()
    assert read(consumer, 5, 5) == []
    assert not consumer.assigned and not consumer.asked


def test_it_asks_for_no_more_than_is_left_since_consume_waits_for_all_it_is_asked_for():
    consumer = FakeConsumer([records(range(CHUNK)), records(range(CHUNK, CHUNK + 3))])
    read(consumer, 0, CHUNK + 3)
    assert consumer.asked == [CHUNK, 3]


def test_the_first_record_at_or_past_the_end_ends_the_range():
    """Offsets 3–9 were compacted away: records beyond the range come, and none of them is given out."""
    assert read(FakeConsumer([records([0, 1, 2, 10, 11])]), 0, 8) == [0, 1, 2]
    assert read(FakeConsumer([records([8, 9])]), 0, 8) == []


def test_the_position_reaching_the_end_ends_the_range_without_another_question():
    consumer = FakeConsumer([records([0, 1, 7])])
    assert read(consumer, 0, 8) == [0, 1, 7]
    assert len(consumer.asked) == 1


def test_the_end_of_the_partition_at_or_past_the_end_ends_the_range():
    """The last offsets of the range hold a transaction marker, which is no record."""
    assert read(FakeConsumer([[*records([0, 1, 2]), event(4, EOF)]]), 0, 4) == [0, 1, 2]
    assert read(FakeConsumer([[event(9, EOF)]]), 0, 4) == []


def test_the_end_of_the_partition_before_the_end_is_an_error_with_both_offsets():
    consumer = FakeConsumer([[*records([0, 1]), event(2, EOF)]], log_range=(0, 2))
    with pytest.raises(RangeUnreadableError, match=r"t-1 \[0, 5\): the partition ends at 2") as caught:
        read(consumer, 0, 5)
    assert caught.value.end == 2  # pyright: ignore[reportAttributeAccessIssue]


def test_an_early_end_that_the_broker_takes_back_is_read_on_from():
    """Right after an election the leader may show less than it has."""
    consumer = FakeConsumer([[*records([0, 1]), event(2, EOF)], records([2, 3])], log_range=(0, 4))
    assert read(consumer, 0, 4) == [0, 1, 2, 3]


def test_an_event_between_records_is_never_taken_for_a_record():
    """An event's value is an error text; here a gap makes the offsets look gapless with the event among them."""
    consumer = FakeConsumer([[*records([0, 1, 2]), event(3, EOF), *records([4, 5])]], log_range=(0, 6))
    assert read(consumer, 0, 6) == [0, 1, 2, 4, 5]


def test_a_gap_alone_is_no_error():
    assert read(FakeConsumer([records([2, 4, 8])]), 0, 9) == [2, 4, 8]


def test_retention_faster_than_the_stream_names_the_lost_records():
    consumer = FakeConsumer([[event(5, Trouble.OUT_OF_RANGE)]], log_range=(8, 20))
    with pytest.raises(OffsetOutOfRangeError, match=r"records \[5, 7\) were removed") as caught:
        read(consumer, 5, 7)
    facts = caught.value.facts
    assert (facts["at"], facts["earliest"], facts["latest"], facts["topic"], facts["partition"]) == (5, 8, 20, "t", 1)


def test_an_offset_behind_the_end_speaks_of_a_topic_made_anew_not_of_retention():
    consumer = FakeConsumer([[event(50, Trouble.OUT_OF_RANGE)]], log_range=(0, 3))
    with pytest.raises(OffsetOutOfRangeError, match="truncated or made anew"):
        read(consumer, 50, 60)


def test_an_offset_refused_inside_the_log_speaks_of_a_log_cut_and_written_anew():
    consumer = FakeConsumer([[event(5, Trouble.OUT_OF_RANGE)]], log_range=(0, 30))
    with pytest.raises(OffsetOutOfRangeError, match="cut below that offset and written anew"):
        read(consumer, 5, 9, epoch=3)


def test_the_plans_leader_epoch_is_given_to_the_broker():
    consumer = FakeConsumer([records([5], epoch=3)])
    read(consumer, 5, 6, epoch=3)
    assert consumer.assigned == [("t", 1, 5, 3)]


def test_records_of_a_later_epoch_than_the_plans_are_refused_before_they_are_given_out():
    consumer = FakeConsumer([[*records([0, 1], epoch=3), *records([2, 3], epoch=5)]])
    with pytest.raises(LogRewrittenError, match="planned under leader epoch 3, but it holds records of epoch 5"):
        read(consumer, 0, 4, epoch=3)


def test_a_later_epoch_past_the_range_is_nobodys_trouble():
    consumer = FakeConsumer([[*records([0, 1], epoch=3), *records([4], epoch=5)]])
    assert read(consumer, 0, 3, epoch=3) == [0, 1]


def test_a_broker_that_tells_no_epoch_is_believed():
    assert read(FakeConsumer([records([0, 1])]), 0, 2, epoch=3) == [0, 1]


def test_silence_for_the_poll_timeout_is_an_error_with_the_clients_last_words():
    consumer = FakeConsumer()
    consumer.words = "Connection refused"
    with pytest.raises(PollTimeoutError, match=r"no record at or after offset 2 came within 300 ms.*Connection refused"):
        read(consumer, 2, 4, timeout_ms=300)
    assert 0.3 <= consumer.now < 0.4


def test_each_record_starts_the_poll_timeout_anew():
    consumer = FakeConsumer([records([0]), [], [], [], records([1])])
    steps = iter(range(100))
    chunks = read_range(consumer, OffsetRange("t", 1, 0, 2), 4000, None, lambda: float(next(steps)))
    assert [m.offset() for chunk in chunks for m in chunk] == [0, 1]


def test_passing_trouble_is_waited_out_and_told_when_it_does_not_pass():
    passing = [event(0, Trouble.PASSING)]
    assert read(FakeConsumer([passing, records([0, 1])]), 0, 2) == [0, 1]
    with pytest.raises(PollTimeoutError, match="PASSING"):
        read(FakeConsumer([passing]), 0, 2)


def test_fatal_trouble_ends_the_read_at_once():
    with pytest.raises(KafkaError, match="gave up at offset 1"):
        read(FakeConsumer([[*records([0]), event(1, Trouble.FATAL)]]), 0, 2)
