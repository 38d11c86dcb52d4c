"""Reading one range: every way it can end, and every way it cannot be read. Then several ranges at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from kstream_kafka.client.ports import FetchErrorKind
from kstream_kafka.errors import BrokerUnreachableError, KafkaError, LogTruncatedError, PollTimeoutError, RecordsRemovedError
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.reader.range_reader import CHUNK, SAMPLE, read_range, read_splits

from kstream.offsets.offset_range import OffsetRange
from kstream.offsets.read_report import ReadReport
from tests.kstream_kafka.fakes import FakeConsumer, Message, records

EOF = FetchErrorKind.END_OF_PARTITION


A, B, C = ("t", 0), ("t", 1), ("s", 0)
"""Partitions."""


def event(at: int, trouble: FetchErrorKind, where: tuple[str, int] = A) -> Message:
    return Message(at, b"an error's text, not a value", problem=trouble, where=where)


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
    with pytest.raises(LogTruncatedError, match=r"t-1 \[0, 5\): the partition ends at 2") as caught:
        read(consumer, 0, 5)
    assert (caught.value.lost_from, caught.value.lost_until) == (2, 5)


def test_an_early_end_that_the_broker_takes_back_is_read_on_from():
    """Right after an election the leader may show less than it has."""
    consumer = FakeConsumer([[*records([0, 1]), event(2, EOF)], records([2, 3])], log_range=(0, 4))
    assert read(consumer, 0, 4) == [0, 1, 2, 3]


def test_an_early_end_that_nobody_confirms_is_no_loss_and_the_range_is_begun_again():
    """During an election the leader shows less than it has, and refuses to tell where its log ends."""
    consumer = FakeConsumer([[*records([0, 1]), event(2, EOF)], [event(2, EOF)], records([2, 3])], log_range=(None, None))
    assert read(consumer, 0, 4, epoch=3) == [0, 1, 2, 3]
    assert consumer.assigned == [("t", 1, 0, 3), ("t", 1, 2, None), ("t", 1, 2, None)]
    consumer = FakeConsumer([[*records([0, 1]), event(2, EOF)]], log_range=(None, None))
    with pytest.raises(PollTimeoutError, match="no leader confirms it"):
        read(consumer, 0, 4)


def test_an_event_between_records_is_never_taken_for_a_record():
    """An event's value is an error text; here a gap makes the offsets look gapless with the event among them."""
    consumer = FakeConsumer([[*records([0, 1, 2]), event(3, EOF), *records([4, 5])]], log_range=(0, 6))
    assert read(consumer, 0, 6) == [0, 1, 2, 4, 5]


def test_a_gap_alone_is_no_error():
    assert read(FakeConsumer([records([2, 4, 8])]), 0, 9) == [2, 4, 8]


def test_retention_faster_than_the_stream_names_the_lost_records():
    consumer = FakeConsumer([[event(5, FetchErrorKind.OUT_OF_RANGE)]], log_range=(8, 20))
    with pytest.raises(RecordsRemovedError, match=r"records \[5, 7\) were removed") as caught:
        read(consumer, 5, 7)
    facts = caught.value.facts
    assert (facts["at"], facts["earliest"], facts["latest"], facts["topic"], facts["partition"]) == (5, 8, 20, "t", 1)


def test_an_offset_behind_the_end_speaks_of_a_log_that_was_cut_not_of_retention():
    consumer = FakeConsumer([[event(50, FetchErrorKind.OUT_OF_RANGE)]], log_range=(0, 3))
    with pytest.raises(LogTruncatedError, match=r"offset 50 is past the log's end 3\. An unclean leader election"):
        read(consumer, 50, 60)


def test_an_offset_refused_inside_the_log_speaks_of_a_log_cut_and_written_anew():
    consumer = FakeConsumer([[event(5, FetchErrorKind.OUT_OF_RANGE)]], log_range=(0, 30))
    with pytest.raises(LogTruncatedError, match="cut below offset 5 and written again"):
        read(consumer, 5, 9, epoch=3)


def test_the_plans_leader_epoch_is_given_to_the_broker():
    consumer = FakeConsumer([records([5], epoch=3)])
    read(consumer, 5, 6, epoch=3)
    assert consumer.assigned == [("t", 1, 5, 3)]


def test_records_of_a_later_epoch_than_the_plans_are_refused_before_they_are_given_out():
    consumer = FakeConsumer([[*records([0, 1], epoch=3), *records([2, 3], epoch=5)]])
    with pytest.raises(LogTruncatedError, match="planned under leader epoch 3, but it holds records of epoch 5"):
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


def test_a_retriable_error_is_waited_out_and_named_when_it_does_not_pass():
    passing = [event(0, FetchErrorKind.RETRIABLE)]
    assert read(FakeConsumer([passing, records([0, 1])]), 0, 2) == [0, 1]
    with pytest.raises(PollTimeoutError, match="RETRIABLE"):
        read(FakeConsumer([passing]), 0, 2)


def test_a_fatal_error_ends_the_read_at_once():
    with pytest.raises(KafkaError, match="gave up at offset 1"):
        read(FakeConsumer([[*records([0]), event(1, FetchErrorKind.FATAL)]]), 0, 2)


# -- a client that is silent


class Silent(FakeConsumer):
    """Fetches two records at a time of each partition that is assigned. It falls silent at some offsets, until it begins anew.

    Attributes:
        silent_at: the offsets at which it falls silent.
        wakes: what wakes it: "assign", "reconnect", or "" for nothing.
    """

    def __init__(self, silent_at: set[int], wakes: str = "assign") -> None:
        super().__init__()
        self.silent_at, self.wakes = silent_at, wakes
        self.fetches: dict[tuple[str, int], int] = {}
        self.is_new = True

    def assign(self, begins: Sequence[tuple[str, int, int, int | None]]) -> None:
        super().assign(begins)
        self.fetches = {(topic, partition): at for topic, partition, at, _ in begins}
        if self.assignments > 1 and (self.wakes == "assign" or (self.wakes == "reconnect" and self.reconnected)):
            self.silent_at = set()

    def reconnect(self) -> None:
        super().reconnect()
        self.fetches = {}

    def consume(self, num_messages: int, timeout: float) -> list[Any]:
        found = [m for where, at in self.fetches.items() if at not in self.silent_at for m in records([at, at + 1], where=where)]
        for message in found:
            self.fetches[message.where] = message.at + 1
        if not found:
            self.now += timeout
        return found


def all_of(consumer: FakeConsumer, *splits: tuple[tuple[str, int], int, int], timeout_ms: int = 120_000) -> list[tuple[str, int, int]]:
    """(topic, partition, offset) of each record that is given out."""
    wanted = [RangeSplit(OffsetRange(*where, start, until), 3) for where, start, until in splits]
    chunks = read_splits(consumer, wanted, timeout_ms, consumer.monotonic)
    return [(r.topic, r.partition, m.offset()) for r, messages in chunks for m in messages]


@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_silent_client_is_assigned_again_after_a_third_of_the_poll_timeout_and_each_record_comes_once(
    at: int, caplog: pytest.LogCaptureFixture
):
    consumer = Silent({at})
    consumer.words = "Disconnected"
    with caplog.at_level(logging.WARNING, "kstream.kafka"):
        assert all_of(consumer, (A, 0, 6)) == [(*A, offset) for offset in range(6)]
    assert consumer.assigned == [("t", 0, 0, 3), ("t", 0, at, None if at else 3)] and consumer.reconnected == 0
    assert 40 <= consumer.now < 41
    assert [record.getMessage() for record in caplog.records] == [
        f"t-0 [0, 6): no record at or after offset {at} came for 40 s: it is assigned again there (the client says: Disconnected)"
    ]


def test_a_client_that_stays_silent_is_replaced_after_two_thirds_and_each_record_comes_once(caplog: pytest.LogCaptureFixture):
    consumer = Silent({2}, "reconnect")
    with caplog.at_level(logging.WARNING, "kstream.kafka"):
        assert all_of(consumer, (A, 0, 6)) == [(*A, offset) for offset in range(6)]
    assert consumer.assigned == [("t", 0, 0, 3), ("t", 0, 2, None), ("t", 0, 2, None)] and consumer.reconnected == 1
    assert 80 <= consumer.now < 81
    assert [record.getMessage() for record in caplog.records][1:] == [
        "t-0 [0, 6): no record at or after offset 2 came for 80 s: the worker's Kafka client is replaced, and the new one reads on there"
    ]


def test_a_client_that_nothing_wakes_is_an_error_after_the_whole_poll_timeout_of_the_last_one():
    """A gap that a client needs nearly the whole timeout for is read by the last one."""
    consumer = Silent({2}, "")
    with pytest.raises(PollTimeoutError, match="no record at or after offset 2 came within 120000 ms"):
        all_of(consumer, (A, 0, 6))
    assert (consumer.assignments, consumer.reconnected) == (3, 1) and 200 <= consumer.now < 201


@pytest.mark.parametrize("wakes", ["assign", "reconnect"])
def test_what_other_ranges_have_got_already_is_not_read_again(wakes: str):
    """B has come as a whole and waits for its turn, of C there is a half, A has nothing."""
    consumer = Silent({0, 12}, wakes)
    assert all_of(consumer, (A, 0, 2), (B, 4, 6), (C, 10, 14)) == [
        *((*A, at) for at in range(2)),
        *((*B, at) for at in range(4, 6)),
        *((*C, at) for at in range(10, 14)),
    ]
    assert consumer.assigned[3:5] == [("t", 0, 0, 3), ("s", 0, 12, None)]


def test_a_record_begins_the_silence_anew():
    consumer = Silent({2, 4}, "assign")
    steps = iter([2, 4])

    def assign(begins: Sequence[tuple[str, int, int, int | None]]) -> None:
        FakeConsumer.assign(consumer, begins)
        consumer.fetches = {(topic, partition): at for topic, partition, at, _ in begins}
        if consumer.assignments > 1:
            consumer.silent_at.discard(next(steps))

    consumer.assign = assign
    assert all_of(consumer, (A, 0, 6)) == [(*A, offset) for offset in range(6)]
    assert consumer.assignments == 3 and consumer.reconnected == 0, "a consumer that can be assigned again is never replaced"


def test_under_a_short_poll_timeout_a_slow_fetch_is_not_begun_again():
    consumer = Silent({2}, "")
    with pytest.raises(PollTimeoutError):
        all_of(consumer, (A, 0, 6), timeout_ms=4_000)
    assert consumer.assignments == 1


def test_the_time_that_a_task_takes_for_its_records_is_no_silence():
    consumer = FakeConsumer([records([0, 1]), [], records([2, 3])])
    chunks = read_splits(consumer, [RangeSplit(OffsetRange(*A, 0, 4))], 120_000, consumer.monotonic)
    next(chunks)
    consumer.now += 600
    assert [m.offset() for _, messages in chunks for m in messages] == [2, 3]
    assert consumer.assignments == 1


# -- several at once


def read_all(
    consumer: FakeConsumer, *splits: tuple[tuple[str, int], int, int], epoch: int | None = None
) -> list[tuple[str, int, list[int]]]:
    """(topic, partition, offsets) of each chunk, in the order they are given out."""
    wanted = [RangeSplit(OffsetRange(*where, start, until), epoch) for where, start, until in splits]
    chunks = read_splits(consumer, wanted, 1000, consumer.monotonic)
    return [(r.topic, r.partition, [m.offset() for m in messages]) for r, messages in chunks]


def test_several_ranges_are_assigned_at_once_and_each_record_comes_with_its_range():
    consumer = FakeConsumer([[*records([4, 5], where=A), *records([7], where=B), *records([0, 1], where=C)]])
    assert read_all(consumer, (A, 4, 6), (B, 7, 8), (C, 0, 2), epoch=3) == [("t", 0, [4, 5]), ("t", 1, [7]), ("s", 0, [0, 1])]
    assert consumer.assignments == 1
    assert consumer.assigned == [("t", 0, 4, 3), ("t", 1, 7, 3), ("s", 0, 0, 3)]


def test_records_come_in_the_order_of_the_ranges_whichever_partition_answers_first():
    """Computed again, an RDD has the same records in the same places."""
    script = [records([0], where=C), records([0], where=B), records([0, 1], where=A), records([1], where=C)]
    assert read_all(FakeConsumer(script), (A, 0, 2), (B, 0, 1), (C, 0, 2)) == [("t", 0, [0, 1]), ("t", 1, [0]), ("s", 0, [0, 1])]


def test_what_is_next_in_turn_is_given_out_before_the_rest_is_there():
    consumer = FakeConsumer([[*records([0], where=A), *records([0], where=B)], []])
    consumer.script.append(records([1], where=A))
    chunks = read_splits(consumer, [RangeSplit(OffsetRange(*A, 0, 2)), RangeSplit(OffsetRange(*B, 0, 1))], 1000, consumer.monotonic)
    first, messages = next(chunks)
    assert (first.partition, [m.offset() for m in messages]) == (0, [0]) and consumer.script
    assert [r.partition for r, _ in chunks] == [0, 1]


def test_each_range_has_its_own_end_and_what_comes_after_it_is_nobodys():
    """A's end is a record past it, B's a gap at the end of its partition, C's its last offset; then A's log goes on, and is cut."""
    script = [
        [*records([0, 9], where=A), event(5, EOF, B), *records([1], where=C)],
        [
            *records([10, 11], where=A),
            event(12, FetchErrorKind.OUT_OF_RANGE, A),
            event(12, FetchErrorKind.FATAL, A),
            *records([2], where=C),
        ],
    ]
    assert read_all(FakeConsumer(script), (A, 0, 4), (B, 3, 5), (C, 1, 3)) == [("t", 0, [0]), ("s", 0, [1, 2])]


def test_empty_ranges_among_others_ask_nothing():
    consumer = FakeConsumer([records([0], where=A)])
    assert read_all(consumer, (B, 3, 3), (A, 0, 1), (C, 0, 0)) == [("t", 0, [0])]
    assert consumer.assigned == [("t", 0, 0, None)]


def test_two_pieces_of_one_partition_are_refused_rather_than_read_half():
    with pytest.raises(ValueError, match="two splits of one partition"):
        read_all(FakeConsumer(), (A, 0, 2), (A, 5, 6))


def test_no_more_is_waited_for_than_is_left_of_all_ranges():
    consumer = FakeConsumer([[*records([0], where=A), *records([0], where=B)], [], records([1], where=B)])
    read_all(consumer, (A, 0, 1), (B, 0, 2))
    assert consumer.asked[0] == 3 and consumer.asked[2] == 1


@pytest.mark.parametrize(
    "trouble, error", [(EOF, LogTruncatedError), (FetchErrorKind.OUT_OF_RANGE, LogTruncatedError), (FetchErrorKind.FATAL, KafkaError)]
)
def test_an_error_names_the_partition_it_is_of(trouble: FetchErrorKind, error: type[KafkaError]):
    consumer = FakeConsumer([[*records([0], where=A), event(1, trouble, B)]], log_range=(0, 1))
    with pytest.raises(error) as caught:
        read_all(consumer, (A, 0, 2), (B, 1, 3), (C, 0, 1))
    assert (caught.value.facts["topic"], caught.value.facts["partition"]) == B


def test_a_later_epoch_in_any_of_the_ranges_is_refused():
    consumer = FakeConsumer([[*records([0], 3, A), *records([0], 4, B)]])
    with pytest.raises(LogTruncatedError, match="t-1"):
        read_all(consumer, (A, 0, 1), (B, 0, 1), epoch=3)


def test_the_poll_timeout_is_silence_of_all_ranges_and_names_the_first_that_is_missing():
    consumer = FakeConsumer([records([0], where=A)])
    with pytest.raises(PollTimeoutError, match=r"t-1 \[5, 6\): no record at or after offset 5"):
        read_all(consumer, (A, 0, 1), (B, 5, 6), (C, 0, 1))
    assert 1 <= consumer.now < 1.2
    consumer = FakeConsumer([m for at in range(4) for m in (records([at], where=A), *([[]] * 30))])
    assert read_all(consumer, (A, 0, 4), (B, 9, 9)) == [("t", 0, [at]) for at in range(4)]


def test_an_error_of_a_broker_is_of_no_partition_and_is_named_when_it_does_not_pass():
    nowhere: tuple[str, int] = (None, -1)  # type: ignore[assignment]
    assert read_all(
        FakeConsumer([[event(0, FetchErrorKind.RETRIABLE, nowhere)], [*records([0], where=A), *records([0], where=B)]]),
        (A, 0, 1),
        (B, 0, 1),
    )
    with pytest.raises(PollTimeoutError, match="RETRIABLE"):
        read_all(FakeConsumer([[event(0, FetchErrorKind.RETRIABLE, nowhere)]]), (A, 0, 1), (B, 0, 1))
    with pytest.raises(KafkaError, match="gave up"):
        read_all(FakeConsumer([[event(0, FetchErrorKind.FATAL, nowhere)]]), (A, 0, 1), (B, 0, 1))


def test_an_early_end_that_the_broker_takes_back_holds_for_one_of_many_too():
    consumer = FakeConsumer([[event(1, EOF, B)], [*records([0], where=A), *records([1], where=B)]], log_range=(0, 2))
    assert read_all(consumer, (A, 0, 1), (B, 1, 2)) == [("t", 0, [0]), ("t", 1, [1])]


def test_the_bytes_of_a_split_are_estimated_from_its_first_records() -> None:
    report = ReadReport()
    short = [Message(at, b"four", where=A) for at in range(SAMPLE)]
    long = [Message(at, b"x" * 1000, where=A) for at in range(SAMPLE, 2 * SAMPLE)]
    list(read_splits(FakeConsumer([short + long]), (RangeSplit(OffsetRange("t", 0, 0, 2 * SAMPLE)),), 1000, report=report))
    assert report.lengths == {(*A, 0): (2 * SAMPLE, 2 * SAMPLE * 4)}


def test_a_read_that_stops_early_tells_the_length_of_what_it_has_handed_out() -> None:
    report = ReadReport()
    messages = [Message(at, b"four", where=A) for at in range(5)]
    reading = read_splits(FakeConsumer([messages]), (RangeSplit(OffsetRange("t", 0, 0, 100)),), 1000, report=report)
    next(reading)
    reading.close()
    assert report.lengths == {(*A, 0): (5, 20)} and report.counts == {}


def test_a_read_tells_the_oldest_timestamp_of_the_records_with_which_its_splits_begin() -> None:
    class Timeless(Message):
        def timestamp(self) -> tuple[int, int]:
            return (0, -1)

    def report_of(*messages: Message) -> ReadReport:
        report, splits = ReadReport(), [RangeSplit(OffsetRange("t", partition, 5, 7)) for partition in (0, 1)]
        list(read_splits(FakeConsumer([list(messages)]), tuple(splits), 1000, report=report))
        return report

    read = report_of(*(Message(at, where=where) for where in (A, B) for at in (5, 6)))
    assert read.oldest == {(*A, 5): 1005}
    assert report_of(*(Timeless(at, where=where) for where in (A, B) for at in (5, 6))).oldest == {}


def test_brokers_that_tell_no_topic_id_for_a_while_are_waited_for_as_those_that_give_no_record() -> None:
    """A broker that stood still for half a minute, just after its last record had come, made the batch fail."""
    consumer = FakeConsumer([records(range(2))])
    consumer.ids, consumer.unanswered = {"t": "one"}, 6
    split = RangeSplit(OffsetRange("t", 0, 0, 2))
    given = [m for _, messages in read_splits(consumer, [split], 120_000, consumer.monotonic, topic_ids={"t": "one"}) for m in messages]
    assert [m.offset() for m in given] == [0, 1] and len(consumer.id_questions) == 7


def test_brokers_that_tell_no_topic_id_for_the_whole_poll_timeout_are_an_error() -> None:
    consumer = FakeConsumer([records(range(2))])
    consumer.ids, consumer.unanswered = {"t": "one"}, 99
    split = RangeSplit(OffsetRange("t", 0, 0, 2))
    with pytest.raises(BrokerUnreachableError):
        list(read_splits(consumer, [split], 120_000, consumer.monotonic, topic_ids={"t": "one"}))
    assert len(consumer.id_questions) == 8
